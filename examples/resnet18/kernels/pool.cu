// The two pooling layers of ResNet-18 at 224 x 224, one image. They move bytes and compute next to nothing.

// 64 channels of 112 x 112 to 56 x 56: the largest of 3 x 3 neighbours, stride 2, padding 1. One thread an output, which
// are 784 blocks of 256.
extern "C" __global__ void max_pool(const float *x, float *y) {
  int i = blockIdx.x * 256 + threadIdx.x;
  int ow = i % 56, oh = i / 56 % 56, c = i / (56 * 56);
  const float *plane = x + c * 112 * 112;
  // Beside the image on the left and above it, a neighbour is repeated, which changes no maximum.
  int rows[3] = {oh == 0 ? 0 : 2 * oh - 1, 2 * oh, 2 * oh + 1};
  int columns[3] = {ow == 0 ? 0 : 2 * ow - 1, 2 * ow, 2 * ow + 1};
  float largest = plane[rows[0] * 112 + columns[0]];
  for (int r = 0; r < 3; ++r) {
    for (int k = 0; k < 3; ++k) {
      largest = fmaxf(largest, plane[rows[r] * 112 + columns[k]]);
    }
  }
  y[i] = largest;
}

// The mean of each of 512 channels of 7 x 7. One warp a channel, 128 blocks of four.
extern "C" __global__ void average_pool(const float *x, float *y) {
  int lane = threadIdx.x % 32, c = blockIdx.x * 4 + threadIdx.x / 32;
  const float *plane = x + c * 49;
  float sum = plane[lane] + (lane < 17 ? plane[32 + lane] : 0.0f);
  for (int other = 16; other > 0; other /= 2) {
    sum += __shfl_xor_sync(0xffffffffu, sum, other);
  }
  if (lane == 0) {
    y[c] = sum / 49.0f;
  }
}

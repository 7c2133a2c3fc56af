// The pooling layers of ResNets at 224 x 224, one image. They move bytes and compute next to nothing.

// What is in front on the stream has ended, and the next kernel may begin, where the GPU knows of that.
static __device__ __forceinline__ void take_turn() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// 64 channels of 112 x 112 to 56 x 56: the largest of 3 x 3 neighbours, stride 2, padding 1. One thread an output, which
// are 784 blocks of 256.
extern "C" __global__ void __launch_bounds__(256) max_pool_nchw_f32(const float *x, float *__restrict__ y) {
  take_turn();
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

static __device__ __forceinline__ unsigned max_of_pairs(unsigned a, unsigned b) {
  unsigned d;
  asm("max.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
  return d;
}

// The same with channels last, in halves. One thread eight channels of an output, which are 196 blocks of 128.
extern "C" __global__ void __launch_bounds__(128) max_pool_nhwc_f16(const uint4 *x, uint4 *__restrict__ y) {
  take_turn();
  int i = blockIdx.x * 128 + threadIdx.x;
  int c = i % 8, ow = i / 8 % 56, oh = i / (8 * 56);
  int rows[3] = {oh == 0 ? 0 : 2 * oh - 1, 2 * oh, 2 * oh + 1};
  int columns[3] = {ow == 0 ? 0 : 2 * ow - 1, 2 * ow, 2 * ow + 1};
  uint4 largest = x[(rows[0] * 112 + columns[0]) * 8 + c];
  for (int r = 0; r < 3; ++r) {
    for (int k = 0; k < 3; ++k) {
      uint4 v = x[(rows[r] * 112 + columns[k]) * 8 + c];
      largest.x = max_of_pairs(largest.x, v.x);
      largest.y = max_of_pairs(largest.y, v.y);
      largest.z = max_of_pairs(largest.z, v.z);
      largest.w = max_of_pairs(largest.w, v.w);
    }
  }
  y[i] = largest;
}

// The mean of each channel of 7 x 7. One warp a channel, blocks of four.
extern "C" __global__ void __launch_bounds__(128) average_pool_nchw_f32(const float *x, float *__restrict__ y) {
  take_turn();
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

static __device__ __forceinline__ float to_float(unsigned short half) {
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(half));
  return f;
}

static __device__ __forceinline__ unsigned short to_half(float f) {
  unsigned short half;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(f));
  return half;
}

// The same with channels last, in halves. A block has 32 channels, and each of its seven warps a row of pixels.
extern "C" __global__ void __launch_bounds__(224)
    average_pool_nhwc_f16(const unsigned short *x, unsigned short *__restrict__ y) {
  __shared__ float sums[7][32];
  take_turn();
  int lane = threadIdx.x % 32, row = threadIdx.x / 32, channels = gridDim.x * 32, c = blockIdx.x * 32 + lane;
  float sum = 0.0f;
  for (int column = 0; column < 7; ++column) {
    sum += to_float(x[(row * 7 + column) * channels + c]);
  }
  sums[row][lane] = sum;
  __syncthreads();
  if (row == 0) {
    for (int other = 1; other < 7; ++other) {
      sum += sums[other][lane];
    }
    y[c] = to_half(sum / 49.0f);
  }
}

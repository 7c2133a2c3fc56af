// The pooling layers of ResNets at 224 x 224, one image. They move bytes and compute next to nothing. None has more blocks
// than an H100 has multiprocessors, so that each can begin before the kernel in front of it has ended.

// What is in front on the stream has ended, and the next kernel may begin, where the GPU knows of that.
static __device__ __forceinline__ void take_turn() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// 64 channels of 112 x 112 to 56 x 56: the largest of 3 x 3 neighbours, stride 2, padding 1. A block has half of a channel,
// 28 rows, and a thread four neighbours of a row: 128 blocks of 392.
extern "C" __global__ void __launch_bounds__(392) max_pool_nchw_f32(const float *x, float *__restrict__ y) {
  take_turn();
  int c = blockIdx.x / 2, oh = blockIdx.x % 2 * 28 + threadIdx.x / 14, four = threadIdx.x % 14;
  const float *plane = x + c * 112 * 112;
  // Beside the image on the left and above it, a neighbour is repeated, which changes no maximum.
  int rows[3] = {oh == 0 ? 0 : 2 * oh - 1, 2 * oh, 2 * oh + 1};
  float tall[9];
  for (int r = 0; r < 3; ++r) {
    const float *row = plane + rows[r] * 112;
    float4 a = *(const float4 *)(row + 8 * four), b = *(const float4 *)(row + 8 * four + 4);
    float column[9] = {row[four == 0 ? 0 : 8 * four - 1], a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
    for (int i = 0; i < 9; ++i) {
      tall[i] = r == 0 ? column[i] : fmaxf(tall[i], column[i]);
    }
  }
  float4 largest;
  largest.x = fmaxf(fmaxf(tall[0], tall[1]), tall[2]);
  largest.y = fmaxf(fmaxf(tall[2], tall[3]), tall[4]);
  largest.z = fmaxf(fmaxf(tall[4], tall[5]), tall[6]);
  largest.w = fmaxf(fmaxf(tall[6], tall[7]), tall[8]);
  *(float4 *)(y + c * 56 * 56 + oh * 56 + 4 * four) = largest;
}

static __device__ __forceinline__ unsigned max_of_pairs(unsigned a, unsigned b) {
  unsigned d;
  asm("max.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
  return d;
}

// The same with channels last, in halves. One thread eight channels of an output, which are 128 blocks of 196.
extern "C" __global__ void __launch_bounds__(196) max_pool_nhwc_f16(const uint4 *x, uint4 *__restrict__ y) {
  take_turn();
  int i = blockIdx.x * 196 + threadIdx.x;
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

// The mean of each channel of 7 x 7. One warp a channel.
extern "C" __global__ void __launch_bounds__(512) average_pool_nchw_f32(const float *x, float *__restrict__ y) {
  take_turn();
  int lane = threadIdx.x % 32, c = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
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

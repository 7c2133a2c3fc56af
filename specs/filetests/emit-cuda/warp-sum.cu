// Expected of a file test.
// sm_75; workspace 0 bytes
// warp_sum: 2 x 1 x 1 blocks of 64 x 1 x 1 threads
extern "C" __global__ void __launch_bounds__(64) warp_sum(const float *__restrict__ x, float *__restrict__ y) {
  const int b = (int)blockIdx.x;
  const int t = (int)threadIdx.x;
  float sum;
  float other;
  sum = x[b * 64 + t];
  asm volatile("shfl.sync.bfly.b32 %0, %1, 16, 31, -1;" : "=f"(other) : "f"(sum));
  sum = sum + other;
  asm volatile("shfl.sync.bfly.b32 %0, %1, 8, 31, -1;" : "=f"(other) : "f"(sum));
  sum = sum + other;
  asm volatile("shfl.sync.bfly.b32 %0, %1, 4, 31, -1;" : "=f"(other) : "f"(sum));
  sum = sum + other;
  asm volatile("shfl.sync.bfly.b32 %0, %1, 2, 31, -1;" : "=f"(other) : "f"(sum));
  sum = sum + other;
  asm volatile("shfl.sync.bfly.b32 %0, %1, 1, 31, -1;" : "=f"(other) : "f"(sum));
  sum = sum + other;
  y[b * 64 + t] = sum;
}

// Expected of a file test.
// sm_80; workspace 0 bytes
// warp_halves: 1 x 1 x 1 blocks of 32 x 1 x 1 threads
#define KG_FN static __device__ __forceinline__

KG_FN unsigned shared_address(const void *p) {
  return (unsigned)__cvta_generic_to_shared(p);
}
KG_FN void mma_ldmatrix_half(unsigned *to, const void *row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];" : "=r"(to[0]), "=r"(to[1]) : "r"(shared_address(row)) : "memory");
}
KG_FN void mma_m16n8k16_f16(float *sums, const unsigned *a, const unsigned *b) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
    "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" :
    "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]) :
    "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

extern "C" __global__ void __launch_bounds__(32) warp_halves(const unsigned short *__restrict__ x, const unsigned short *__restrict__ w, float *__restrict__ y) {
  __shared__ __align__(16) unsigned short cells[136];
  __shared__ __align__(16) unsigned short sw[128];
  const int lane_1 = (int)(threadIdx.x % 32);
  const int t = (int)threadIdx.x;
  unsigned short one_0, one_1, one_2, one_3, one_4, one_5, one_6, one_7;
  one_0 = 0;
  one_1 = 0;
  one_2 = 0;
  one_3 = 0;
  one_4 = 0;
  one_5 = 0;
  one_6 = 0;
  one_7 = 0;
  if (t < 17) {
    one_0 = x[t * 3];
    one_1 = x[t * 3 + 1];
    one_2 = x[t * 3 + 2];
    *(uint4 *)(cells + t * 8) = uint4{one_0 | (unsigned)one_1 << 16, one_2 | (unsigned)one_3 << 16, one_4 | (unsigned)one_5 << 16, one_6 | (unsigned)one_7 << 16};
  }
  *(uint2 *)(sw + t * 4) = *(const uint2 *)(w + t * 4);
  __syncthreads();
  unsigned left[4];
  unsigned right[2];
  float acc[4];
  #pragma unroll
  for (int i = 0; i < 4; ++i) acc[i] = 0.0f;
  mma_ldmatrix_half(left, cells + lane_1 % 16 * 8);
  mma_ldmatrix_half(left + 2, cells + lane_1 % 16 * 8 + 8);
  right[0] = sw[lane_1 % 4 * 16 + lane_1 / 4] | (unsigned)sw[lane_1 % 4 * 16 + lane_1 / 4 + 8] << 16;
  right[1] = sw[lane_1 % 4 * 16 + lane_1 / 4 + 64] | (unsigned)sw[lane_1 % 4 * 16 + lane_1 / 4 + 72] << 16;
  mma_m16n8k16_f16(acc, left, right);
  const int quad = t / 4;
  const int pair_1 = t % 4;
  *(float2 *)(y + quad * 8 + pair_1 * 2) = float2{acc[0], acc[1]};
  *(float2 *)(y + quad * 8 + pair_1 * 2 + 64) = float2{acc[2], acc[3]};
}

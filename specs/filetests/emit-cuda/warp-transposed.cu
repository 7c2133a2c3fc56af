// Expected of a file test.
// sm_80; workspace 0 bytes
// warp_transposed: 1 x 1 x 1 blocks of 32 x 1 x 1 threads
#define KG_FN static __device__ __forceinline__

KG_FN unsigned f32_to_f16x2(float low, float high) {
  unsigned pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
KG_FN void mma_m16n8k16_bf16(float *sums, const unsigned *a, const unsigned *b) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
    "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" :
    "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]) :
    "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

extern "C" __global__ void __launch_bounds__(32) warp_transposed(const unsigned short *__restrict__ a, const unsigned short *__restrict__ b, unsigned short *__restrict__ c) {
  const int lane = (int)(threadIdx.x % 32);
  const int t = (int)threadIdx.x;
  unsigned fa[8];
  unsigned fb[6];
  float acc[24];
  #pragma unroll
  for (int i_1 = 0; i_1 < 12; ++i_1) acc[i_1] = 0.0f;
  #pragma unroll
  for (int i_1 = 0; i_1 < 12; ++i_1) acc[12 + i_1] = 0.0f;
  fa[0] = a[lane % 4 * 64 + lane / 4] | (unsigned)a[lane % 4 * 64 + lane / 4 + 32] << 16;
  fa[1] = a[lane % 4 * 64 + lane / 4 + 8] | (unsigned)a[lane % 4 * 64 + lane / 4 + 40] << 16;
  fa[2] = a[lane % 4 * 64 + lane / 4 + 256] | (unsigned)a[lane % 4 * 64 + lane / 4 + 288] << 16;
  fa[3] = a[lane % 4 * 64 + lane / 4 + 264] | (unsigned)a[lane % 4 * 64 + lane / 4 + 296] << 16;
  fa[4] = a[lane % 4 * 64 + lane / 4 + 16] | (unsigned)a[lane % 4 * 64 + lane / 4 + 48] << 16;
  fa[5] = a[lane % 4 * 64 + lane / 4 + 24] | (unsigned)a[lane % 4 * 64 + lane / 4 + 56] << 16;
  fa[6] = a[lane % 4 * 64 + lane / 4 + 272] | (unsigned)a[lane % 4 * 64 + lane / 4 + 304] << 16;
  fa[7] = a[lane % 4 * 64 + lane / 4 + 280] | (unsigned)a[lane % 4 * 64 + lane / 4 + 312] << 16;
  fb[0] = *(const unsigned *)(b + lane / 4 * 16 + lane % 4 * 2);
  fb[1] = *(const unsigned *)(b + lane / 4 * 16 + lane % 4 * 2 + 8);
  fb[2] = *(const unsigned *)(b + lane / 4 * 16 + lane % 4 * 2 + 128);
  fb[3] = *(const unsigned *)(b + lane / 4 * 16 + lane % 4 * 2 + 136);
  fb[4] = *(const unsigned *)(b + lane / 4 * 16 + lane % 4 * 2 + 256);
  fb[5] = *(const unsigned *)(b + lane / 4 * 16 + lane % 4 * 2 + 264);
  mma_m16n8k16_bf16(acc, fa, fb);
  mma_m16n8k16_bf16(acc + 4, fa, fb + 2);
  mma_m16n8k16_bf16(acc + 8, fa, fb + 4);
  mma_m16n8k16_bf16(acc + 12, fa + 4, fb);
  mma_m16n8k16_bf16(acc + 16, fa + 4, fb + 2);
  mma_m16n8k16_bf16(acc + 20, fa + 4, fb + 4);
  const int quad = t / 4;
  const int pair = t % 4;
  #pragma unroll
  for (int rows = 0; rows < 2; ++rows) {
    #pragma unroll
    for (int octet = 0; octet < 3; ++octet) {
      *(unsigned *)(c + rows * 384 + quad * 24 + octet * 8 + pair * 2) = f32_to_f16x2(acc[octet * 4 + rows * 12], acc[octet * 4 + rows * 12 + 1]);
    }
    #pragma unroll
    for (int octet_1 = 0; octet_1 < 3; ++octet_1) {
      *(unsigned *)(c + rows * 384 + quad * 24 + octet_1 * 8 + pair * 2 + 192) = f32_to_f16x2(acc[octet_1 * 4 + rows * 12 + 2], acc[octet_1 * 4 + rows * 12 + 3]);
    }
  }
}

// Expected of a file test.
// sm_80; workspace 0 bytes
// warp_half_sums: 1 x 1 x 1 blocks of 32 x 1 x 1 threads
#define KG_FN static __device__ __forceinline__

KG_FN float max_f32(float a, float b) {
  float r;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
KG_FN float f16_to_f32(unsigned short h) {
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
  return f;
}
KG_FN unsigned f32_to_f16x2(float low, float high) {
  unsigned pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
union half_pair {
  unsigned both;
  unsigned short half[2];
};
KG_FN void mma_m16n8k16_f16_f16(half_pair *sums, const unsigned *a, const unsigned *b) {
  asm("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 "
    "{%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%0, %1};" :
    "+r"(sums[0].both), "+r"(sums[1].both) :
    "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

extern "C" __global__ void __launch_bounds__(32) warp_half_sums(const unsigned short *__restrict__ a, const unsigned short *__restrict__ b, unsigned short *__restrict__ c, float *__restrict__ d) {
  const int lane = (int)(threadIdx.x % 32);
  const int t = (int)threadIdx.x;
  unsigned fa[8];
  unsigned fb[8];
  half_pair acc[4];
  #pragma unroll
  for (int i_2 = 0; i_2 < 4; ++i_2) acc[i_2].both = f32_to_f16x2(0.5f, 0.5f);
  fa[0] = *(const unsigned *)(a + lane / 4 * 32 + lane % 4 * 2);
  fa[1] = *(const unsigned *)(a + lane / 4 * 32 + lane % 4 * 2 + 256);
  fa[2] = *(const unsigned *)(a + lane / 4 * 32 + lane % 4 * 2 + 8);
  fa[3] = *(const unsigned *)(a + lane / 4 * 32 + lane % 4 * 2 + 264);
  fa[4] = *(const unsigned *)(a + lane / 4 * 32 + lane % 4 * 2 + 16);
  fa[5] = *(const unsigned *)(a + lane / 4 * 32 + lane % 4 * 2 + 272);
  fa[6] = *(const unsigned *)(a + lane / 4 * 32 + lane % 4 * 2 + 24);
  fa[7] = *(const unsigned *)(a + lane / 4 * 32 + lane % 4 * 2 + 280);
  fb[0] = b[lane % 4 * 32 + lane / 4] | (unsigned)b[lane % 4 * 32 + lane / 4 + 16] << 16;
  fb[1] = b[lane % 4 * 32 + lane / 4 + 128] | (unsigned)b[lane % 4 * 32 + lane / 4 + 144] << 16;
  fb[2] = b[lane % 4 * 32 + lane / 4 + 8] | (unsigned)b[lane % 4 * 32 + lane / 4 + 24] << 16;
  fb[3] = b[lane % 4 * 32 + lane / 4 + 136] | (unsigned)b[lane % 4 * 32 + lane / 4 + 152] << 16;
  fb[4] = b[lane % 4 * 32 + lane / 4 + 256] | (unsigned)b[lane % 4 * 32 + lane / 4 + 272] << 16;
  fb[5] = b[lane % 4 * 32 + lane / 4 + 384] | (unsigned)b[lane % 4 * 32 + lane / 4 + 400] << 16;
  fb[6] = b[lane % 4 * 32 + lane / 4 + 264] | (unsigned)b[lane % 4 * 32 + lane / 4 + 280] << 16;
  fb[7] = b[lane % 4 * 32 + lane / 4 + 392] | (unsigned)b[lane % 4 * 32 + lane / 4 + 408] << 16;
  mma_m16n8k16_f16_f16(acc, fa, fb);
  mma_m16n8k16_f16_f16(acc + 2, fa, fb + 2);
  mma_m16n8k16_f16_f16(acc, fa + 4, fb + 4);
  mma_m16n8k16_f16_f16(acc + 2, fa + 4, fb + 6);
  const int quad = t / 4;
  const int pair = t % 4;
  #pragma unroll
  for (int octet = 0; octet < 2; ++octet) {
    *(unsigned *)(c + quad * 16 + octet * 8 + pair * 2) = acc[octet * 2].half[0] | (unsigned)acc[octet * 2].half[1] << 16;
  }
  #pragma unroll
  for (int octet_2 = 0; octet_2 < 2; ++octet_2) {
    *(unsigned *)(c + quad * 16 + octet_2 * 8 + pair * 2 + 128) = acc[octet_2 * 2 + 1].half[0] | (unsigned)acc[octet_2 * 2 + 1].half[1] << 16;
  }
  const int quad_1 = t / 4;
  const int pair_1 = t % 4;
  #pragma unroll
  for (int octet_1 = 0; octet_1 < 2; ++octet_1) {
    *(float2 *)(d + quad_1 * 16 + octet_1 * 8 + pair_1 * 2) = float2{max_f32(f16_to_f32(acc[octet_1 * 2].half[0]), 0.0f), max_f32(f16_to_f32(acc[octet_1 * 2].half[1]), 0.0f)};
  }
  #pragma unroll
  for (int octet_3 = 0; octet_3 < 2; ++octet_3) {
    *(float2 *)(d + quad_1 * 16 + octet_3 * 8 + pair_1 * 2 + 128) = float2{max_f32(f16_to_f32(acc[octet_3 * 2 + 1].half[0]), 0.0f), max_f32(f16_to_f32(acc[octet_3 * 2 + 1].half[1]), 0.0f)};
  }
}

// Expected of a file test.
// sm_80; workspace 0 bytes
// warp_chained: 1 x 1 x 1 blocks of 32 x 1 x 1 threads
#define KG_FN static __device__ __forceinline__

KG_FN float max_f32(float a, float b) {
  float r;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
KG_FN unsigned f32_to_f16x2(float low, float high) {
  unsigned pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
KG_FN void mma_m16n8k16_f16(float *sums, const unsigned *a, const unsigned *b) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
    "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" :
    "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]) :
    "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
KG_FN float exp2_approx(float x) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}

extern "C" __global__ void __launch_bounds__(32) warp_chained(const unsigned short *__restrict__ a, const unsigned short *__restrict__ b, const unsigned short *__restrict__ c, float *__restrict__ d, float *__restrict__ e) {
  const int lane = (int)(threadIdx.x % 32);
  const int t = (int)threadIdx.x;
  unsigned fa[4];
  unsigned fb[4];
  unsigned fc[2];
  float sums[8];
  unsigned weights[4];
  float acc[4];
  float most_0, most_1, most_2, most_3;
  #pragma unroll
  for (int i_2 = 0; i_2 < 8; ++i_2) sums[i_2] = 0.0f;
  #pragma unroll
  for (int i_3 = 0; i_3 < 4; ++i_3) acc[i_3] = 0.0f;
  most_0 = __int_as_float(0xff800000);
  most_1 = __int_as_float(0xff800000);
  most_2 = __int_as_float(0xff800000);
  most_3 = __int_as_float(0xff800000);
  fa[0] = *(const unsigned *)(a + lane / 4 * 16 + lane % 4 * 2);
  fa[1] = *(const unsigned *)(a + lane / 4 * 16 + lane % 4 * 2 + 128);
  fa[2] = *(const unsigned *)(a + lane / 4 * 16 + lane % 4 * 2 + 8);
  fa[3] = *(const unsigned *)(a + lane / 4 * 16 + lane % 4 * 2 + 136);
  fb[0] = b[lane % 4 * 32 + lane / 4] | (unsigned)b[lane % 4 * 32 + lane / 4 + 16] << 16;
  fb[1] = b[lane % 4 * 32 + lane / 4 + 128] | (unsigned)b[lane % 4 * 32 + lane / 4 + 144] << 16;
  fb[2] = b[lane % 4 * 32 + lane / 4 + 8] | (unsigned)b[lane % 4 * 32 + lane / 4 + 24] << 16;
  fb[3] = b[lane % 4 * 32 + lane / 4 + 136] | (unsigned)b[lane % 4 * 32 + lane / 4 + 152] << 16;
  fc[0] = c[lane % 4 * 16 + lane / 4] | (unsigned)c[lane % 4 * 16 + lane / 4 + 8] << 16;
  fc[1] = c[lane % 4 * 16 + lane / 4 + 64] | (unsigned)c[lane % 4 * 16 + lane / 4 + 72] << 16;
  mma_m16n8k16_f16(sums, fa, fb);
  mma_m16n8k16_f16(sums + 4, fa, fb + 2);
  #pragma unroll
  for (int octet = 0; octet < 2; ++octet) {
    most_0 = max_f32(most_0, sums[octet * 4]);
    most_1 = max_f32(most_1, sums[octet * 4 + 1]);
  }
  #pragma unroll
  for (int octet_3 = 0; octet_3 < 2; ++octet_3) {
    most_2 = max_f32(most_2, sums[octet_3 * 4 + 2]);
    most_3 = max_f32(most_3, sums[octet_3 * 4 + 3]);
  }
  #pragma unroll
  for (int octet_1 = 0; octet_1 < 2; ++octet_1) {
    sums[octet_1 * 4] = exp2_approx(sums[octet_1 * 4] - most_0);
    sums[octet_1 * 4 + 1] = exp2_approx(sums[octet_1 * 4 + 1] - most_1);
  }
  #pragma unroll
  for (int octet_4 = 0; octet_4 < 2; ++octet_4) {
    sums[octet_4 * 4 + 2] = exp2_approx(sums[octet_4 * 4 + 2] - most_2);
    sums[octet_4 * 4 + 3] = exp2_approx(sums[octet_4 * 4 + 3] - most_3);
  }
  weights[0] = f32_to_f16x2(sums[0], sums[1]);
  weights[1] = f32_to_f16x2(sums[2], sums[3]);
  weights[2] = f32_to_f16x2(sums[4], sums[5]);
  weights[3] = f32_to_f16x2(sums[6], sums[7]);
  mma_m16n8k16_f16(acc, weights, fc);
  const int quad_2 = t / 4;
  const int pair_3 = t % 4;
  *(float2 *)(d + quad_2 * 8 + pair_3 * 2) = float2{acc[0], acc[1]};
  *(float2 *)(d + quad_2 * 8 + pair_3 * 2 + 64) = float2{acc[2], acc[3]};
  e[t * 4] = most_0;
  e[t * 4 + 1] = most_1;
  e[t * 4 + 2] = most_2;
  e[t * 4 + 3] = most_3;
}

// Expected of matmul-tile.kernel.
// x86-64-v4; workspace 0 bytes and 0 a worker
#include <stddef.h>
#include <stdint.h>
#include <immintrin.h>

#define KG_FN static inline __attribute__((always_inline, unused))

#define KG_PRAGMA(x) _Pragma(#x)
#ifdef __clang__
#define KG_UNROLL(n) KG_PRAGMA(unroll n)
#else
#define KG_UNROLL(n) KG_PRAGMA(GCC unroll n)
#endif

typedef float f32x8 __attribute__((vector_size(32)));
typedef float f32x8_u __attribute__((vector_size(32), aligned(4), may_alias));
typedef float f32x16 __attribute__((vector_size(64)));
typedef float f32x16_u __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t i32x8 __attribute__((vector_size(32)));
typedef int32_t i32x8_u __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t i32x16 __attribute__((vector_size(64)));
typedef int32_t i32x16_u __attribute__((vector_size(64), aligned(4), may_alias));
KG_FN f32x8 splat_f32x8(float x) {
  return (f32x8){x, x, x, x, x, x, x, x};
}
KG_FN f32x16 splat_f32x16(float x) {
  return (f32x16){x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x};
}
KG_FN f32x16 load_f32x16(const float *p) {
  return *(const f32x16_u *)p;
}
KG_FN f32x8 load_part_f32x8(const float *p, int n) {
  f32x8 v = (f32x8)_mm256_maskz_loadu_ps((__mmask8)((1u << n) - 1u), p);
  __asm__("" : "+v"(v));
  return v;
}
KG_FN void store_f32x16(float *p, f32x16 v) {
  *(f32x16_u *)p = v;
}
KG_FN void store_part_f32x8(float *p, f32x8 v, int n) {
  __asm__("" : "+v"(v));
  _mm256_mask_storeu_ps(p, (__mmask8)((1u << n) - 1u), (__m256)v);
}
KG_FN f32x8 max_f32x8(f32x8 a, f32x8 b) {
  return (f32x8)((i32x8)_mm256_max_ps((__m256)b, (__m256)a) | (i32x8)(b != b));
}
KG_FN f32x16 max_f32x16(f32x16 a, f32x16 b) {
  return (f32x16)((i32x16)_mm512_max_ps((__m512)b, (__m512)a) | (i32x16)(b != b));
}

void matmul_tile_p0(const float *restrict a, const float *restrict b, const float *restrict bias, float *restrict c, unsigned char *restrict ws, int64_t worker, int64_t begin, int64_t end);

void matmul_tile_p0(const float *restrict a, const float *restrict b, const float *restrict bias, float *restrict c, unsigned char *restrict ws, int64_t worker, int64_t begin, int64_t end) {
  (void)ws; (void)worker;
  for (int64_t i_o = begin; i_o < end; i_o++) {
    if (i_o < 2) {
      f32x16 acc_0_0, acc_1_0, acc_2_0, acc_3_0;
      f32x8 acc_0_16, acc_1_16, acc_2_16, acc_3_16;
      acc_0_0 = splat_f32x16(0.0f);
      acc_0_16 = splat_f32x8(0.0f);
      acc_1_0 = splat_f32x16(0.0f);
      acc_1_16 = splat_f32x8(0.0f);
      acc_2_0 = splat_f32x16(0.0f);
      acc_2_16 = splat_f32x8(0.0f);
      acc_3_0 = splat_f32x16(0.0f);
      acc_3_16 = splat_f32x8(0.0f);
      KG_UNROLL(1)
      for (int64_t k = 0; k < 40; k++) {
        const float *const a_p = a + i_o * 160 + k;
        const float *const b_p = b + k * 23;
        acc_0_0 += a_p[0] * load_f32x16(b_p);
        acc_0_16 += a_p[0] * load_part_f32x8(b_p + 16, 7);
        acc_1_0 += a_p[40] * load_f32x16(b_p);
        acc_1_16 += a_p[40] * load_part_f32x8(b_p + 16, 7);
        acc_2_0 += a_p[80] * load_f32x16(b_p);
        acc_2_16 += a_p[80] * load_part_f32x8(b_p + 16, 7);
        acc_3_0 += a_p[120] * load_f32x16(b_p);
        acc_3_16 += a_p[120] * load_part_f32x8(b_p + 16, 7);
      }
      float *const c_p = c + i_o * 92;
      store_f32x16(c_p, max_f32x16(acc_0_0 + load_f32x16(bias), splat_f32x16(0.0f)));
      store_part_f32x8(c_p + 16, max_f32x8(acc_0_16 + load_part_f32x8(bias + 16, 7), splat_f32x8(0.0f)), 7);
      store_f32x16(c_p + 23, max_f32x16(acc_1_0 + load_f32x16(bias), splat_f32x16(0.0f)));
      store_part_f32x8(c_p + 39, max_f32x8(acc_1_16 + load_part_f32x8(bias + 16, 7), splat_f32x8(0.0f)), 7);
      store_f32x16(c_p + 46, max_f32x16(acc_2_0 + load_f32x16(bias), splat_f32x16(0.0f)));
      store_part_f32x8(c_p + 62, max_f32x8(acc_2_16 + load_part_f32x8(bias + 16, 7), splat_f32x8(0.0f)), 7);
      store_f32x16(c_p + 69, max_f32x16(acc_3_0 + load_f32x16(bias), splat_f32x16(0.0f)));
      store_part_f32x8(c_p + 85, max_f32x8(acc_3_16 + load_part_f32x8(bias + 16, 7), splat_f32x8(0.0f)), 7);
    } else {
      f32x16 acc_1_0_1;
      f32x8 acc_1_16_1;
      acc_1_0_1 = splat_f32x16(0.0f);
      acc_1_16_1 = splat_f32x8(0.0f);
      KG_UNROLL(1)
      for (int64_t k_1 = 0; k_1 < 40; k_1++) {
        const float *const b_p_1 = b + k_1 * 23;
        acc_1_0_1 += a[k_1 + 320] * load_f32x16(b_p_1);
        acc_1_16_1 += a[k_1 + 320] * load_part_f32x8(b_p_1 + 16, 7);
      }
      store_f32x16(c + 184, max_f32x16(acc_1_0_1 + load_f32x16(bias), splat_f32x16(0.0f)));
      store_part_f32x8(c + 200, max_f32x8(acc_1_16_1 + load_part_f32x8(bias + 16, 7), splat_f32x8(0.0f)), 7);
    }
  }
}

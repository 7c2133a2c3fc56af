// Expected of every-other.kernel.
// x86-64-v4; workspace 0 bytes and 0 a worker
#include <stddef.h>
#include <stdint.h>
#include <immintrin.h>

#define KG_FN static inline __attribute__((always_inline, unused))

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
KG_FN f32x16 load_between_f32x16(const float *p, int64_t low, int64_t high) {
  low = low < 0 ? 0 : low > 16 ? 16 : low;
  high = high < low ? low : high > 16 ? 16 : high;
  f32x16 v = (f32x16)_mm512_maskz_loadu_ps((__mmask16)((1u << high) - (1u << low)), p);
  __asm__("" : "+v"(v));
  return v;
}
KG_FN f32x8 pick_from0_f32x8(f32x16 window) {
  return (f32x8)_mm512_castps512_ps256(_mm512_permutexvar_ps(_mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 0, 2, 4, 6, 8, 10, 12, 14), window));
}
KG_FN f32x8 pick_from1_f32x8(f32x16 window) {
  return (f32x8)_mm512_castps512_ps256(_mm512_permutexvar_ps(_mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 1, 3, 5, 7, 9, 11, 13, 15), window));
}
KG_FN f32x8 pick_from2_f32x8(f32x16 window) {
  return (f32x8)_mm512_castps512_ps256(_mm512_permutexvar_ps(_mm512_setr_epi32(2, 4, 6, 8, 10, 12, 14, 0, 2, 4, 6, 8, 10, 12, 14, 0), window));
}
KG_FN void store_part_f32x8(float *p, f32x8 v, int n) {
  __asm__("" : "+v"(v));
  _mm256_mask_storeu_ps(p, (__mmask8)((1u << n) - 1u), (__m256)v);
}

void every_other_p0(const float *restrict x, const float *restrict odd, const float *restrict w, float *restrict y, float *restrict z, unsigned char *restrict ws, int64_t worker, int64_t begin, int64_t end);

void every_other_p0(const float *restrict x, const float *restrict odd, const float *restrict w, float *restrict y, float *restrict z, unsigned char *restrict ws, int64_t worker, int64_t begin, int64_t end) {
  (void)ws; (void)worker;
  for (int64_t c = begin; c < end; c++) {
    f32x8 acc_0_0, acc_1_0;
    const float *const w_p = w + c * 9;
    const float *const x_p = x + c * 70;
    float *const y_p = y + c * 14;
    acc_0_0 = splat_f32x8(0.0f);
    acc_1_0 = splat_f32x8(0.0f);
    const f32x16 row = load_between_f32x16(x_p - 1, 1, 15);
    acc_0_0 += pick_from0_f32x8(row) * w_p[0];
    acc_0_0 += pick_from1_f32x8(row) * w_p[1];
    acc_0_0 += pick_from2_f32x8(row) * w_p[2];
    const f32x16 row_1 = load_between_f32x16(x_p + 13, 1, 15);
    acc_0_0 += pick_from0_f32x8(row_1) * w_p[3];
    acc_0_0 += pick_from1_f32x8(row_1) * w_p[4];
    acc_0_0 += pick_from2_f32x8(row_1) * w_p[5];
    const f32x16 row_2 = load_between_f32x16(x_p + 27, 1, 15);
    acc_1_0 += pick_from0_f32x8(row_2) * w_p[0];
    acc_1_0 += pick_from1_f32x8(row_2) * w_p[1];
    acc_1_0 += pick_from2_f32x8(row_2) * w_p[2];
    acc_0_0 += pick_from0_f32x8(row_2) * w_p[6];
    acc_0_0 += pick_from1_f32x8(row_2) * w_p[7];
    acc_0_0 += pick_from2_f32x8(row_2) * w_p[8];
    const f32x16 row_3 = load_between_f32x16(x_p + 41, 1, 15);
    acc_1_0 += pick_from0_f32x8(row_3) * w_p[3];
    acc_1_0 += pick_from1_f32x8(row_3) * w_p[4];
    acc_1_0 += pick_from2_f32x8(row_3) * w_p[5];
    const f32x16 row_4 = load_between_f32x16(x_p + 55, 1, 15);
    acc_1_0 += pick_from0_f32x8(row_4) * w_p[6];
    acc_1_0 += pick_from1_f32x8(row_4) * w_p[7];
    acc_1_0 += pick_from2_f32x8(row_4) * w_p[8];
    store_part_f32x8(y_p, acc_0_0, 7);
    store_part_f32x8(y_p + 7, acc_1_0, 7);
    f32x8 sum_0;
    const float *const w_p_1 = w + c * 9;
    const float *const odd_p = odd + c * 39;
    sum_0 = splat_f32x8(0.0f);
    const f32x16 row_5 = load_between_f32x16(odd_p - 1, 1, 14);
    sum_0 += pick_from0_f32x8(row_5) * w_p_1[0];
    sum_0 += pick_from1_f32x8(row_5) * w_p_1[1];
    sum_0 += pick_from2_f32x8(row_5) * w_p_1[2];
    const f32x16 row_6 = load_between_f32x16(odd_p + 12, 1, 14);
    sum_0 += pick_from0_f32x8(row_6) * w_p_1[3];
    sum_0 += pick_from1_f32x8(row_6) * w_p_1[4];
    sum_0 += pick_from2_f32x8(row_6) * w_p_1[5];
    const f32x16 row_7 = load_between_f32x16(odd_p + 25, 1, 14);
    sum_0 += pick_from0_f32x8(row_7) * w_p_1[6];
    sum_0 += pick_from1_f32x8(row_7) * w_p_1[7];
    sum_0 += pick_from2_f32x8(row_7) * w_p_1[8];
    store_part_f32x8(z + c * 7, sum_0, 7);
  }
}

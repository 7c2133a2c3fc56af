// Expected of every-other.kernel.
// portable; workspace 0 bytes and 0 a worker
#include <stddef.h>
#include <stdint.h>

#define KG_FN static inline __attribute__((always_inline, unused))

typedef float f32x4 __attribute__((vector_size(16)));
typedef float f32x4_u __attribute__((vector_size(16), aligned(4), may_alias));
typedef float f32x8 __attribute__((vector_size(32)));
typedef float f32x8_u __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t i32x4 __attribute__((vector_size(16)));
typedef int32_t i32x4_u __attribute__((vector_size(16), aligned(4), may_alias));
KG_FN f32x4 splat_f32x4(float x) {
  return (f32x4){x, x, x, x};
}
KG_FN f32x4 load_f32x4(const float *p) {
  return *(const f32x4_u *)p;
}
KG_FN f32x4 load_between_f32x4(const float *p, int64_t low, int64_t high) {
  low = low < 0 ? 0 : low > 4 ? 4 : low;
  high = high < low ? low : high > 4 ? 4 : high;
  f32x4 v = {0};
  for (int64_t i = low; i < high; i++) v[i] = p[i];
  return v;
}
KG_FN f32x4 load_even_between_f32x4(const float *p, int64_t low, int64_t high) {
  f32x4 a = load_between_f32x4(p, 2 * low, 2 * high - 1);
  f32x4 b = load_between_f32x4(p + 3, 2 * low - 3, 2 * high - 1 - 3);
#ifdef __clang__
  return __builtin_shufflevector(a, b, 0, 2, 5, 7);
#else
  return __builtin_shuffle(a, b, (i32x4){0, 2, 5, 7});
#endif
}
KG_FN f32x4 load_even_f32x4(const float *p) {
  f32x4 lo = load_f32x4(p), hi = load_f32x4(p + 3);
#ifdef __clang__
  return __builtin_shufflevector(lo, hi, 0, 2, 5, 7);
#else
  typedef int32_t picks __attribute__((vector_size(16)));
  return __builtin_shuffle(lo, hi, (picks){0, 2, 5, 7});
#endif
}
KG_FN f32x4 pick_from0_f32x4(f32x4 a, f32x4 b) {
#ifdef __clang__
  return __builtin_shufflevector(a, b, 0, 2, 4, 6);
#else
  return __builtin_shuffle(a, b, (i32x4){0, 2, 4, 6});
#endif
}
KG_FN f32x4 pick_from1_f32x4(f32x4 a, f32x4 b) {
#ifdef __clang__
  return __builtin_shufflevector(a, b, 1, 3, 5, 7);
#else
  return __builtin_shuffle(a, b, (i32x4){1, 3, 5, 7});
#endif
}
KG_FN void store_f32x4(float *p, f32x4 v) {
  *(f32x4_u *)p = v;
}
KG_FN void store_part_f32x4(float *p, f32x4 v, int n) {
  __builtin_memcpy(p, &v, (size_t)n * 4);
}

void every_other_p0(const float *restrict x, const float *restrict odd, const float *restrict w, float *restrict y, float *restrict z, unsigned char *restrict ws, int64_t worker, int64_t begin, int64_t end);

void every_other_p0(const float *restrict x, const float *restrict odd, const float *restrict w, float *restrict y, float *restrict z, unsigned char *restrict ws, int64_t worker, int64_t begin, int64_t end) {
  (void)ws; (void)worker;
  for (int64_t c = begin; c < end; c++) {
    f32x4 acc_0_0, acc_0_4, acc_1_0, acc_1_4;
    const float *const w_p = w + c * 9;
    const float *const x_p = x + c * 70;
    float *const y_p = y + c * 14;
    acc_0_0 = splat_f32x4(0.0f);
    acc_0_4 = splat_f32x4(0.0f);
    acc_1_0 = splat_f32x4(0.0f);
    acc_1_4 = splat_f32x4(0.0f);
    const f32x4 row = load_between_f32x4(x_p - 1, 1, 4);
    const f32x4 row_1 = load_f32x4(x_p + 3);
    acc_0_0 += pick_from0_f32x4(row, row_1) * w_p[0];
    const f32x4 row_2 = load_f32x4(x_p + 7);
    const f32x4 row_3 = load_between_f32x4(x_p + 11, 0, 2);
    acc_0_4 += pick_from0_f32x4(row_2, row_3) * w_p[0];
    acc_0_0 += pick_from1_f32x4(row, row_1) * w_p[1];
    acc_0_4 += pick_from1_f32x4(row_2, row_3) * w_p[1];
    acc_0_0 += load_even_f32x4(x_p + 1) * w_p[2];
    acc_0_4 += load_even_between_f32x4(x_p + 9, 0, 3) * w_p[2];
    const f32x4 row_4 = load_between_f32x4(x_p + 13, 1, 4);
    const f32x4 row_5 = load_f32x4(x_p + 17);
    acc_0_0 += pick_from0_f32x4(row_4, row_5) * w_p[3];
    const f32x4 row_6 = load_f32x4(x_p + 21);
    const f32x4 row_7 = load_between_f32x4(x_p + 25, 0, 2);
    acc_0_4 += pick_from0_f32x4(row_6, row_7) * w_p[3];
    acc_0_0 += pick_from1_f32x4(row_4, row_5) * w_p[4];
    acc_0_4 += pick_from1_f32x4(row_6, row_7) * w_p[4];
    acc_0_0 += load_even_f32x4(x_p + 15) * w_p[5];
    acc_0_4 += load_even_between_f32x4(x_p + 23, 0, 3) * w_p[5];
    const f32x4 row_8 = load_between_f32x4(x_p + 27, 1, 4);
    const f32x4 row_9 = load_f32x4(x_p + 31);
    acc_1_0 += pick_from0_f32x4(row_8, row_9) * w_p[0];
    const f32x4 row_10 = load_f32x4(x_p + 35);
    const f32x4 row_11 = load_between_f32x4(x_p + 39, 0, 2);
    acc_1_4 += pick_from0_f32x4(row_10, row_11) * w_p[0];
    acc_1_0 += pick_from1_f32x4(row_8, row_9) * w_p[1];
    acc_1_4 += pick_from1_f32x4(row_10, row_11) * w_p[1];
    acc_0_0 += pick_from0_f32x4(row_8, row_9) * w_p[6];
    acc_0_4 += pick_from0_f32x4(row_10, row_11) * w_p[6];
    acc_0_0 += pick_from1_f32x4(row_8, row_9) * w_p[7];
    acc_0_4 += pick_from1_f32x4(row_10, row_11) * w_p[7];
    acc_1_0 += load_even_f32x4(x_p + 29) * w_p[2];
    acc_1_4 += load_even_between_f32x4(x_p + 37, 0, 3) * w_p[2];
    acc_0_0 += load_even_f32x4(x_p + 29) * w_p[8];
    acc_0_4 += load_even_between_f32x4(x_p + 37, 0, 3) * w_p[8];
    const f32x4 row_12 = load_between_f32x4(x_p + 41, 1, 4);
    const f32x4 row_13 = load_f32x4(x_p + 45);
    acc_1_0 += pick_from0_f32x4(row_12, row_13) * w_p[3];
    const f32x4 row_14 = load_f32x4(x_p + 49);
    const f32x4 row_15 = load_between_f32x4(x_p + 53, 0, 2);
    acc_1_4 += pick_from0_f32x4(row_14, row_15) * w_p[3];
    acc_1_0 += pick_from1_f32x4(row_12, row_13) * w_p[4];
    acc_1_4 += pick_from1_f32x4(row_14, row_15) * w_p[4];
    acc_1_0 += load_even_f32x4(x_p + 43) * w_p[5];
    acc_1_4 += load_even_between_f32x4(x_p + 51, 0, 3) * w_p[5];
    const f32x4 row_16 = load_between_f32x4(x_p + 55, 1, 4);
    const f32x4 row_17 = load_f32x4(x_p + 59);
    acc_1_0 += pick_from0_f32x4(row_16, row_17) * w_p[6];
    const f32x4 row_18 = load_f32x4(x_p + 63);
    const f32x4 row_19 = load_between_f32x4(x_p + 67, 0, 2);
    acc_1_4 += pick_from0_f32x4(row_18, row_19) * w_p[6];
    acc_1_0 += pick_from1_f32x4(row_16, row_17) * w_p[7];
    acc_1_4 += pick_from1_f32x4(row_18, row_19) * w_p[7];
    acc_1_0 += load_even_f32x4(x_p + 57) * w_p[8];
    acc_1_4 += load_even_between_f32x4(x_p + 65, 0, 3) * w_p[8];
    store_f32x4(y_p, acc_0_0);
    store_part_f32x4(y_p + 4, acc_0_4, 3);
    store_f32x4(y_p + 7, acc_1_0);
    store_part_f32x4(y_p + 11, acc_1_4, 3);
    f32x4 sum_0, sum_4;
    const float *const w_p_1 = w + c * 9;
    const float *const odd_p = odd + c * 39;
    float *const z_p = z + c * 7;
    sum_0 = splat_f32x4(0.0f);
    sum_4 = splat_f32x4(0.0f);
    const f32x4 row_20 = load_between_f32x4(odd_p - 1, 1, 4);
    const f32x4 row_21 = load_f32x4(odd_p + 3);
    sum_0 += pick_from0_f32x4(row_20, row_21) * w_p_1[0];
    const f32x4 row_22 = load_f32x4(odd_p + 7);
    const f32x4 row_23 = load_between_f32x4(odd_p + 11, 0, 2);
    sum_4 += pick_from0_f32x4(row_22, row_23) * w_p_1[0];
    sum_0 += pick_from1_f32x4(row_20, row_21) * w_p_1[1];
    sum_4 += pick_from1_f32x4(row_22, row_23) * w_p_1[1];
    sum_0 += load_even_between_f32x4(odd_p + 1, 0, 4) * w_p_1[2];
    sum_4 += load_even_between_f32x4(odd_p + 9, 0, 2) * w_p_1[2];
    const f32x4 row_24 = load_between_f32x4(odd_p + 12, 1, 4);
    const f32x4 row_25 = load_f32x4(odd_p + 16);
    sum_0 += pick_from0_f32x4(row_24, row_25) * w_p_1[3];
    const f32x4 row_26 = load_f32x4(odd_p + 20);
    const f32x4 row_27 = load_between_f32x4(odd_p + 24, 0, 2);
    sum_4 += pick_from0_f32x4(row_26, row_27) * w_p_1[3];
    sum_0 += pick_from1_f32x4(row_24, row_25) * w_p_1[4];
    sum_4 += pick_from1_f32x4(row_26, row_27) * w_p_1[4];
    sum_0 += load_even_between_f32x4(odd_p + 14, 0, 4) * w_p_1[5];
    sum_4 += load_even_between_f32x4(odd_p + 22, 0, 2) * w_p_1[5];
    const f32x4 row_28 = load_between_f32x4(odd_p + 25, 1, 4);
    const f32x4 row_29 = load_f32x4(odd_p + 29);
    sum_0 += pick_from0_f32x4(row_28, row_29) * w_p_1[6];
    const f32x4 row_30 = load_f32x4(odd_p + 33);
    const f32x4 row_31 = load_between_f32x4(odd_p + 37, 0, 2);
    sum_4 += pick_from0_f32x4(row_30, row_31) * w_p_1[6];
    sum_0 += pick_from1_f32x4(row_28, row_29) * w_p_1[7];
    sum_4 += pick_from1_f32x4(row_30, row_31) * w_p_1[7];
    sum_0 += load_even_between_f32x4(odd_p + 27, 0, 4) * w_p_1[8];
    sum_4 += load_even_between_f32x4(odd_p + 35, 0, 2) * w_p_1[8];
    store_f32x4(z_p, sum_0);
    store_part_f32x4(z_p + 4, sum_4, 3);
  }
}

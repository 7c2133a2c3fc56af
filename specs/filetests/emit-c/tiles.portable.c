// Expected of tiles.kernel.
// portable; workspace 0 bytes and 0 a worker
#include <stddef.h>
#include <stdint.h>

typedef uint32_t kg_word __attribute__((aligned(1), may_alias));
#define KG_FN static inline __attribute__((always_inline, unused))

typedef int32_t i32x4 __attribute__((vector_size(16)));
typedef int32_t i32x4_u __attribute__((vector_size(16), aligned(4), may_alias));
KG_FN i32x4 splat_i32x4(int32_t x) {
  return (i32x4){x, x, x, x};
}
KG_FN i32x4 load_i32x4(const int32_t *p) {
  return *(const i32x4_u *)p;
}
KG_FN i32x4 load_i8x4_i32x4(const kg_word *p) {
  return *(const i32x4_u *)p;
}
KG_FN void store_i32x4(int32_t *p, i32x4 v) {
  *(i32x4_u *)p = v;
}
KG_FN i32x4 dot4_us_i32x4(i32x4 sum, i32x4 a, i32x4 b) {
  return sum + (a >> 0 & 255) * (b << 24 >> 24) +
    (a >> 8 & 255) * (b << 16 >> 24) +
    (a >> 16 & 255) * (b << 8 >> 24) +
    (a >> 24 & 255) * (b << 0 >> 24);
}

void tiles_p0(const kg_word *restrict x, const kg_word *restrict w, int32_t *restrict y, int32_t *restrict z, unsigned char *restrict ws, int64_t worker, int64_t begin, int64_t end);

void tiles_p0(const kg_word *restrict x, const kg_word *restrict w, int32_t *restrict y, int32_t *restrict z, unsigned char *restrict ws, int64_t worker, int64_t begin, int64_t end) {
  (void)ws; (void)worker;
  for (int64_t task = begin; task < end; task++) {
    i32x4 sums_0_0, sums_0_4, sums_0_8, sums_0_12, sums_1_0, sums_1_4, sums_1_8, sums_1_12;
    i32x4 sums_2_0, sums_2_4, sums_2_8, sums_2_12;
    i32x4 others_0_0, others_0_4, others_0_8, others_0_12, others_1_0, others_1_4, others_1_8, others_1_12;
    i32x4 others_2_0, others_2_4, others_2_8, others_2_12;
    int32_t out[96] __attribute__((aligned(64)));
    sums_0_0 = splat_i32x4((int32_t)0);
    sums_0_4 = splat_i32x4((int32_t)0);
    sums_0_8 = splat_i32x4((int32_t)0);
    sums_0_12 = splat_i32x4((int32_t)0);
    sums_1_0 = splat_i32x4((int32_t)0);
    sums_1_4 = splat_i32x4((int32_t)0);
    sums_1_8 = splat_i32x4((int32_t)0);
    sums_1_12 = splat_i32x4((int32_t)0);
    sums_2_0 = splat_i32x4((int32_t)0);
    sums_2_4 = splat_i32x4((int32_t)0);
    sums_2_8 = splat_i32x4((int32_t)0);
    sums_2_12 = splat_i32x4((int32_t)0);
    others_0_0 = splat_i32x4((int32_t)0);
    others_0_4 = splat_i32x4((int32_t)0);
    others_0_8 = splat_i32x4((int32_t)0);
    others_0_12 = splat_i32x4((int32_t)0);
    others_1_0 = splat_i32x4((int32_t)0);
    others_1_4 = splat_i32x4((int32_t)0);
    others_1_8 = splat_i32x4((int32_t)0);
    others_1_12 = splat_i32x4((int32_t)0);
    others_2_0 = splat_i32x4((int32_t)0);
    others_2_4 = splat_i32x4((int32_t)0);
    others_2_8 = splat_i32x4((int32_t)0);
    others_2_12 = splat_i32x4((int32_t)0);
    for (int64_t step = 0; step < 2; step++) {
      for (int64_t word = 0; word < 4; word++) {
        const kg_word *const x_p = x + step * 5 + word;
        const kg_word *const w_p = w + step * 128 + word * 32;
        sums_0_0 = dot4_us_i32x4(sums_0_0, splat_i32x4(x_p[0]), load_i8x4_i32x4(w_p));
        sums_0_4 = dot4_us_i32x4(sums_0_4, splat_i32x4(x_p[0]), load_i8x4_i32x4(w_p + 4));
        sums_0_8 = dot4_us_i32x4(sums_0_8, splat_i32x4(x_p[0]), load_i8x4_i32x4(w_p + 8));
        sums_0_12 = dot4_us_i32x4(sums_0_12, splat_i32x4(x_p[0]), load_i8x4_i32x4(w_p + 12));
        sums_1_0 = dot4_us_i32x4(sums_1_0, splat_i32x4(x_p[10]), load_i8x4_i32x4(w_p));
        sums_1_4 = dot4_us_i32x4(sums_1_4, splat_i32x4(x_p[10]), load_i8x4_i32x4(w_p + 4));
        sums_1_8 = dot4_us_i32x4(sums_1_8, splat_i32x4(x_p[10]), load_i8x4_i32x4(w_p + 8));
        sums_1_12 = dot4_us_i32x4(sums_1_12, splat_i32x4(x_p[10]), load_i8x4_i32x4(w_p + 12));
        sums_2_0 = dot4_us_i32x4(sums_2_0, splat_i32x4(x_p[20]), load_i8x4_i32x4(w_p));
        sums_2_4 = dot4_us_i32x4(sums_2_4, splat_i32x4(x_p[20]), load_i8x4_i32x4(w_p + 4));
        sums_2_8 = dot4_us_i32x4(sums_2_8, splat_i32x4(x_p[20]), load_i8x4_i32x4(w_p + 8));
        sums_2_12 = dot4_us_i32x4(sums_2_12, splat_i32x4(x_p[20]), load_i8x4_i32x4(w_p + 12));
      }
      for (int64_t word_1 = 0; word_1 < 4; word_1++) {
        const kg_word *const x_p_1 = x + step * 5 + word_1 + 1;
        const kg_word *const w_p_1 = w + step * 128 + word_1 * 32 + 16;
        others_0_0 = dot4_us_i32x4(others_0_0, splat_i32x4(x_p_1[0]), load_i8x4_i32x4(w_p_1));
        others_0_4 = dot4_us_i32x4(others_0_4, splat_i32x4(x_p_1[0]), load_i8x4_i32x4(w_p_1 + 4));
        others_0_8 = dot4_us_i32x4(others_0_8, splat_i32x4(x_p_1[0]), load_i8x4_i32x4(w_p_1 + 8));
        others_0_12 = dot4_us_i32x4(others_0_12, splat_i32x4(x_p_1[0]), load_i8x4_i32x4(w_p_1 + 12));
        others_1_0 = dot4_us_i32x4(others_1_0, splat_i32x4(x_p_1[10]), load_i8x4_i32x4(w_p_1));
        others_1_4 = dot4_us_i32x4(others_1_4, splat_i32x4(x_p_1[10]), load_i8x4_i32x4(w_p_1 + 4));
        others_1_8 = dot4_us_i32x4(others_1_8, splat_i32x4(x_p_1[10]), load_i8x4_i32x4(w_p_1 + 8));
        others_1_12 = dot4_us_i32x4(others_1_12, splat_i32x4(x_p_1[10]), load_i8x4_i32x4(w_p_1 + 12));
        others_2_0 = dot4_us_i32x4(others_2_0, splat_i32x4(x_p_1[20]), load_i8x4_i32x4(w_p_1));
        others_2_4 = dot4_us_i32x4(others_2_4, splat_i32x4(x_p_1[20]), load_i8x4_i32x4(w_p_1 + 4));
        others_2_8 = dot4_us_i32x4(others_2_8, splat_i32x4(x_p_1[20]), load_i8x4_i32x4(w_p_1 + 8));
        others_2_12 = dot4_us_i32x4(others_2_12, splat_i32x4(x_p_1[20]), load_i8x4_i32x4(w_p_1 + 12));
      }
    }
    store_i32x4(out, sums_0_0);
    store_i32x4(out + 4, sums_0_4);
    store_i32x4(out + 8, sums_0_8);
    store_i32x4(out + 12, sums_0_12);
    store_i32x4(out + 32, sums_1_0);
    store_i32x4(out + 36, sums_1_4);
    store_i32x4(out + 40, sums_1_8);
    store_i32x4(out + 44, sums_1_12);
    store_i32x4(out + 64, sums_2_0);
    store_i32x4(out + 68, sums_2_4);
    store_i32x4(out + 72, sums_2_8);
    store_i32x4(out + 76, sums_2_12);
    store_i32x4(out + 16, others_0_0);
    store_i32x4(out + 20, others_0_4);
    store_i32x4(out + 24, others_0_8);
    store_i32x4(out + 28, others_0_12);
    store_i32x4(out + 48, others_1_0);
    store_i32x4(out + 52, others_1_4);
    store_i32x4(out + 56, others_1_8);
    store_i32x4(out + 60, others_1_12);
    store_i32x4(out + 80, others_2_0);
    store_i32x4(out + 84, others_2_4);
    store_i32x4(out + 88, others_2_8);
    store_i32x4(out + 92, others_2_12);
    for (int64_t i_6 = 0; i_6 < 3; i_6++) {
      int32_t *const y_p = y + i_6 * 32;
      const int32_t *const out_p = out + i_6 * 32;
      store_i32x4(y_p, load_i32x4(out_p));
      store_i32x4(y_p + 4, load_i32x4(out_p + 4));
      store_i32x4(y_p + 8, load_i32x4(out_p + 8));
      store_i32x4(y_p + 12, load_i32x4(out_p + 12));
      store_i32x4(y_p + 16, load_i32x4(out_p + 16));
      store_i32x4(y_p + 20, load_i32x4(out_p + 20));
      store_i32x4(y_p + 24, load_i32x4(out_p + 24));
      store_i32x4(y_p + 28, load_i32x4(out_p + 28));
    }
    store_i32x4(z, others_0_0 * (int32_t)3);
    store_i32x4(z + 4, others_0_4 * (int32_t)3);
    store_i32x4(z + 8, others_0_8 * (int32_t)3);
    store_i32x4(z + 12, others_0_12 * (int32_t)3);
    store_i32x4(z + 16, others_1_0 * (int32_t)3);
    store_i32x4(z + 20, others_1_4 * (int32_t)3);
    store_i32x4(z + 24, others_1_8 * (int32_t)3);
    store_i32x4(z + 28, others_1_12 * (int32_t)3);
    store_i32x4(z + 32, others_2_0 * (int32_t)3);
    store_i32x4(z + 36, others_2_4 * (int32_t)3);
    store_i32x4(z + 40, others_2_8 * (int32_t)3);
    store_i32x4(z + 44, others_2_12 * (int32_t)3);
  }
}

// Expected of tiles.kernel.
// x86-64-v4; workspace 0 bytes and 0 a worker
#include <stddef.h>
#include <stdint.h>
#include <immintrin.h>

typedef uint32_t kg_word __attribute__((aligned(1), may_alias));
#define KG_FN static inline __attribute__((always_inline, unused))

typedef int32_t i32x16 __attribute__((vector_size(64)));
typedef int32_t i32x16_u __attribute__((vector_size(64), aligned(4), may_alias));
KG_FN i32x16 splat_i32x16(int32_t x) {
  return (i32x16){x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x};
}
KG_FN i32x16 load_i32x16(const int32_t *p) {
  return *(const i32x16_u *)p;
}
KG_FN i32x16 load_i8x4_i32x16(const kg_word *p) {
  return *(const i32x16_u *)p;
}
KG_FN void store_i32x16(int32_t *p, i32x16 v) {
  *(i32x16_u *)p = v;
}
KG_FN i32x16 dot4_us_i32x16(i32x16 sum, i32x16 a, i32x16 b) {
  const __m512i a0 = (__m512i)(a & 0x00ff00ff);
  const __m512i a1 = _mm512_srli_epi16((__m512i)a, 8);
  const __m512i b0 = _mm512_srai_epi16(_mm512_slli_epi16((__m512i)b, 8), 8);
  const __m512i b1 = _mm512_srai_epi16((__m512i)b, 8);
  return sum + (i32x16)_mm512_madd_epi16(a0, b0) + (i32x16)_mm512_madd_epi16(a1, b1);
}

void tiles_p0(const kg_word *restrict x, const kg_word *restrict w, int32_t *restrict y, int32_t *restrict z, unsigned char *restrict ws, int64_t worker, int64_t begin, int64_t end);

void tiles_p0(const kg_word *restrict x, const kg_word *restrict w, int32_t *restrict y, int32_t *restrict z, unsigned char *restrict ws, int64_t worker, int64_t begin, int64_t end) {
  (void)ws; (void)worker;
  for (int64_t task = begin; task < end; task++) {
    i32x16 sums_0_0, sums_1_0, sums_2_0;
    i32x16 others_0_0, others_1_0, others_2_0;
    int32_t out[96] __attribute__((aligned(64)));
    sums_0_0 = splat_i32x16((int32_t)0);
    sums_1_0 = splat_i32x16((int32_t)0);
    sums_2_0 = splat_i32x16((int32_t)0);
    others_0_0 = splat_i32x16((int32_t)0);
    others_1_0 = splat_i32x16((int32_t)0);
    others_2_0 = splat_i32x16((int32_t)0);
    for (int64_t step = 0; step < 2; step++) {
      for (int64_t word = 0; word < 4; word++) {
        const kg_word *const x_p = x + step * 5 + word;
        const kg_word *const w_p = w + step * 128 + word * 32;
        sums_0_0 = dot4_us_i32x16(sums_0_0, splat_i32x16(x_p[0]), load_i8x4_i32x16(w_p));
        sums_1_0 = dot4_us_i32x16(sums_1_0, splat_i32x16(x_p[10]), load_i8x4_i32x16(w_p));
        sums_2_0 = dot4_us_i32x16(sums_2_0, splat_i32x16(x_p[20]), load_i8x4_i32x16(w_p));
      }
      for (int64_t word_1 = 0; word_1 < 4; word_1++) {
        const kg_word *const x_p_1 = x + step * 5 + word_1 + 1;
        const kg_word *const w_p_1 = w + step * 128 + word_1 * 32 + 16;
        others_0_0 = dot4_us_i32x16(others_0_0, splat_i32x16(x_p_1[0]), load_i8x4_i32x16(w_p_1));
        others_1_0 = dot4_us_i32x16(others_1_0, splat_i32x16(x_p_1[10]), load_i8x4_i32x16(w_p_1));
        others_2_0 = dot4_us_i32x16(others_2_0, splat_i32x16(x_p_1[20]), load_i8x4_i32x16(w_p_1));
      }
    }
    store_i32x16(out, sums_0_0);
    store_i32x16(out + 32, sums_1_0);
    store_i32x16(out + 64, sums_2_0);
    store_i32x16(out + 16, others_0_0);
    store_i32x16(out + 48, others_1_0);
    store_i32x16(out + 80, others_2_0);
    for (int64_t i_6 = 0; i_6 < 3; i_6++) {
      int32_t *const y_p = y + i_6 * 32;
      const int32_t *const out_p = out + i_6 * 32;
      store_i32x16(y_p, load_i32x16(out_p));
      store_i32x16(y_p + 16, load_i32x16(out_p + 16));
    }
    store_i32x16(z, others_0_0 * (int32_t)3);
    store_i32x16(z + 16, others_1_0 * (int32_t)3);
    store_i32x16(z + 32, others_2_0 * (int32_t)3);
  }
}

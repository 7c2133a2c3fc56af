// Expected of words.kernel.
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
KG_FN i32x16 load_i8x4_i32x16(const kg_word *p) {
  return *(const i32x16_u *)p;
}
KG_FN i32x16 load_u8x4_i32x16(const kg_word *p) {
  return *(const i32x16_u *)p;
}
KG_FN i32x16 load_i16x2_i32x16(const kg_word *p) {
  return *(const i32x16_u *)p;
}
KG_FN void store_i32x16(int32_t *p, i32x16 v) {
  *(i32x16_u *)p = v;
}
KG_FN void store_i16x2_i32x16(kg_word *p, i32x16 v) {
  *(i32x16_u *)p = v;
}
KG_FN i32x16 dot2_i32x16(i32x16 sum, i32x16 a, i32x16 b) {
  return sum + (i32x16)_mm512_madd_epi16((__m512i)a, (__m512i)b);
}
KG_FN i32x16 add_pairs_i32x16(i32x16 a, i32x16 b) {
  typedef uint16_t integers __attribute__((vector_size(64)));
  return (i32x16)((integers)a + (integers)b);
}
KG_FN i32x16 sub_pairs_i32x16(i32x16 a, i32x16 b) {
  typedef uint16_t integers __attribute__((vector_size(64)));
  return (i32x16)((integers)a - (integers)b);
}

void words_p0(const kg_word *restrict x, const kg_word *restrict s, const kg_word *restrict w, int32_t *restrict y, kg_word *restrict z, unsigned char *restrict ws, int64_t worker, int64_t begin, int64_t end);

void words_p0(const kg_word *restrict x, const kg_word *restrict s, const kg_word *restrict w, int32_t *restrict y, kg_word *restrict z, unsigned char *restrict ws, int64_t worker, int64_t begin, int64_t end) {
  (void)ws; (void)worker;
  for (int64_t i = begin; i < end; i++) {
    i32x16 r_16 = {0};
    const kg_word *const x_p = x + i * 16;
    const kg_word *const w_p = w + i * 16;
    const kg_word *const s_p = s + i * 16;
    r_16 = dot2_i32x16(dot2_i32x16(splat_i32x16(0), (load_u8x4_i32x16(x_p) & 0x00ff00ff), load_i16x2_i32x16(w_p)), ((load_i8x4_i32x16(s_p) << 16 >> 24 & 0xffff) | load_i8x4_i32x16(s_p) >> 24 << 16), load_i16x2_i32x16(w_p));
    store_i32x16(y + i * 16, (r_16 >> 2));
    store_i16x2_i32x16(z + i * 16, sub_pairs_i32x16(load_i16x2_i32x16(w_p), add_pairs_i32x16((load_u8x4_i32x16(x_p) >> 8 & 0x00ff00ff), ((load_i8x4_i32x16(s_p) << 24 >> 24 & 0xffff) | load_i8x4_i32x16(s_p) << 8 >> 24 << 16))));
  }
}

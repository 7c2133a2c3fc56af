// Expected of words.kernel.
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
KG_FN i32x4 load_i8x4_i32x4(const kg_word *p) {
  return *(const i32x4_u *)p;
}
KG_FN i32x4 load_u8x4_i32x4(const kg_word *p) {
  return *(const i32x4_u *)p;
}
KG_FN i32x4 load_i16x2_i32x4(const kg_word *p) {
  return *(const i32x4_u *)p;
}
KG_FN void store_i32x4(int32_t *p, i32x4 v) {
  *(i32x4_u *)p = v;
}
KG_FN void store_i16x2_i32x4(kg_word *p, i32x4 v) {
  *(i32x4_u *)p = v;
}
KG_FN i32x4 dot2_i32x4(i32x4 sum, i32x4 a, i32x4 b) {
  typedef uint32_t integers __attribute__((vector_size(16)));
  return (i32x4)((integers)sum + (integers)((a << 16 >> 16) * (b << 16 >> 16)) +
    (integers)((a >> 16) * (b >> 16)));
}
KG_FN i32x4 add_pairs_i32x4(i32x4 a, i32x4 b) {
  typedef uint16_t integers __attribute__((vector_size(16)));
  return (i32x4)((integers)a + (integers)b);
}
KG_FN i32x4 sub_pairs_i32x4(i32x4 a, i32x4 b) {
  typedef uint16_t integers __attribute__((vector_size(16)));
  return (i32x4)((integers)a - (integers)b);
}

void words_p0(const kg_word *restrict x, const kg_word *restrict s, const kg_word *restrict w, int32_t *restrict y, kg_word *restrict z, unsigned char *restrict ws, int64_t worker, int64_t begin, int64_t end);

void words_p0(const kg_word *restrict x, const kg_word *restrict s, const kg_word *restrict w, int32_t *restrict y, kg_word *restrict z, unsigned char *restrict ws, int64_t worker, int64_t begin, int64_t end) {
  (void)ws; (void)worker;
  for (int64_t i = begin; i < end; i++) {
    i32x4 r_16 = {0}, r_20 = {0}, r_24 = {0}, r_28 = {0};
    const kg_word *const x_p = x + i * 16;
    const kg_word *const w_p = w + i * 16;
    const kg_word *const s_p = s + i * 16;
    int32_t *const y_p = y + i * 16;
    kg_word *const z_p = z + i * 16;
    r_16 = dot2_i32x4(dot2_i32x4(splat_i32x4(0), (load_u8x4_i32x4(x_p) & 0x00ff00ff), load_i16x2_i32x4(w_p)), ((load_i8x4_i32x4(s_p) << 16 >> 24 & 0xffff) | load_i8x4_i32x4(s_p) >> 24 << 16), load_i16x2_i32x4(w_p));
    r_20 = dot2_i32x4(dot2_i32x4(splat_i32x4(0), (load_u8x4_i32x4(x_p + 4) & 0x00ff00ff), load_i16x2_i32x4(w_p + 4)), ((load_i8x4_i32x4(s_p + 4) << 16 >> 24 & 0xffff) | load_i8x4_i32x4(s_p + 4) >> 24 << 16), load_i16x2_i32x4(w_p + 4));
    r_24 = dot2_i32x4(dot2_i32x4(splat_i32x4(0), (load_u8x4_i32x4(x_p + 8) & 0x00ff00ff), load_i16x2_i32x4(w_p + 8)), ((load_i8x4_i32x4(s_p + 8) << 16 >> 24 & 0xffff) | load_i8x4_i32x4(s_p + 8) >> 24 << 16), load_i16x2_i32x4(w_p + 8));
    r_28 = dot2_i32x4(dot2_i32x4(splat_i32x4(0), (load_u8x4_i32x4(x_p + 12) & 0x00ff00ff), load_i16x2_i32x4(w_p + 12)), ((load_i8x4_i32x4(s_p + 12) << 16 >> 24 & 0xffff) | load_i8x4_i32x4(s_p + 12) >> 24 << 16), load_i16x2_i32x4(w_p + 12));
    store_i32x4(y_p, (r_16 >> 2));
    store_i32x4(y_p + 4, (r_20 >> 2));
    store_i32x4(y_p + 8, (r_24 >> 2));
    store_i32x4(y_p + 12, (r_28 >> 2));
    store_i16x2_i32x4(z_p, sub_pairs_i32x4(load_i16x2_i32x4(w_p), add_pairs_i32x4((load_u8x4_i32x4(x_p) >> 8 & 0x00ff00ff), ((load_i8x4_i32x4(s_p) << 24 >> 24 & 0xffff) | load_i8x4_i32x4(s_p) << 8 >> 24 << 16))));
    store_i16x2_i32x4(z_p + 4, sub_pairs_i32x4(load_i16x2_i32x4(w_p + 4), add_pairs_i32x4((load_u8x4_i32x4(x_p + 4) >> 8 & 0x00ff00ff), ((load_i8x4_i32x4(s_p + 4) << 24 >> 24 & 0xffff) | load_i8x4_i32x4(s_p + 4) << 8 >> 24 << 16))));
    store_i16x2_i32x4(z_p + 8, sub_pairs_i32x4(load_i16x2_i32x4(w_p + 8), add_pairs_i32x4((load_u8x4_i32x4(x_p + 8) >> 8 & 0x00ff00ff), ((load_i8x4_i32x4(s_p + 8) << 24 >> 24 & 0xffff) | load_i8x4_i32x4(s_p + 8) << 8 >> 24 << 16))));
    store_i16x2_i32x4(z_p + 12, sub_pairs_i32x4(load_i16x2_i32x4(w_p + 12), add_pairs_i32x4((load_u8x4_i32x4(x_p + 12) >> 8 & 0x00ff00ff), ((load_i8x4_i32x4(s_p + 12) << 24 >> 24 & 0xffff) | load_i8x4_i32x4(s_p + 12) << 8 >> 24 << 16))));
  }
}

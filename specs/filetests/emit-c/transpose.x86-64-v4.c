// Expected of transpose.kernel.
// x86-64-v4; workspace 0 bytes and 0 a worker
#include <stddef.h>
#include <stdint.h>
#include <immintrin.h>

#define KG_FN static inline __attribute__((always_inline, unused))

typedef float f32x16 __attribute__((vector_size(64)));
typedef float f32x16_u __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t i32x16 __attribute__((vector_size(64)));
typedef int32_t i32x16_u __attribute__((vector_size(64), aligned(4), may_alias));
KG_FN f32x16 load_f32x16(const float *p) {
  return *(const f32x16_u *)p;
}
KG_FN void store_part_f32x16(float *p, f32x16 v, int n) {
  _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1u), (__m512)v);
}
KG_FN void swap8_f32x16(f32x16 *a, f32x16 *b) {
  const f32x16 x = *a, y = *b;
#ifdef __clang__
  *a = __builtin_shufflevector(x, y, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23);
  *b = __builtin_shufflevector(x, y, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
#else
  *a = __builtin_shuffle(x, y, (i32x16){0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23});
  *b = __builtin_shuffle(x, y, (i32x16){8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31});
#endif
}
KG_FN void swap4_f32x16(f32x16 *a, f32x16 *b) {
  const f32x16 x = *a, y = *b;
#ifdef __clang__
  *a = __builtin_shufflevector(x, y, 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27);
  *b = __builtin_shufflevector(x, y, 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31);
#else
  *a = __builtin_shuffle(x, y, (i32x16){0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27});
  *b = __builtin_shuffle(x, y, (i32x16){4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31});
#endif
}
KG_FN void swap2_f32x16(f32x16 *a, f32x16 *b) {
  const f32x16 x = *a, y = *b;
#ifdef __clang__
  *a = __builtin_shufflevector(x, y, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
  *b = __builtin_shufflevector(x, y, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
#else
  *a = __builtin_shuffle(x, y, (i32x16){0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29});
  *b = __builtin_shuffle(x, y, (i32x16){2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31});
#endif
}
KG_FN void swap1_f32x16(f32x16 *a, f32x16 *b) {
  const f32x16 x = *a, y = *b;
#ifdef __clang__
  *a = __builtin_shufflevector(x, y, 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30);
  *b = __builtin_shufflevector(x, y, 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31);
#else
  *a = __builtin_shuffle(x, y, (i32x16){0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30});
  *b = __builtin_shuffle(x, y, (i32x16){1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31});
#endif
}
KG_FN void transpose_f32x16(f32x16 *r) {
  swap8_f32x16(r + 0, r + 8); swap8_f32x16(r + 1, r + 9); swap8_f32x16(r + 2, r + 10); swap8_f32x16(r + 3, r + 11);
  swap8_f32x16(r + 4, r + 12); swap8_f32x16(r + 5, r + 13); swap8_f32x16(r + 6, r + 14); swap8_f32x16(r + 7, r + 15);
  swap4_f32x16(r + 0, r + 4); swap4_f32x16(r + 1, r + 5); swap4_f32x16(r + 2, r + 6); swap4_f32x16(r + 3, r + 7);
  swap4_f32x16(r + 8, r + 12); swap4_f32x16(r + 9, r + 13); swap4_f32x16(r + 10, r + 14); swap4_f32x16(r + 11, r + 15);
  swap2_f32x16(r + 0, r + 2); swap2_f32x16(r + 1, r + 3); swap2_f32x16(r + 4, r + 6); swap2_f32x16(r + 5, r + 7);
  swap2_f32x16(r + 8, r + 10); swap2_f32x16(r + 9, r + 11); swap2_f32x16(r + 12, r + 14); swap2_f32x16(r + 13, r + 15);
  swap1_f32x16(r + 0, r + 1); swap1_f32x16(r + 2, r + 3); swap1_f32x16(r + 4, r + 5); swap1_f32x16(r + 6, r + 7);
  swap1_f32x16(r + 8, r + 9); swap1_f32x16(r + 10, r + 11); swap1_f32x16(r + 12, r + 13); swap1_f32x16(r + 14, r + 15);
}

void turn_p0(const float *restrict x, float *restrict y, unsigned char *restrict ws, int64_t worker, int64_t begin, int64_t end);

void turn_p0(const float *restrict x, float *restrict y, unsigned char *restrict ws, int64_t worker, int64_t begin, int64_t end) {
  (void)ws; (void)worker; (void)begin; (void)end;
  {
    f32x16 rows[16] = {
      load_f32x16(x),
      load_f32x16(x + 16),
      load_f32x16(x + 32),
      load_f32x16(x + 48),
      load_f32x16(x + 64),
      load_f32x16(x + 80),
      load_f32x16(x + 96),
      load_f32x16(x + 112),
      load_f32x16(x + 128),
      load_f32x16(x + 144),
      load_f32x16(x + 160),
      load_f32x16(x + 176),
      load_f32x16(x + 192),
      load_f32x16(x + 208),
    };
    transpose_f32x16(rows);
    store_part_f32x16(y, rows[0], 14);
    store_part_f32x16(y + 14, rows[1], 14);
    store_part_f32x16(y + 28, rows[2], 14);
    store_part_f32x16(y + 42, rows[3], 14);
    store_part_f32x16(y + 56, rows[4], 14);
    store_part_f32x16(y + 70, rows[5], 14);
    store_part_f32x16(y + 84, rows[6], 14);
    store_part_f32x16(y + 98, rows[7], 14);
    store_part_f32x16(y + 112, rows[8], 14);
    store_part_f32x16(y + 126, rows[9], 14);
    store_part_f32x16(y + 140, rows[10], 14);
    store_part_f32x16(y + 154, rows[11], 14);
    store_part_f32x16(y + 168, rows[12], 14);
    store_part_f32x16(y + 182, rows[13], 14);
    store_part_f32x16(y + 196, rows[14], 14);
    store_part_f32x16(y + 210, rows[15], 14);
  }
}

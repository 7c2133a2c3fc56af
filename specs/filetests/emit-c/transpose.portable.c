// Expected of transpose.kernel.
// portable; workspace 0 bytes and 0 a worker
#include <stddef.h>
#include <stdint.h>

#define KG_FN static inline __attribute__((always_inline, unused))

typedef float f32x4 __attribute__((vector_size(16)));
typedef float f32x4_u __attribute__((vector_size(16), aligned(4), may_alias));
typedef int32_t i32x4 __attribute__((vector_size(16)));
typedef int32_t i32x4_u __attribute__((vector_size(16), aligned(4), may_alias));
KG_FN f32x4 load_f32x4(const float *p) {
  return *(const f32x4_u *)p;
}
KG_FN void store_f32x4(float *p, f32x4 v) {
  *(f32x4_u *)p = v;
}
KG_FN void store_part_f32x4(float *p, f32x4 v, int n) {
  __builtin_memcpy(p, &v, (size_t)n * 4);
}
KG_FN void swap2_f32x4(f32x4 *a, f32x4 *b) {
  const f32x4 x = *a, y = *b;
#ifdef __clang__
  *a = __builtin_shufflevector(x, y, 0, 1, 4, 5);
  *b = __builtin_shufflevector(x, y, 2, 3, 6, 7);
#else
  *a = __builtin_shuffle(x, y, (i32x4){0, 1, 4, 5});
  *b = __builtin_shuffle(x, y, (i32x4){2, 3, 6, 7});
#endif
}
KG_FN void swap1_f32x4(f32x4 *a, f32x4 *b) {
  const f32x4 x = *a, y = *b;
#ifdef __clang__
  *a = __builtin_shufflevector(x, y, 0, 4, 2, 6);
  *b = __builtin_shufflevector(x, y, 1, 5, 3, 7);
#else
  *a = __builtin_shuffle(x, y, (i32x4){0, 4, 2, 6});
  *b = __builtin_shuffle(x, y, (i32x4){1, 5, 3, 7});
#endif
}
KG_FN void transpose_f32x4(f32x4 *r) {
  swap2_f32x4(r + 0, r + 2); swap2_f32x4(r + 1, r + 3);
  swap1_f32x4(r + 0, r + 1); swap1_f32x4(r + 2, r + 3);
}

void turn_p0(const float *restrict x, float *restrict y, unsigned char *restrict ws, int64_t worker, int64_t begin, int64_t end);

void turn_p0(const float *restrict x, float *restrict y, unsigned char *restrict ws, int64_t worker, int64_t begin, int64_t end) {
  (void)ws; (void)worker; (void)begin; (void)end;
  {
    f32x4 rows[4] = {
      load_f32x4(x),
      load_f32x4(x + 16),
      load_f32x4(x + 32),
      load_f32x4(x + 48),
    };
    transpose_f32x4(rows);
    store_f32x4(y, rows[0]);
    store_f32x4(y + 14, rows[1]);
    store_f32x4(y + 28, rows[2]);
    store_f32x4(y + 42, rows[3]);
  }
  {
    f32x4 rows_1[4] = {
      load_f32x4(x + 64),
      load_f32x4(x + 80),
      load_f32x4(x + 96),
      load_f32x4(x + 112),
    };
    transpose_f32x4(rows_1);
    store_f32x4(y + 4, rows_1[0]);
    store_f32x4(y + 18, rows_1[1]);
    store_f32x4(y + 32, rows_1[2]);
    store_f32x4(y + 46, rows_1[3]);
  }
  {
    f32x4 rows_2[4] = {
      load_f32x4(x + 128),
      load_f32x4(x + 144),
      load_f32x4(x + 160),
      load_f32x4(x + 176),
    };
    transpose_f32x4(rows_2);
    store_f32x4(y + 8, rows_2[0]);
    store_f32x4(y + 22, rows_2[1]);
    store_f32x4(y + 36, rows_2[2]);
    store_f32x4(y + 50, rows_2[3]);
  }
  {
    f32x4 rows_3[4] = {
      load_f32x4(x + 192),
      load_f32x4(x + 208),
    };
    transpose_f32x4(rows_3);
    store_part_f32x4(y + 12, rows_3[0], 2);
    store_part_f32x4(y + 26, rows_3[1], 2);
    store_part_f32x4(y + 40, rows_3[2], 2);
    store_part_f32x4(y + 54, rows_3[3], 2);
  }
  {
    f32x4 rows_4[4] = {
      load_f32x4(x + 4),
      load_f32x4(x + 20),
      load_f32x4(x + 36),
      load_f32x4(x + 52),
    };
    transpose_f32x4(rows_4);
    store_f32x4(y + 56, rows_4[0]);
    store_f32x4(y + 70, rows_4[1]);
    store_f32x4(y + 84, rows_4[2]);
    store_f32x4(y + 98, rows_4[3]);
  }
  {
    f32x4 rows_5[4] = {
      load_f32x4(x + 68),
      load_f32x4(x + 84),
      load_f32x4(x + 100),
      load_f32x4(x + 116),
    };
    transpose_f32x4(rows_5);
    store_f32x4(y + 60, rows_5[0]);
    store_f32x4(y + 74, rows_5[1]);
    store_f32x4(y + 88, rows_5[2]);
    store_f32x4(y + 102, rows_5[3]);
  }
  {
    f32x4 rows_6[4] = {
      load_f32x4(x + 132),
      load_f32x4(x + 148),
      load_f32x4(x + 164),
      load_f32x4(x + 180),
    };
    transpose_f32x4(rows_6);
    store_f32x4(y + 64, rows_6[0]);
    store_f32x4(y + 78, rows_6[1]);
    store_f32x4(y + 92, rows_6[2]);
    store_f32x4(y + 106, rows_6[3]);
  }
  {
    f32x4 rows_7[4] = {
      load_f32x4(x + 196),
      load_f32x4(x + 212),
    };
    transpose_f32x4(rows_7);
    store_part_f32x4(y + 68, rows_7[0], 2);
    store_part_f32x4(y + 82, rows_7[1], 2);
    store_part_f32x4(y + 96, rows_7[2], 2);
    store_part_f32x4(y + 110, rows_7[3], 2);
  }
  {
    f32x4 rows_8[4] = {
      load_f32x4(x + 8),
      load_f32x4(x + 24),
      load_f32x4(x + 40),
      load_f32x4(x + 56),
    };
    transpose_f32x4(rows_8);
    store_f32x4(y + 112, rows_8[0]);
    store_f32x4(y + 126, rows_8[1]);
    store_f32x4(y + 140, rows_8[2]);
    store_f32x4(y + 154, rows_8[3]);
  }
  {
    f32x4 rows_9[4] = {
      load_f32x4(x + 72),
      load_f32x4(x + 88),
      load_f32x4(x + 104),
      load_f32x4(x + 120),
    };
    transpose_f32x4(rows_9);
    store_f32x4(y + 116, rows_9[0]);
    store_f32x4(y + 130, rows_9[1]);
    store_f32x4(y + 144, rows_9[2]);
    store_f32x4(y + 158, rows_9[3]);
  }
  {
    f32x4 rows_10[4] = {
      load_f32x4(x + 136),
      load_f32x4(x + 152),
      load_f32x4(x + 168),
      load_f32x4(x + 184),
    };
    transpose_f32x4(rows_10);
    store_f32x4(y + 120, rows_10[0]);
    store_f32x4(y + 134, rows_10[1]);
    store_f32x4(y + 148, rows_10[2]);
    store_f32x4(y + 162, rows_10[3]);
  }
  {
    f32x4 rows_11[4] = {
      load_f32x4(x + 200),
      load_f32x4(x + 216),
    };
    transpose_f32x4(rows_11);
    store_part_f32x4(y + 124, rows_11[0], 2);
    store_part_f32x4(y + 138, rows_11[1], 2);
    store_part_f32x4(y + 152, rows_11[2], 2);
    store_part_f32x4(y + 166, rows_11[3], 2);
  }
  {
    f32x4 rows_12[4] = {
      load_f32x4(x + 12),
      load_f32x4(x + 28),
      load_f32x4(x + 44),
      load_f32x4(x + 60),
    };
    transpose_f32x4(rows_12);
    store_f32x4(y + 168, rows_12[0]);
    store_f32x4(y + 182, rows_12[1]);
    store_f32x4(y + 196, rows_12[2]);
    store_f32x4(y + 210, rows_12[3]);
  }
  {
    f32x4 rows_13[4] = {
      load_f32x4(x + 76),
      load_f32x4(x + 92),
      load_f32x4(x + 108),
      load_f32x4(x + 124),
    };
    transpose_f32x4(rows_13);
    store_f32x4(y + 172, rows_13[0]);
    store_f32x4(y + 186, rows_13[1]);
    store_f32x4(y + 200, rows_13[2]);
    store_f32x4(y + 214, rows_13[3]);
  }
  {
    f32x4 rows_14[4] = {
      load_f32x4(x + 140),
      load_f32x4(x + 156),
      load_f32x4(x + 172),
      load_f32x4(x + 188),
    };
    transpose_f32x4(rows_14);
    store_f32x4(y + 176, rows_14[0]);
    store_f32x4(y + 190, rows_14[1]);
    store_f32x4(y + 204, rows_14[2]);
    store_f32x4(y + 218, rows_14[3]);
  }
  {
    f32x4 rows_15[4] = {
      load_f32x4(x + 204),
      load_f32x4(x + 220),
    };
    transpose_f32x4(rows_15);
    store_part_f32x4(y + 180, rows_15[0], 2);
    store_part_f32x4(y + 194, rows_15[1], 2);
    store_part_f32x4(y + 208, rows_15[2], 2);
    store_part_f32x4(y + 222, rows_15[3], 2);
  }
}

// Expected of matmul-tile.kernel.
// portable; workspace 0 bytes and 0 a worker
#include <stddef.h>
#include <stdint.h>

#define KG_FN static inline __attribute__((always_inline, unused))

#define KG_PRAGMA(x) _Pragma(#x)
#ifdef __clang__
#define KG_UNROLL(n) KG_PRAGMA(unroll n)
#else
#define KG_UNROLL(n) KG_PRAGMA(GCC unroll n)
#endif

typedef float f32x4 __attribute__((vector_size(16)));
typedef float f32x4_u __attribute__((vector_size(16), aligned(4), may_alias));
typedef int32_t i32x4 __attribute__((vector_size(16)));
typedef int32_t i32x4_u __attribute__((vector_size(16), aligned(4), may_alias));
KG_FN f32x4 splat_f32x4(float x) {
  return (f32x4){x, x, x, x};
}
KG_FN f32x4 load_f32x4(const float *p) {
  return *(const f32x4_u *)p;
}
KG_FN f32x4 load_part_f32x4(const float *p, int n) {
  f32x4 v = {0};
  __builtin_memcpy(&v, p, (size_t)n * 4);
  return v;
}
KG_FN void store_f32x4(float *p, f32x4 v) {
  *(f32x4_u *)p = v;
}
KG_FN void store_part_f32x4(float *p, f32x4 v, int n) {
  __builtin_memcpy(p, &v, (size_t)n * 4);
}
KG_FN f32x4 max_f32x4(f32x4 a, f32x4 b) {
  i32x4 pick = (i32x4)(b > a) | (i32x4)(b != b);
  return (f32x4)((pick & (i32x4)b) | (~pick & (i32x4)a));
}

void matmul_tile_p0(const float *restrict a, const float *restrict b, const float *restrict bias, float *restrict c, unsigned char *restrict ws, int64_t worker, int64_t begin, int64_t end);

void matmul_tile_p0(const float *restrict a, const float *restrict b, const float *restrict bias, float *restrict c, unsigned char *restrict ws, int64_t worker, int64_t begin, int64_t end) {
  (void)ws; (void)worker;
  for (int64_t i_o = begin; i_o < end; i_o++) {
    if (i_o < 2) {
      f32x4 acc_0_0, acc_0_4, acc_0_8, acc_0_12, acc_0_16, acc_0_20, acc_1_0, acc_1_4;
      f32x4 acc_1_8, acc_1_12, acc_1_16, acc_1_20, acc_2_0, acc_2_4, acc_2_8, acc_2_12;
      f32x4 acc_2_16, acc_2_20, acc_3_0, acc_3_4, acc_3_8, acc_3_12, acc_3_16, acc_3_20;
      acc_0_0 = splat_f32x4(0.0f);
      acc_0_4 = splat_f32x4(0.0f);
      acc_0_8 = splat_f32x4(0.0f);
      acc_0_12 = splat_f32x4(0.0f);
      acc_0_16 = splat_f32x4(0.0f);
      acc_0_20 = splat_f32x4(0.0f);
      acc_1_0 = splat_f32x4(0.0f);
      acc_1_4 = splat_f32x4(0.0f);
      acc_1_8 = splat_f32x4(0.0f);
      acc_1_12 = splat_f32x4(0.0f);
      acc_1_16 = splat_f32x4(0.0f);
      acc_1_20 = splat_f32x4(0.0f);
      acc_2_0 = splat_f32x4(0.0f);
      acc_2_4 = splat_f32x4(0.0f);
      acc_2_8 = splat_f32x4(0.0f);
      acc_2_12 = splat_f32x4(0.0f);
      acc_2_16 = splat_f32x4(0.0f);
      acc_2_20 = splat_f32x4(0.0f);
      acc_3_0 = splat_f32x4(0.0f);
      acc_3_4 = splat_f32x4(0.0f);
      acc_3_8 = splat_f32x4(0.0f);
      acc_3_12 = splat_f32x4(0.0f);
      acc_3_16 = splat_f32x4(0.0f);
      acc_3_20 = splat_f32x4(0.0f);
      KG_UNROLL(1)
      for (int64_t k = 0; k < 40; k++) {
        const float *const a_p = a + i_o * 160 + k;
        const float *const b_p = b + k * 23;
        acc_0_0 += a_p[0] * load_f32x4(b_p);
        acc_0_4 += a_p[0] * load_f32x4(b_p + 4);
        acc_0_8 += a_p[0] * load_f32x4(b_p + 8);
        acc_0_12 += a_p[0] * load_f32x4(b_p + 12);
        acc_0_16 += a_p[0] * load_f32x4(b_p + 16);
        acc_0_20 += a_p[0] * load_part_f32x4(b_p + 20, 3);
        acc_1_0 += a_p[40] * load_f32x4(b_p);
        acc_1_4 += a_p[40] * load_f32x4(b_p + 4);
        acc_1_8 += a_p[40] * load_f32x4(b_p + 8);
        acc_1_12 += a_p[40] * load_f32x4(b_p + 12);
        acc_1_16 += a_p[40] * load_f32x4(b_p + 16);
        acc_1_20 += a_p[40] * load_part_f32x4(b_p + 20, 3);
        acc_2_0 += a_p[80] * load_f32x4(b_p);
        acc_2_4 += a_p[80] * load_f32x4(b_p + 4);
        acc_2_8 += a_p[80] * load_f32x4(b_p + 8);
        acc_2_12 += a_p[80] * load_f32x4(b_p + 12);
        acc_2_16 += a_p[80] * load_f32x4(b_p + 16);
        acc_2_20 += a_p[80] * load_part_f32x4(b_p + 20, 3);
        acc_3_0 += a_p[120] * load_f32x4(b_p);
        acc_3_4 += a_p[120] * load_f32x4(b_p + 4);
        acc_3_8 += a_p[120] * load_f32x4(b_p + 8);
        acc_3_12 += a_p[120] * load_f32x4(b_p + 12);
        acc_3_16 += a_p[120] * load_f32x4(b_p + 16);
        acc_3_20 += a_p[120] * load_part_f32x4(b_p + 20, 3);
      }
      float *const c_p = c + i_o * 92;
      store_f32x4(c_p, max_f32x4(acc_0_0 + load_f32x4(bias), splat_f32x4(0.0f)));
      store_f32x4(c_p + 4, max_f32x4(acc_0_4 + load_f32x4(bias + 4), splat_f32x4(0.0f)));
      store_f32x4(c_p + 8, max_f32x4(acc_0_8 + load_f32x4(bias + 8), splat_f32x4(0.0f)));
      store_f32x4(c_p + 12, max_f32x4(acc_0_12 + load_f32x4(bias + 12), splat_f32x4(0.0f)));
      store_f32x4(c_p + 16, max_f32x4(acc_0_16 + load_f32x4(bias + 16), splat_f32x4(0.0f)));
      store_part_f32x4(c_p + 20, max_f32x4(acc_0_20 + load_part_f32x4(bias + 20, 3), splat_f32x4(0.0f)), 3);
      store_f32x4(c_p + 23, max_f32x4(acc_1_0 + load_f32x4(bias), splat_f32x4(0.0f)));
      store_f32x4(c_p + 27, max_f32x4(acc_1_4 + load_f32x4(bias + 4), splat_f32x4(0.0f)));
      store_f32x4(c_p + 31, max_f32x4(acc_1_8 + load_f32x4(bias + 8), splat_f32x4(0.0f)));
      store_f32x4(c_p + 35, max_f32x4(acc_1_12 + load_f32x4(bias + 12), splat_f32x4(0.0f)));
      store_f32x4(c_p + 39, max_f32x4(acc_1_16 + load_f32x4(bias + 16), splat_f32x4(0.0f)));
      store_part_f32x4(c_p + 43, max_f32x4(acc_1_20 + load_part_f32x4(bias + 20, 3), splat_f32x4(0.0f)), 3);
      store_f32x4(c_p + 46, max_f32x4(acc_2_0 + load_f32x4(bias), splat_f32x4(0.0f)));
      store_f32x4(c_p + 50, max_f32x4(acc_2_4 + load_f32x4(bias + 4), splat_f32x4(0.0f)));
      store_f32x4(c_p + 54, max_f32x4(acc_2_8 + load_f32x4(bias + 8), splat_f32x4(0.0f)));
      store_f32x4(c_p + 58, max_f32x4(acc_2_12 + load_f32x4(bias + 12), splat_f32x4(0.0f)));
      store_f32x4(c_p + 62, max_f32x4(acc_2_16 + load_f32x4(bias + 16), splat_f32x4(0.0f)));
      store_part_f32x4(c_p + 66, max_f32x4(acc_2_20 + load_part_f32x4(bias + 20, 3), splat_f32x4(0.0f)), 3);
      store_f32x4(c_p + 69, max_f32x4(acc_3_0 + load_f32x4(bias), splat_f32x4(0.0f)));
      store_f32x4(c_p + 73, max_f32x4(acc_3_4 + load_f32x4(bias + 4), splat_f32x4(0.0f)));
      store_f32x4(c_p + 77, max_f32x4(acc_3_8 + load_f32x4(bias + 8), splat_f32x4(0.0f)));
      store_f32x4(c_p + 81, max_f32x4(acc_3_12 + load_f32x4(bias + 12), splat_f32x4(0.0f)));
      store_f32x4(c_p + 85, max_f32x4(acc_3_16 + load_f32x4(bias + 16), splat_f32x4(0.0f)));
      store_part_f32x4(c_p + 89, max_f32x4(acc_3_20 + load_part_f32x4(bias + 20, 3), splat_f32x4(0.0f)), 3);
    } else {
      f32x4 acc_1_0_1, acc_1_4_1, acc_1_8_1, acc_1_12_1, acc_1_16_1, acc_1_20_1;
      acc_1_0_1 = splat_f32x4(0.0f);
      acc_1_4_1 = splat_f32x4(0.0f);
      acc_1_8_1 = splat_f32x4(0.0f);
      acc_1_12_1 = splat_f32x4(0.0f);
      acc_1_16_1 = splat_f32x4(0.0f);
      acc_1_20_1 = splat_f32x4(0.0f);
      KG_UNROLL(1)
      for (int64_t k_1 = 0; k_1 < 40; k_1++) {
        const float *const b_p_1 = b + k_1 * 23;
        acc_1_0_1 += a[k_1 + 320] * load_f32x4(b_p_1);
        acc_1_4_1 += a[k_1 + 320] * load_f32x4(b_p_1 + 4);
        acc_1_8_1 += a[k_1 + 320] * load_f32x4(b_p_1 + 8);
        acc_1_12_1 += a[k_1 + 320] * load_f32x4(b_p_1 + 12);
        acc_1_16_1 += a[k_1 + 320] * load_f32x4(b_p_1 + 16);
        acc_1_20_1 += a[k_1 + 320] * load_part_f32x4(b_p_1 + 20, 3);
      }
      store_f32x4(c + 184, max_f32x4(acc_1_0_1 + load_f32x4(bias), splat_f32x4(0.0f)));
      store_f32x4(c + 188, max_f32x4(acc_1_4_1 + load_f32x4(bias + 4), splat_f32x4(0.0f)));
      store_f32x4(c + 192, max_f32x4(acc_1_8_1 + load_f32x4(bias + 8), splat_f32x4(0.0f)));
      store_f32x4(c + 196, max_f32x4(acc_1_12_1 + load_f32x4(bias + 12), splat_f32x4(0.0f)));
      store_f32x4(c + 200, max_f32x4(acc_1_16_1 + load_f32x4(bias + 16), splat_f32x4(0.0f)));
      store_part_f32x4(c + 204, max_f32x4(acc_1_20_1 + load_part_f32x4(bias + 20, 3), splat_f32x4(0.0f)), 3);
    }
  }
}

// Expected of far-rows.kernel.
// x86-64-v4; workspace 0 bytes and 0 a worker
#include <stddef.h>
#include <stdint.h>

#define KG_FN static inline __attribute__((always_inline, unused))

#define KG_PRAGMA(x) _Pragma(#x)
#ifdef __clang__
#define KG_UNROLL(n) KG_PRAGMA(unroll n)
#else
#define KG_UNROLL(n) KG_PRAGMA(GCC unroll n)
#endif

#define KG_FETCH(p, i) __builtin_prefetch((const void *)((uintptr_t)(p) + sizeof *(p) * (size_t)(i)))

typedef float f32x16 __attribute__((vector_size(64)));
typedef float f32x16_u __attribute__((vector_size(64), aligned(4), may_alias));
KG_FN f32x16 splat_f32x16(float x) {
  return (f32x16){x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x};
}
KG_FN f32x16 load_f32x16(const float *p) {
  return *(const f32x16_u *)p;
}
KG_FN void store_f32x16(float *p, f32x16 v) {
  *(f32x16_u *)p = v;
}

void planes_p0(const float *restrict x, const float *restrict w, const float *restrict s, float *restrict y, unsigned char *restrict ws, int64_t worker, int64_t begin, int64_t end);

void planes_p0(const float *restrict x, const float *restrict w, const float *restrict s, float *restrict y, unsigned char *restrict ws, int64_t worker, int64_t begin, int64_t end) {
  (void)ws; (void)worker;
  for (int64_t task = begin; task < end; task++) {
    f32x16 acc_0_0, acc_0_16, acc_1_0, acc_1_16, acc_2_0, acc_2_16, acc_3_0, acc_3_16;
    f32x16 acc_4_0, acc_4_16, acc_5_0, acc_5_16, acc_6_0, acc_6_16, acc_7_0, acc_7_16;
    f32x16 acc_8_0, acc_8_16, acc_9_0, acc_9_16, acc_10_0, acc_10_16, acc_11_0, acc_11_16;
    f32x16 acc_12_0, acc_12_16, acc_13_0, acc_13_16, acc_14_0, acc_14_16, acc_15_0, acc_15_16;
    acc_0_0 = splat_f32x16(0.0f);
    acc_0_16 = splat_f32x16(0.0f);
    acc_1_0 = splat_f32x16(0.0f);
    acc_1_16 = splat_f32x16(0.0f);
    acc_2_0 = splat_f32x16(0.0f);
    acc_2_16 = splat_f32x16(0.0f);
    acc_3_0 = splat_f32x16(0.0f);
    acc_3_16 = splat_f32x16(0.0f);
    acc_4_0 = splat_f32x16(0.0f);
    acc_4_16 = splat_f32x16(0.0f);
    acc_5_0 = splat_f32x16(0.0f);
    acc_5_16 = splat_f32x16(0.0f);
    acc_6_0 = splat_f32x16(0.0f);
    acc_6_16 = splat_f32x16(0.0f);
    acc_7_0 = splat_f32x16(0.0f);
    acc_7_16 = splat_f32x16(0.0f);
    acc_8_0 = splat_f32x16(0.0f);
    acc_8_16 = splat_f32x16(0.0f);
    acc_9_0 = splat_f32x16(0.0f);
    acc_9_16 = splat_f32x16(0.0f);
    acc_10_0 = splat_f32x16(0.0f);
    acc_10_16 = splat_f32x16(0.0f);
    acc_11_0 = splat_f32x16(0.0f);
    acc_11_16 = splat_f32x16(0.0f);
    acc_12_0 = splat_f32x16(0.0f);
    acc_12_16 = splat_f32x16(0.0f);
    acc_13_0 = splat_f32x16(0.0f);
    acc_13_16 = splat_f32x16(0.0f);
    acc_14_0 = splat_f32x16(0.0f);
    acc_14_16 = splat_f32x16(0.0f);
    acc_15_0 = splat_f32x16(0.0f);
    acc_15_16 = splat_f32x16(0.0f);
    KG_UNROLL(1)
    for (int64_t ci = 0; ci < 64; ci++) {
      KG_FETCH(x, ci * 768 + task * 32 + 6144);
      KG_FETCH(x, ci * 768 + task * 32 + 6160);
      const float *const x_p = x + ci * 768 + task * 32;
      const float *const w_p = w + ci * 16;
      const float *const s_p = s + ci * 16;
      acc_0_0 += load_f32x16(x_p) * (w_p[0] + s_p[0]);
      acc_0_16 += load_f32x16(x_p + 16) * (w_p[0] + s_p[0]);
      acc_1_0 += load_f32x16(x_p) * (w_p[1] + s_p[1]);
      acc_1_16 += load_f32x16(x_p + 16) * (w_p[1] + s_p[1]);
      acc_2_0 += load_f32x16(x_p) * (w_p[2] + s_p[2]);
      acc_2_16 += load_f32x16(x_p + 16) * (w_p[2] + s_p[2]);
      acc_3_0 += load_f32x16(x_p) * (w_p[3] + s_p[3]);
      acc_3_16 += load_f32x16(x_p + 16) * (w_p[3] + s_p[3]);
      acc_4_0 += load_f32x16(x_p) * (w_p[4] + s_p[4]);
      acc_4_16 += load_f32x16(x_p + 16) * (w_p[4] + s_p[4]);
      acc_5_0 += load_f32x16(x_p) * (w_p[5] + s_p[5]);
      acc_5_16 += load_f32x16(x_p + 16) * (w_p[5] + s_p[5]);
      acc_6_0 += load_f32x16(x_p) * (w_p[6] + s_p[6]);
      acc_6_16 += load_f32x16(x_p + 16) * (w_p[6] + s_p[6]);
      acc_7_0 += load_f32x16(x_p) * (w_p[7] + s_p[7]);
      acc_7_16 += load_f32x16(x_p + 16) * (w_p[7] + s_p[7]);
      acc_8_0 += load_f32x16(x_p) * (w_p[8] + s_p[8]);
      acc_8_16 += load_f32x16(x_p + 16) * (w_p[8] + s_p[8]);
      acc_9_0 += load_f32x16(x_p) * (w_p[9] + s_p[9]);
      acc_9_16 += load_f32x16(x_p + 16) * (w_p[9] + s_p[9]);
      acc_10_0 += load_f32x16(x_p) * (w_p[10] + s_p[10]);
      acc_10_16 += load_f32x16(x_p + 16) * (w_p[10] + s_p[10]);
      acc_11_0 += load_f32x16(x_p) * (w_p[11] + s_p[11]);
      acc_11_16 += load_f32x16(x_p + 16) * (w_p[11] + s_p[11]);
      acc_12_0 += load_f32x16(x_p) * (w_p[12] + s_p[12]);
      acc_12_16 += load_f32x16(x_p + 16) * (w_p[12] + s_p[12]);
      acc_13_0 += load_f32x16(x_p) * (w_p[13] + s_p[13]);
      acc_13_16 += load_f32x16(x_p + 16) * (w_p[13] + s_p[13]);
      acc_14_0 += load_f32x16(x_p) * (w_p[14] + s_p[14]);
      acc_14_16 += load_f32x16(x_p + 16) * (w_p[14] + s_p[14]);
      acc_15_0 += load_f32x16(x_p) * (w_p[15] + s_p[15]);
      acc_15_16 += load_f32x16(x_p + 16) * (w_p[15] + s_p[15]);
    }
    float *const y_p = y + task * 32;
    store_f32x16(y_p, acc_0_0);
    store_f32x16(y_p + 16, acc_0_16);
    store_f32x16(y_p + 768, acc_1_0);
    store_f32x16(y_p + 784, acc_1_16);
    store_f32x16(y_p + 1536, acc_2_0);
    store_f32x16(y_p + 1552, acc_2_16);
    store_f32x16(y_p + 2304, acc_3_0);
    store_f32x16(y_p + 2320, acc_3_16);
    store_f32x16(y_p + 3072, acc_4_0);
    store_f32x16(y_p + 3088, acc_4_16);
    store_f32x16(y_p + 3840, acc_5_0);
    store_f32x16(y_p + 3856, acc_5_16);
    store_f32x16(y_p + 4608, acc_6_0);
    store_f32x16(y_p + 4624, acc_6_16);
    store_f32x16(y_p + 5376, acc_7_0);
    store_f32x16(y_p + 5392, acc_7_16);
    store_f32x16(y_p + 6144, acc_8_0);
    store_f32x16(y_p + 6160, acc_8_16);
    store_f32x16(y_p + 6912, acc_9_0);
    store_f32x16(y_p + 6928, acc_9_16);
    store_f32x16(y_p + 7680, acc_10_0);
    store_f32x16(y_p + 7696, acc_10_16);
    store_f32x16(y_p + 8448, acc_11_0);
    store_f32x16(y_p + 8464, acc_11_16);
    store_f32x16(y_p + 9216, acc_12_0);
    store_f32x16(y_p + 9232, acc_12_16);
    store_f32x16(y_p + 9984, acc_13_0);
    store_f32x16(y_p + 10000, acc_13_16);
    store_f32x16(y_p + 10752, acc_14_0);
    store_f32x16(y_p + 10768, acc_14_16);
    store_f32x16(y_p + 11520, acc_15_0);
    store_f32x16(y_p + 11536, acc_15_16);
  }
}

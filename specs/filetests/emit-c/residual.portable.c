// Expected of residual.kernel.
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

#define KG_FETCH(p, i) __builtin_prefetch((const void *)((uintptr_t)(p) + sizeof *(p) * (size_t)(i)))

typedef float f32x4 __attribute__((vector_size(16)));
typedef float f32x4_u __attribute__((vector_size(16), aligned(4), may_alias));
KG_FN f32x4 splat_f32x4(float x) {
  return (f32x4){x, x, x, x};
}
KG_FN f32x4 load_f32x4(const float *p) {
  return *(const f32x4_u *)p;
}
KG_FN void store_f32x4(float *p, f32x4 v) {
  *(f32x4_u *)p = v;
}

void expand_p0(const float *restrict a, const float *restrict w, const float *restrict bias, const float *restrict residual, float *restrict y, unsigned char *restrict ws, int64_t worker, int64_t begin, int64_t end);

void expand_p0(const float *restrict a, const float *restrict w, const float *restrict bias, const float *restrict residual, float *restrict y, unsigned char *restrict ws, int64_t worker, int64_t begin, int64_t end) {
  (void)ws; (void)worker;
  for (int64_t task = begin; task < end; task++) {
    f32x4 acc_0_0, acc_0_4, acc_0_8, acc_0_12, acc_1_0, acc_1_4, acc_1_8, acc_1_12;
    acc_0_0 = splat_f32x4(0.0f);
    acc_0_4 = splat_f32x4(0.0f);
    acc_0_8 = splat_f32x4(0.0f);
    acc_0_12 = splat_f32x4(0.0f);
    acc_1_0 = splat_f32x4(0.0f);
    acc_1_4 = splat_f32x4(0.0f);
    acc_1_8 = splat_f32x4(0.0f);
    acc_1_12 = splat_f32x4(0.0f);
    KG_FETCH(residual, task * 16);
    KG_FETCH(residual, task * 16 + 8192);
    KG_UNROLL(1)
    for (int64_t k = 0; k < 64; k++) {
      const float *const a_p = a + k * 8192 + task * 16;
      const float *const w_p = w + k * 2;
      acc_0_0 += load_f32x4(a_p) * w_p[0];
      acc_0_4 += load_f32x4(a_p + 4) * w_p[0];
      acc_0_8 += load_f32x4(a_p + 8) * w_p[0];
      acc_0_12 += load_f32x4(a_p + 12) * w_p[0];
      acc_1_0 += load_f32x4(a_p) * w_p[1];
      acc_1_4 += load_f32x4(a_p + 4) * w_p[1];
      acc_1_8 += load_f32x4(a_p + 8) * w_p[1];
      acc_1_12 += load_f32x4(a_p + 12) * w_p[1];
    }
    float *const y_p = y + task * 16;
    const float *const residual_p = residual + task * 16;
    store_f32x4(y_p, acc_0_0 + bias[0] + load_f32x4(residual_p));
    store_f32x4(y_p + 4, acc_0_4 + bias[0] + load_f32x4(residual_p + 4));
    store_f32x4(y_p + 8, acc_0_8 + bias[0] + load_f32x4(residual_p + 8));
    store_f32x4(y_p + 12, acc_0_12 + bias[0] + load_f32x4(residual_p + 12));
    store_f32x4(y_p + 8192, acc_1_0 + bias[1] + load_f32x4(residual_p + 8192));
    store_f32x4(y_p + 8196, acc_1_4 + bias[1] + load_f32x4(residual_p + 8196));
    store_f32x4(y_p + 8200, acc_1_8 + bias[1] + load_f32x4(residual_p + 8200));
    store_f32x4(y_p + 8204, acc_1_12 + bias[1] + load_f32x4(residual_p + 8204));
  }
}

// Expected of residual.kernel.
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

void expand_p0(const float *restrict a, const float *restrict w, const float *restrict bias, const float *restrict residual, float *restrict y, unsigned char *restrict ws, int64_t worker, int64_t begin, int64_t end);

void expand_p0(const float *restrict a, const float *restrict w, const float *restrict bias, const float *restrict residual, float *restrict y, unsigned char *restrict ws, int64_t worker, int64_t begin, int64_t end) {
  (void)ws; (void)worker;
  for (int64_t task = begin; task < end; task++) {
    f32x16 acc_0_0, acc_1_0;
    acc_0_0 = splat_f32x16(0.0f);
    acc_1_0 = splat_f32x16(0.0f);
    KG_FETCH(residual, task * 16);
    KG_FETCH(residual, task * 16 + 8192);
    KG_UNROLL(1)
    for (int64_t k = 0; k < 64; k++) {
      const float *const a_p = a + k * 8192 + task * 16;
      const float *const w_p = w + k * 2;
      acc_0_0 += load_f32x16(a_p) * w_p[0];
      acc_1_0 += load_f32x16(a_p) * w_p[1];
    }
    float *const y_p = y + task * 16;
    const float *const residual_p = residual + task * 16;
    store_f32x16(y_p, acc_0_0 + bias[0] + load_f32x16(residual_p));
    store_f32x16(y_p + 8192, acc_1_0 + bias[1] + load_f32x16(residual_p + 8192));
  }
}

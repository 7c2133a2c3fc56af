// Expected of fetch-ahead.kernel.
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

void panel_p0(const float *restrict a, const float *restrict b, float *restrict c, unsigned char *restrict ws, int64_t worker, int64_t begin, int64_t end);

void panel_p0(const float *restrict a, const float *restrict b, float *restrict c, unsigned char *restrict ws, int64_t worker, int64_t begin, int64_t end) {
  (void)ws; (void)worker;
  for (int64_t task = begin; task < end; task++) {
    f32x16 acc_0, acc_16;
    acc_0 = splat_f32x16(0.0f);
    acc_16 = splat_f32x16(0.0f);
    KG_UNROLL(1)
    for (int64_t k = 0; k < 64; k++) {
      KG_FETCH(b, k * 32 + 512);
      KG_FETCH(b, k * 32 + 528);
      const float *const b_p = b + k * 32;
      acc_0 += a[k] * load_f32x16(b_p);
      acc_16 += a[k] * load_f32x16(b_p + 16);
    }
    store_f32x16(c, acc_0);
    store_f32x16(c + 16, acc_16);
  }
}

// Expected of fetch-ahead.kernel.
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

void panel_p0(const float *restrict a, const float *restrict b, float *restrict c, unsigned char *restrict ws, int64_t worker, int64_t begin, int64_t end);

void panel_p0(const float *restrict a, const float *restrict b, float *restrict c, unsigned char *restrict ws, int64_t worker, int64_t begin, int64_t end) {
  (void)ws; (void)worker;
  for (int64_t task = begin; task < end; task++) {
    f32x4 acc_0, acc_4, acc_8, acc_12, acc_16, acc_20, acc_24, acc_28;
    acc_0 = splat_f32x4(0.0f);
    acc_4 = splat_f32x4(0.0f);
    acc_8 = splat_f32x4(0.0f);
    acc_12 = splat_f32x4(0.0f);
    acc_16 = splat_f32x4(0.0f);
    acc_20 = splat_f32x4(0.0f);
    acc_24 = splat_f32x4(0.0f);
    acc_28 = splat_f32x4(0.0f);
    KG_UNROLL(1)
    for (int64_t k = 0; k < 64; k++) {
      KG_FETCH(b, k * 32 + 512);
      KG_FETCH(b, k * 32 + 528);
      const float *const b_p = b + k * 32;
      acc_0 += a[k] * load_f32x4(b_p);
      acc_4 += a[k] * load_f32x4(b_p + 4);
      acc_8 += a[k] * load_f32x4(b_p + 8);
      acc_12 += a[k] * load_f32x4(b_p + 12);
      acc_16 += a[k] * load_f32x4(b_p + 16);
      acc_20 += a[k] * load_f32x4(b_p + 20);
      acc_24 += a[k] * load_f32x4(b_p + 24);
      acc_28 += a[k] * load_f32x4(b_p + 28);
    }
    store_f32x4(c, acc_0);
    store_f32x4(c + 4, acc_4);
    store_f32x4(c + 8, acc_8);
    store_f32x4(c + 12, acc_12);
    store_f32x4(c + 16, acc_16);
    store_f32x4(c + 20, acc_20);
    store_f32x4(c + 24, acc_24);
    store_f32x4(c + 28, acc_28);
  }
}

// Expected of strides.kernel.
// x86-64-v4; workspace 0 bytes and 0 a worker
#include <stddef.h>
#include <stdint.h>

#define KG_FN static inline __attribute__((always_inline, unused))

typedef float f32x16 __attribute__((vector_size(64)));
typedef float f32x16_u __attribute__((vector_size(64), aligned(4), may_alias));
KG_FN f32x16 splat_f32x16(float x) {
  return (f32x16){x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x};
}
KG_FN f32x16 load_f32x16(const float *p) {
  return *(const f32x16_u *)p;
}
KG_FN f32x16 load_even_f32x16(const float *p) {
  f32x16 lo = load_f32x16(p), hi = load_f32x16(p + 15);
#ifdef __clang__
  return __builtin_shufflevector(lo, hi, 0, 2, 4, 6, 8, 10, 12, 14, 17, 19, 21, 23, 25, 27, 29, 31);
#else
  typedef int32_t picks __attribute__((vector_size(64)));
  return __builtin_shuffle(lo, hi, (picks){0, 2, 4, 6, 8, 10, 12, 14, 17, 19, 21, 23, 25, 27, 29, 31});
#endif
}
KG_FN void store_f32x16(float *p, f32x16 v) {
  *(f32x16_u *)p = v;
}
KG_FN void scatter_f32x16(float *p, int64_t stride, f32x16 v, int n) {
  for (int i = 0; i < n; i++) p[i * stride] = v[i];
}

void strides_p0(const float *restrict x, float *restrict y, float *restrict z, unsigned char *restrict ws, int64_t worker, int64_t begin, int64_t end);

void strides_p0(const float *restrict x, float *restrict y, float *restrict z, unsigned char *restrict ws, int64_t worker, int64_t begin, int64_t end) {
  (void)ws; (void)worker; (void)begin; (void)end;
  store_f32x16(y, load_even_f32x16(x + 1));
  scatter_f32x16(z, 4, splat_f32x16(-1.5f), 16);
  for (int64_t i = 0; i < 3; i++) {
    const float *const x_p = x + i * 33;
    store_f32x16(y + i * 16 + 16, load_even_f32x16(x_p + 34));
    scatter_f32x16(z + i + 1, 4, load_f32x16(x_p), 16);
  }
}

// Expected of strides.kernel.
// portable; workspace 0 bytes and 0 a worker
#include <stddef.h>
#include <stdint.h>

#define KG_FN static inline __attribute__((always_inline, unused))

typedef float f32x4 __attribute__((vector_size(16)));
typedef float f32x4_u __attribute__((vector_size(16), aligned(4), may_alias));
KG_FN f32x4 splat_f32x4(float x) {
  return (f32x4){x, x, x, x};
}
KG_FN f32x4 load_f32x4(const float *p) {
  return *(const f32x4_u *)p;
}
KG_FN f32x4 load_even_f32x4(const float *p) {
  f32x4 lo = load_f32x4(p), hi = load_f32x4(p + 3);
#ifdef __clang__
  return __builtin_shufflevector(lo, hi, 0, 2, 5, 7);
#else
  typedef int32_t picks __attribute__((vector_size(16)));
  return __builtin_shuffle(lo, hi, (picks){0, 2, 5, 7});
#endif
}
KG_FN void store_f32x4(float *p, f32x4 v) {
  *(f32x4_u *)p = v;
}
KG_FN void scatter_f32x4(float *p, int64_t stride, f32x4 v, int n) {
  for (int i = 0; i < n; i++) p[i * stride] = v[i];
}

void strides_p0(const float *restrict x, float *restrict y, float *restrict z, unsigned char *restrict ws, int64_t worker, int64_t begin, int64_t end);

void strides_p0(const float *restrict x, float *restrict y, float *restrict z, unsigned char *restrict ws, int64_t worker, int64_t begin, int64_t end) {
  (void)ws; (void)worker; (void)begin; (void)end;
  store_f32x4(y, load_even_f32x4(x + 1));
  store_f32x4(y + 4, load_even_f32x4(x + 9));
  store_f32x4(y + 8, load_even_f32x4(x + 17));
  store_f32x4(y + 12, load_even_f32x4(x + 25));
  scatter_f32x4(z, 4, splat_f32x4(-1.5f), 4);
  scatter_f32x4(z + 16, 4, splat_f32x4(-1.5f), 4);
  scatter_f32x4(z + 32, 4, splat_f32x4(-1.5f), 4);
  scatter_f32x4(z + 48, 4, splat_f32x4(-1.5f), 4);
  for (int64_t i = 0; i < 3; i++) {
    float *const y_p = y + i * 16 + 16;
    const float *const x_p = x + i * 33;
    store_f32x4(y_p, load_even_f32x4(x_p + 34));
    store_f32x4(y_p + 4, load_even_f32x4(x_p + 42));
    store_f32x4(y_p + 8, load_even_f32x4(x_p + 50));
    store_f32x4(y_p + 12, load_even_f32x4(x_p + 58));
    scatter_f32x4(z + i + 1, 4, load_f32x4(x_p), 4);
    scatter_f32x4(z + i + 17, 4, load_f32x4(x_p + 4), 4);
    scatter_f32x4(z + i + 33, 4, load_f32x4(x_p + 8), 4);
    scatter_f32x4(z + i + 49, 4, load_f32x4(x_p + 12), 4);
  }
}

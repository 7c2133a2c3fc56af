// Expected of conditions.kernel.
// x86-64-v4; workspace 0 bytes and 0 a worker
#include <stddef.h>
#include <stdint.h>

#define KG_FN static inline __attribute__((always_inline, unused))

typedef float f32x8 __attribute__((vector_size(32)));
typedef float f32x8_u __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t i32x8 __attribute__((vector_size(32)));
typedef int32_t i32x8_u __attribute__((vector_size(32), aligned(4), may_alias));
KG_FN int64_t floor_div(int64_t a, int64_t b) {
  int64_t q = a / b;
  return q - (a % b != 0 && (a < 0) != (b < 0));
}
KG_FN f32x8 splat_f32x8(float x) {
  return (f32x8){x, x, x, x, x, x, x, x};
}
KG_FN f32x8 load_f32x8(const float *p) {
  return *(const f32x8_u *)p;
}
KG_FN i32x8 load_i32x8(const int32_t *p) {
  return *(const i32x8_u *)p;
}
KG_FN void store_f32x8(float *p, f32x8 v) {
  *(f32x8_u *)p = v;
}
KG_FN f32x8 choose_f32x8(i32x8 mask, f32x8 a, f32x8 b) {
  return (f32x8)((mask & (i32x8)a) | (~mask & (i32x8)b));
}

void conditions_p0(const float *restrict x, const float *restrict z, const int32_t *restrict p, const int32_t *restrict r, float *restrict y, float *restrict t, float *restrict u, unsigned char *restrict ws, int64_t worker, int64_t begin, int64_t end);

void conditions_p0(const float *restrict x, const float *restrict z, const int32_t *restrict p, const int32_t *restrict r, float *restrict y, float *restrict t, float *restrict u, unsigned char *restrict ws, int64_t worker, int64_t begin, int64_t end) {
  (void)ws; (void)worker; (void)begin; (void)end;
  for (int64_t j = 0; j < 4; j++) {
    for (int64_t lane = 0; lane < 8; lane++) {
      y[j * 8 + lane] = j % 2 == 1 && x[lane] < 1.0f ? (float)floor_div(100, j % 2) : 0.0f;
    }
  }
  store_f32x8(t, (f32x8)(((i32x8)(load_f32x8(x) < load_f32x8(z))) & (i32x8)splat_f32x8(1)));
  store_f32x8(u, choose_f32x8((i32x8)(load_i32x8(r) < (load_i32x8(p) & 255)), load_f32x8(x), load_f32x8(z)));
}

// Expected of conditions.kernel.
// portable; workspace 0 bytes and 0 a worker
#include <stddef.h>
#include <stdint.h>

#define KG_FN static inline __attribute__((always_inline, unused))

typedef float f32x4 __attribute__((vector_size(16)));
typedef float f32x4_u __attribute__((vector_size(16), aligned(4), may_alias));
typedef int32_t i32x4 __attribute__((vector_size(16)));
typedef int32_t i32x4_u __attribute__((vector_size(16), aligned(4), may_alias));
KG_FN int64_t floor_div(int64_t a, int64_t b) {
  int64_t q = a / b;
  return q - (a % b != 0 && (a < 0) != (b < 0));
}
KG_FN f32x4 splat_f32x4(float x) {
  return (f32x4){x, x, x, x};
}
KG_FN f32x4 load_f32x4(const float *p) {
  return *(const f32x4_u *)p;
}
KG_FN i32x4 load_i32x4(const int32_t *p) {
  return *(const i32x4_u *)p;
}
KG_FN void store_f32x4(float *p, f32x4 v) {
  *(f32x4_u *)p = v;
}
KG_FN f32x4 choose_f32x4(i32x4 mask, f32x4 a, f32x4 b) {
  return (f32x4)((mask & (i32x4)a) | (~mask & (i32x4)b));
}

void conditions_p0(const float *restrict x, const float *restrict z, const int32_t *restrict p, const int32_t *restrict r, float *restrict y, float *restrict t, float *restrict u, unsigned char *restrict ws, int64_t worker, int64_t begin, int64_t end);

void conditions_p0(const float *restrict x, const float *restrict z, const int32_t *restrict p, const int32_t *restrict r, float *restrict y, float *restrict t, float *restrict u, unsigned char *restrict ws, int64_t worker, int64_t begin, int64_t end) {
  (void)ws; (void)worker; (void)begin; (void)end;
  for (int64_t j = 0; j < 4; j++) {
    for (int64_t lane = 0; lane < 4; lane++) {
      y[j * 8 + lane] = j % 2 == 1 && x[lane] < 1.0f ? (float)floor_div(100, j % 2) : 0.0f;
    }
    for (int64_t lane = 4; lane < 8; lane++) {
      y[j * 8 + lane] = j % 2 == 1 && x[lane] < 1.0f ? (float)floor_div(100, j % 2) : 0.0f;
    }
  }
  store_f32x4(t, (f32x4)(((i32x4)(load_f32x4(x) < load_f32x4(z))) & (i32x4)splat_f32x4(1)));
  store_f32x4(t + 4, (f32x4)(((i32x4)(load_f32x4(x + 4) < load_f32x4(z + 4))) & (i32x4)splat_f32x4(1)));
  store_f32x4(u, choose_f32x4((i32x4)(load_i32x4(r) < (load_i32x4(p) & 255)), load_f32x4(x), load_f32x4(z)));
  store_f32x4(u + 4, choose_f32x4((i32x4)(load_i32x4(r + 4) < (load_i32x4(p + 4) & 255)), load_f32x4(x + 4), load_f32x4(z + 4)));
}

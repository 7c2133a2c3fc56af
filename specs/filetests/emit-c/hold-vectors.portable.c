// Expected of hold-vectors.kernel.
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
KG_FN f32x4 splat_f32x4(float x) {
  return (f32x4){x, x, x, x};
}
KG_FN f32x4 load_f32x4(const float *p) {
  return *(const f32x4_u *)p;
}
KG_FN void scatter_f32x4(float *p, int64_t stride, f32x4 v, int n) {
  for (int i = 0; i < n; i++) p[i * stride] = v[i];
}
KG_FN f32x4 hold_f32x4(f32x4 v) {
  return v;
}

void phase_p0(const float *restrict x, const float *restrict w, float *restrict y, unsigned char *restrict ws, int64_t worker, int64_t begin, int64_t end);
void phase_p1(const float *restrict x, const float *restrict w, float *restrict y, unsigned char *restrict ws, int64_t worker, int64_t begin, int64_t end);

void phase_p0(const float *restrict x, const float *restrict w, float *restrict y, unsigned char *restrict ws, int64_t worker, int64_t begin, int64_t end) {
  (void)x; (void)w; (void)ws; (void)worker;
  for (int64_t first = begin; first < end; first++) {
    for (int64_t every = 0; every < 32; every++) {
      y[first * 64 + every * 2] = 0.0f;
    }
  }
}

void phase_p1(const float *restrict x, const float *restrict w, float *restrict y, unsigned char *restrict ws, int64_t worker, int64_t begin, int64_t end) {
  (void)ws; (void)worker;
  for (int64_t task = begin; task < end; task++) {
    f32x4 acc_0_0, acc_0_4, acc_0_8, acc_0_12, acc_0_16, acc_0_20, acc_0_24, acc_0_28;
    f32x4 acc_1_0, acc_1_4, acc_1_8, acc_1_12, acc_1_16, acc_1_20, acc_1_24, acc_1_28;
    f32x4 pixels_0 = {0}, pixels_4 = {0}, pixels_8 = {0}, pixels_12 = {0}, pixels_16 = {0}, pixels_20 = {0}, pixels_24 = {0}, pixels_28 = {0};
    acc_0_0 = splat_f32x4(0.0f);
    acc_0_4 = splat_f32x4(0.0f);
    acc_0_8 = splat_f32x4(0.0f);
    acc_0_12 = splat_f32x4(0.0f);
    acc_0_16 = splat_f32x4(0.0f);
    acc_0_20 = splat_f32x4(0.0f);
    acc_0_24 = splat_f32x4(0.0f);
    acc_0_28 = splat_f32x4(0.0f);
    acc_1_0 = splat_f32x4(0.0f);
    acc_1_4 = splat_f32x4(0.0f);
    acc_1_8 = splat_f32x4(0.0f);
    acc_1_12 = splat_f32x4(0.0f);
    acc_1_16 = splat_f32x4(0.0f);
    acc_1_20 = splat_f32x4(0.0f);
    acc_1_24 = splat_f32x4(0.0f);
    acc_1_28 = splat_f32x4(0.0f);
    KG_UNROLL(1)
    for (int64_t ci = 0; ci < 4; ci++) {
      const float *const x_p = x + ci * 40 + 3;
      const float *const w_p = w + ci * 2;
      pixels_0 = hold_f32x4(load_f32x4(x_p));
      pixels_4 = hold_f32x4(load_f32x4(x_p + 4));
      pixels_8 = hold_f32x4(load_f32x4(x_p + 8));
      pixels_12 = hold_f32x4(load_f32x4(x_p + 12));
      pixels_16 = hold_f32x4(load_f32x4(x_p + 16));
      pixels_20 = hold_f32x4(load_f32x4(x_p + 20));
      pixels_24 = hold_f32x4(load_f32x4(x_p + 24));
      pixels_28 = hold_f32x4(load_f32x4(x_p + 28));
      acc_0_0 += w_p[0] * pixels_0;
      acc_0_4 += w_p[0] * pixels_4;
      acc_0_8 += w_p[0] * pixels_8;
      acc_0_12 += w_p[0] * pixels_12;
      acc_0_16 += w_p[0] * pixels_16;
      acc_0_20 += w_p[0] * pixels_20;
      acc_0_24 += w_p[0] * pixels_24;
      acc_0_28 += w_p[0] * pixels_28;
      acc_1_0 += w_p[1] * pixels_0;
      acc_1_4 += w_p[1] * pixels_4;
      acc_1_8 += w_p[1] * pixels_8;
      acc_1_12 += w_p[1] * pixels_12;
      acc_1_16 += w_p[1] * pixels_16;
      acc_1_20 += w_p[1] * pixels_20;
      acc_1_24 += w_p[1] * pixels_24;
      acc_1_28 += w_p[1] * pixels_28;
    }
    scatter_f32x4(y + 1, 2, acc_0_0, 4);
    scatter_f32x4(y + 9, 2, acc_0_4, 4);
    scatter_f32x4(y + 17, 2, acc_0_8, 4);
    scatter_f32x4(y + 25, 2, acc_0_12, 4);
    scatter_f32x4(y + 33, 2, acc_0_16, 4);
    scatter_f32x4(y + 41, 2, acc_0_20, 4);
    scatter_f32x4(y + 49, 2, acc_0_24, 4);
    scatter_f32x4(y + 57, 2, acc_0_28, 4);
    scatter_f32x4(y + 65, 2, acc_1_0, 4);
    scatter_f32x4(y + 73, 2, acc_1_4, 4);
    scatter_f32x4(y + 81, 2, acc_1_8, 4);
    scatter_f32x4(y + 89, 2, acc_1_12, 4);
    scatter_f32x4(y + 97, 2, acc_1_16, 4);
    scatter_f32x4(y + 105, 2, acc_1_20, 4);
    scatter_f32x4(y + 113, 2, acc_1_24, 4);
    scatter_f32x4(y + 121, 2, acc_1_28, 4);
  }
}

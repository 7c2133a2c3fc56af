// Expected of hold-vectors.kernel.
// x86-64-v4; workspace 0 bytes and 0 a worker
#include <stddef.h>
#include <stdint.h>
#include <immintrin.h>

#define KG_FN static inline __attribute__((always_inline, unused))

#define KG_PRAGMA(x) _Pragma(#x)
#ifdef __clang__
#define KG_UNROLL(n) KG_PRAGMA(unroll n)
#else
#define KG_UNROLL(n) KG_PRAGMA(GCC unroll n)
#endif

typedef float f32x16 __attribute__((vector_size(64)));
typedef float f32x16_u __attribute__((vector_size(64), aligned(4), may_alias));
KG_FN f32x16 splat_f32x16(float x) {
  return (f32x16){x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x};
}
KG_FN f32x16 load_f32x16(const float *p) {
  return *(const f32x16_u *)p;
}
KG_FN void store_even_f32x16(float *p, f32x16 v, int n) {
  const uint64_t even = (((uint64_t)1 << 2 * n) - 1u) & 0x55555555u;
  _mm512_mask_storeu_ps(p, (__mmask16)(even), _mm512_permutexvar_ps(_mm512_set_epi32(7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0), (__m512)v));
  if (n > 8) _mm512_mask_storeu_ps(p + 16, (__mmask16)(even >> 16), _mm512_permutexvar_ps(_mm512_set_epi32(15, 15, 14, 14, 13, 13, 12, 12, 11, 11, 10, 10, 9, 9, 8, 8), (__m512)v));
}
KG_FN f32x16 hold_f32x16(f32x16 v) {
  __asm__("" : "+v"(v));
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
    f32x16 acc_0_0, acc_0_16, acc_1_0, acc_1_16;
    f32x16 pixels_0 = {0}, pixels_16 = {0};
    acc_0_0 = splat_f32x16(0.0f);
    acc_0_16 = splat_f32x16(0.0f);
    acc_1_0 = splat_f32x16(0.0f);
    acc_1_16 = splat_f32x16(0.0f);
    KG_UNROLL(1)
    for (int64_t ci = 0; ci < 4; ci++) {
      const float *const x_p = x + ci * 40 + 3;
      const float *const w_p = w + ci * 2;
      pixels_0 = hold_f32x16(load_f32x16(x_p));
      pixels_16 = hold_f32x16(load_f32x16(x_p + 16));
      acc_0_0 += w_p[0] * pixels_0;
      acc_0_16 += w_p[0] * pixels_16;
      acc_1_0 += w_p[1] * pixels_0;
      acc_1_16 += w_p[1] * pixels_16;
    }
    store_even_f32x16(y + 1, acc_0_0, 16);
    store_even_f32x16(y + 33, acc_0_16, 16);
    store_even_f32x16(y + 65, acc_1_0, 16);
    store_even_f32x16(y + 97, acc_1_16, 16);
  }
}

// Expected of phases.kernel.
// x86-64-v4; workspace 128 bytes and 12032 a worker
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <immintrin.h>

#define KG_FN static inline __attribute__((always_inline, unused))

#define KG_PRAGMA(x) _Pragma(#x)
#ifdef __clang__
#define KG_UNROLL(n) KG_PRAGMA(unroll n)
#else
#define KG_UNROLL(n) KG_PRAGMA(GCC unroll n)
#endif

typedef float f32x8 __attribute__((vector_size(32)));
typedef float f32x8_u __attribute__((vector_size(32), aligned(4), may_alias));
typedef float f32x16 __attribute__((vector_size(64)));
typedef float f32x16_u __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t i32x8 __attribute__((vector_size(32)));
typedef int32_t i32x8_u __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t i32x16 __attribute__((vector_size(64)));
typedef int32_t i32x16_u __attribute__((vector_size(64), aligned(4), may_alias));
KG_FN float f16_to_f32(uint16_t h) {
#if defined(__FLT16_MANT_DIG__) && (defined(__F16C__) || defined(__aarch64__))
  _Float16 x;
  __builtin_memcpy(&x, &h, 2);
  return (float)x;
#else
  uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = h >> 10 & 31u, mantissa = h & 0x3ffu, u;
  float f;
  if (exponent == 0) {
    f = (float)mantissa * 0x1p-24f;
    return sign ? -f : f;
  }
  u = sign | (exponent == 31 ? 0x7f800000u : (exponent + 112u) << 23) | mantissa << 13;
  __builtin_memcpy(&f, &u, 4);
  return f;
#endif
}
KG_FN uint16_t f32_to_bf16(float f) {
  uint32_t u;
  __builtin_memcpy(&u, &f, 4);
  if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(u >> 16 | 0x40u);
  return (uint16_t)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}
KG_FN f32x8 load_f16_f32x8(const uint16_t *p) {
  return (f32x8)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}
KG_FN f32x16 load_f16_f32x16(const uint16_t *p) {
  return (f32x16)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}
KG_FN void store_bf16_f32x8(uint16_t *p, f32x8 v) {
  KG_UNROLL(8)
  for (int i = 0; i < 8; i++) p[i] = f32_to_bf16(v[i]);
}
KG_FN void store_bf16_f32x16(uint16_t *p, f32x16 v) {
  KG_UNROLL(16)
  for (int i = 0; i < 16; i++) p[i] = f32_to_bf16(v[i]);
}
KG_FN f32x8 expf_f32x8(f32x8 x) {
  x = (f32x8)_mm256_max_ps(_mm256_set1_ps(-104.0f), _mm256_min_ps(_mm256_set1_ps(89.0f), (__m256)x));
  const f32x8 t = x * 1.44269504f + 12582912.0f, k = t - 12582912.0f;
  const f32x8 r = x - k * 0.693359375f - k * -2.12194440e-4f;
  f32x8 p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  return (f32x8)_mm256_scalef_ps((__m256)p, (__m256)k);
}
KG_FN f32x16 expf_f32x16(f32x16 x) {
  x = (f32x16)_mm512_max_ps(_mm512_set1_ps(-104.0f), _mm512_min_ps(_mm512_set1_ps(89.0f), (__m512)x));
  const f32x16 t = x * 1.44269504f + 12582912.0f, k = t - 12582912.0f;
  const f32x16 r = x - k * 0.693359375f - k * -2.12194440e-4f;
  f32x16 p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  return (f32x16)_mm512_scalef_ps((__m512)p, (__m512)k);
}

void phases_p0(const uint16_t *restrict x, uint16_t *restrict y, unsigned char *restrict ws, int64_t worker, int64_t begin, int64_t end);
void phases_p1(const uint16_t *restrict x, uint16_t *restrict y, unsigned char *restrict ws, int64_t worker, int64_t begin, int64_t end);
void phases_p2(const uint16_t *restrict x, uint16_t *restrict y, unsigned char *restrict ws, int64_t worker, int64_t begin, int64_t end);

void phases_p0(const uint16_t *restrict x, uint16_t *restrict y, unsigned char *restrict ws, int64_t worker, int64_t begin, int64_t end) {
  (void)y;
  float *restrict const part = (float *)(ws + 64);
  for (int64_t i = begin; i < end; i++) {
    float *restrict const row = (float *)(ws + worker * 12032 + 128);
    for (int64_t j = 0; j < 3000; j++) {
      row[j] = expf(f16_to_f32(x[i * 3000 + j]));
    }
    part[i] = 0.0f;
    for (int64_t k = 0; k < 3000; k++) {
      part[i] += row[k];
    }
  }
}

void phases_p1(const uint16_t *restrict x, uint16_t *restrict y, unsigned char *restrict ws, int64_t worker, int64_t begin, int64_t end) {
  (void)x; (void)y; (void)worker; (void)begin; (void)end;
  float *restrict const total = (float *)(ws + 0);
  const float *restrict const part = (const float *)(ws + 64);
  total[0] = 0.0f;
  for (int64_t i_1 = 0; i_1 < 8; i_1++) {
    total[0] += part[i_1];
  }
}

void phases_p2(const uint16_t *restrict x, uint16_t *restrict y, unsigned char *restrict ws, int64_t worker, int64_t begin, int64_t end) {
  (void)worker;
  const float *restrict const total = (const float *)(ws + 0);
  for (int64_t i_2 = begin; i_2 < end; i_2++) {
    for (int64_t j_2_vec = 0; j_2_vec < 46; j_2_vec++) {
      uint16_t *const y_p = y + i_2 * 3000 + j_2_vec * 64;
      const uint16_t *const x_p = x + i_2 * 3000 + j_2_vec * 64;
      store_bf16_f32x16(y_p, expf_f32x16(load_f16_f32x16(x_p)) / total[0]);
      store_bf16_f32x16(y_p + 16, expf_f32x16(load_f16_f32x16(x_p + 16)) / total[0]);
      store_bf16_f32x16(y_p + 32, expf_f32x16(load_f16_f32x16(x_p + 32)) / total[0]);
      store_bf16_f32x16(y_p + 48, expf_f32x16(load_f16_f32x16(x_p + 48)) / total[0]);
    }
    uint16_t *const y_p_1 = y + i_2 * 3000 + 2944;
    const uint16_t *const x_p_1 = x + i_2 * 3000 + 2944;
    store_bf16_f32x16(y_p_1, expf_f32x16(load_f16_f32x16(x_p_1)) / total[0]);
    store_bf16_f32x16(y_p_1 + 16, expf_f32x16(load_f16_f32x16(x_p_1 + 16)) / total[0]);
    store_bf16_f32x16(y_p_1 + 32, expf_f32x16(load_f16_f32x16(x_p_1 + 32)) / total[0]);
    store_bf16_f32x8(y_p_1 + 48, expf_f32x8(load_f16_f32x8(x_p_1 + 48)) / total[0]);
  }
}

// Expected of phases.kernel.
// portable; workspace 128 bytes and 12032 a worker
#include <stddef.h>
#include <stdint.h>
#include <math.h>

#define KG_FN static inline __attribute__((always_inline, unused))

#define KG_CALLED static __attribute__((noinline, const, unused))

typedef float f32x4 __attribute__((vector_size(16)));
typedef float f32x4_u __attribute__((vector_size(16), aligned(4), may_alias));
typedef int32_t i32x4 __attribute__((vector_size(16)));
typedef int32_t i32x4_u __attribute__((vector_size(16), aligned(4), may_alias));
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
KG_CALLED f32x4 f16_to_f32x4(i32x4 h) {
  const i32x4 magnitude = (h & 0x7fff) << 13, exponent = magnitude & 0x0f800000;
  const i32x4 special = (i32x4)(exponent == 0x0f800000) & 0x38000000, small = (i32x4)(exponent == 0);
  const f32x4 subnormal = (f32x4)(magnitude + 0x38800000) - 0x1p-14f;
  const i32x4 normal = magnitude + 0x38000000 + special;
  return (f32x4)((h & 0x8000) << 16 | (small & (i32x4)subnormal) | (~small & normal));
}
KG_FN i32x4 f32x4_to_bf16(f32x4 v) {
  const i32x4 u = (i32x4)v, nan = (i32x4)((u & 0x7fffffff) > 0x7f800000);
  const i32x4 rounded = (~nan & u) + 0x7fff + (u >> 16 & 1);
  return ((nan & (u | 0x400000)) | (~nan & rounded)) >> 16 & 0xffff;
}
KG_FN f32x4 load_f16_f32x4(const uint16_t *p) {
  typedef uint16_t halves __attribute__((vector_size(8), aligned(2), may_alias));
  return f16_to_f32x4(__builtin_convertvector(*(const halves *)p, i32x4));
}
KG_FN void store_bf16_f32x4(uint16_t *p, f32x4 v) {
  typedef uint16_t halves __attribute__((vector_size(8), aligned(2), may_alias));
  const i32x4 h = f32x4_to_bf16(v);
  *(halves *)p = __builtin_convertvector(h, halves);
}
KG_FN f32x4 expf_f32x4(f32x4 x) {
  i32x4 above = (i32x4)(x > 89.0f), below = (i32x4)(x < -104.0f);
  x = (f32x4)((above & 0x42b20000) | (below & (int32_t)0xc2d00000) | (~(above | below) & (i32x4)x));
  const f32x4 t = x * 1.44269504f + 12582912.0f, k = t - 12582912.0f;
  const f32x4 r = x - k * 0.693359375f - k * -2.12194440e-4f;
  f32x4 p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const i32x4 power = (i32x4)t - 0x4b400000, half = power >> 1;
  return p * (f32x4)((half + 127) << 23) * (f32x4)((power - half + 127) << 23);
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
      store_bf16_f32x4(y_p, expf_f32x4(load_f16_f32x4(x_p)) / total[0]);
      store_bf16_f32x4(y_p + 4, expf_f32x4(load_f16_f32x4(x_p + 4)) / total[0]);
      store_bf16_f32x4(y_p + 8, expf_f32x4(load_f16_f32x4(x_p + 8)) / total[0]);
      store_bf16_f32x4(y_p + 12, expf_f32x4(load_f16_f32x4(x_p + 12)) / total[0]);
      store_bf16_f32x4(y_p + 16, expf_f32x4(load_f16_f32x4(x_p + 16)) / total[0]);
      store_bf16_f32x4(y_p + 20, expf_f32x4(load_f16_f32x4(x_p + 20)) / total[0]);
      store_bf16_f32x4(y_p + 24, expf_f32x4(load_f16_f32x4(x_p + 24)) / total[0]);
      store_bf16_f32x4(y_p + 28, expf_f32x4(load_f16_f32x4(x_p + 28)) / total[0]);
      store_bf16_f32x4(y_p + 32, expf_f32x4(load_f16_f32x4(x_p + 32)) / total[0]);
      store_bf16_f32x4(y_p + 36, expf_f32x4(load_f16_f32x4(x_p + 36)) / total[0]);
      store_bf16_f32x4(y_p + 40, expf_f32x4(load_f16_f32x4(x_p + 40)) / total[0]);
      store_bf16_f32x4(y_p + 44, expf_f32x4(load_f16_f32x4(x_p + 44)) / total[0]);
      store_bf16_f32x4(y_p + 48, expf_f32x4(load_f16_f32x4(x_p + 48)) / total[0]);
      store_bf16_f32x4(y_p + 52, expf_f32x4(load_f16_f32x4(x_p + 52)) / total[0]);
      store_bf16_f32x4(y_p + 56, expf_f32x4(load_f16_f32x4(x_p + 56)) / total[0]);
      store_bf16_f32x4(y_p + 60, expf_f32x4(load_f16_f32x4(x_p + 60)) / total[0]);
    }
    uint16_t *const y_p_1 = y + i_2 * 3000 + 2944;
    const uint16_t *const x_p_1 = x + i_2 * 3000 + 2944;
    store_bf16_f32x4(y_p_1, expf_f32x4(load_f16_f32x4(x_p_1)) / total[0]);
    store_bf16_f32x4(y_p_1 + 4, expf_f32x4(load_f16_f32x4(x_p_1 + 4)) / total[0]);
    store_bf16_f32x4(y_p_1 + 8, expf_f32x4(load_f16_f32x4(x_p_1 + 8)) / total[0]);
    store_bf16_f32x4(y_p_1 + 12, expf_f32x4(load_f16_f32x4(x_p_1 + 12)) / total[0]);
    store_bf16_f32x4(y_p_1 + 16, expf_f32x4(load_f16_f32x4(x_p_1 + 16)) / total[0]);
    store_bf16_f32x4(y_p_1 + 20, expf_f32x4(load_f16_f32x4(x_p_1 + 20)) / total[0]);
    store_bf16_f32x4(y_p_1 + 24, expf_f32x4(load_f16_f32x4(x_p_1 + 24)) / total[0]);
    store_bf16_f32x4(y_p_1 + 28, expf_f32x4(load_f16_f32x4(x_p_1 + 28)) / total[0]);
    store_bf16_f32x4(y_p_1 + 32, expf_f32x4(load_f16_f32x4(x_p_1 + 32)) / total[0]);
    store_bf16_f32x4(y_p_1 + 36, expf_f32x4(load_f16_f32x4(x_p_1 + 36)) / total[0]);
    store_bf16_f32x4(y_p_1 + 40, expf_f32x4(load_f16_f32x4(x_p_1 + 40)) / total[0]);
    store_bf16_f32x4(y_p_1 + 44, expf_f32x4(load_f16_f32x4(x_p_1 + 44)) / total[0]);
    store_bf16_f32x4(y_p_1 + 48, expf_f32x4(load_f16_f32x4(x_p_1 + 48)) / total[0]);
    store_bf16_f32x4(y_p_1 + 52, expf_f32x4(load_f16_f32x4(x_p_1 + 52)) / total[0]);
  }
}

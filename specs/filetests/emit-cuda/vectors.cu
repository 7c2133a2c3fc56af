// Expected of a file test.
// sm_80; workspace 0 bytes
// vectors: 64 x 1 x 1 blocks of 6 x 1 x 1 threads
#define KG_FN static __device__ __forceinline__

KG_FN float max_f32(float a, float b) {
  float r;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
KG_FN unsigned short lo16(unsigned pair) {
  return (unsigned short)pair;
}
KG_FN unsigned short hi16(unsigned pair) {
  return (unsigned short)(pair >> 16);
}
KG_FN float f16_to_f32(unsigned short h) {
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
  return f;
}
KG_FN unsigned f32_to_bf16x2(float low, float high) {
  unsigned pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

extern "C" __global__ void __launch_bounds__(6) vectors(const unsigned short *__restrict__ x, const float *__restrict__ s, unsigned short *__restrict__ y, float *__restrict__ z) {
  __shared__ __align__(16) unsigned short row[48];
  const int b = (int)blockIdx.x;
  const int t = (int)threadIdx.x;
  if (b < 60) {
    *(uint4 *)(row + t * 8) = *(const uint4 *)(x + b * 48 + t * 8);
  } else {
    *(uint4 *)(row + t * 8) = uint4{0, 0, 0, 0};
  }
  __syncthreads();
  const int t_1 = (int)threadIdx.x;
  const uint4 row_v = *(const uint4 *)(row + t_1 * 8);
  const float4 s_v = *(const float4 *)(s + t_1 * 8);
  const float4 s_v_1 = *(const float4 *)(s + t_1 * 8 + 4);
  *(uint4 *)(y + b * 48 + t_1 * 8) = uint4{f32_to_bf16x2(max_f32(f16_to_f32(lo16(row_v.x)) * s_v.x, 0.0f), max_f32(f16_to_f32(hi16(row_v.x)) * s_v.y, 0.0f)), f32_to_bf16x2(max_f32(f16_to_f32(lo16(row_v.y)) * s_v.z, 0.0f), max_f32(f16_to_f32(hi16(row_v.y)) * s_v.w, 0.0f)), f32_to_bf16x2(max_f32(f16_to_f32(lo16(row_v.z)) * s_v_1.x, 0.0f), max_f32(f16_to_f32(hi16(row_v.z)) * s_v_1.y, 0.0f)), f32_to_bf16x2(max_f32(f16_to_f32(lo16(row_v.w)) * s_v_1.z, 0.0f), max_f32(f16_to_f32(hi16(row_v.w)) * s_v_1.w, 0.0f))};
  const float4 s_v_2 = *(const float4 *)(s + t_1 * 8);
  const float2 s_v_3 = *(const float2 *)(s + t_1 * 8 + 4);
  *(float4 *)(z + b * 48 + t_1 * 8) = float4{erff(s_v_2.x), erff(s_v_2.y), erff(s_v_2.z), erff(s_v_2.w)};
  *(float2 *)(z + b * 48 + t_1 * 8 + 4) = float2{erff(s_v_3.x), erff(s_v_3.y)};
  *(float2 *)(z + b * 48 + t_1 * 8 + 6) = float2{tanhf(s[t_1 * 8 + 5]), tanhf(s[t_1 * 8 + 4])};
}

// Expected of a file test.
// sm_75; workspace 0 bytes
// warp_turing: 1 x 1 x 1 blocks of 32 x 1 x 1 threads
#define KG_FN static __device__ __forceinline__

KG_FN unsigned short f32_to_f16(float f) {
  unsigned short h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
  return h;
}
KG_FN unsigned f32_to_f16x2(float low, float high) {
  return (unsigned)f32_to_f16(high) << 16 | f32_to_f16(low);
}
KG_FN unsigned shared_address(const void *p) {
  return (unsigned)__cvta_generic_to_shared(p);
}
KG_FN void mma_ldmatrix(unsigned *to, const void *row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(shared_address(row)) : "memory");
}
KG_FN void mma_m16n8k16_f16(float *sums, const unsigned *a, const unsigned *b) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
    "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};" :
    "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]) :
    "r"(a[0]), "r"(a[1]), "r"(b[0]));
  asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
    "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};" :
    "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]) :
    "r"(a[2]), "r"(a[3]), "r"(b[1]));
}

extern "C" __global__ void __launch_bounds__(32) warp_turing(const unsigned short *__restrict__ a, const unsigned short *__restrict__ b, unsigned short *__restrict__ c) {
  __shared__ __align__(16) unsigned short sa[1144];
  __shared__ __align__(16) unsigned short sb[1144];
  const int lane = (int)(threadIdx.x % 32);
  const int t = (int)threadIdx.x;
  unsigned fa[16];
  unsigned fb[16];
  float acc[8];
  for (int i = 0; i < 4; ++i) {
    *(uint4 *)(sa + i * 288 + t / 8 * 72 + t % 8 * 8) = *(const uint4 *)(a + i * 256 + t * 8);
    *(uint4 *)(sb + i * 288 + t / 8 * 72 + t % 8 * 8) = *(const uint4 *)(b + i * 256 + t * 8);
  }
  __syncthreads();
  #pragma unroll
  for (int i_2 = 0; i_2 < 8; ++i_2) acc[i_2] = 0.0f;
  mma_ldmatrix(fa, sa + lane % 8 * 72 + lane / 8 % 2 * 576 + lane / 16 * 8);
  mma_ldmatrix(fa + 4, sa + lane % 8 * 72 + lane / 8 % 2 * 576 + lane / 16 * 8 + 16);
  mma_ldmatrix(fa + 8, sa + lane % 8 * 72 + lane / 8 % 2 * 576 + lane / 16 * 8 + 32);
  mma_ldmatrix(fa + 12, sa + lane % 8 * 72 + lane / 8 % 2 * 576 + lane / 16 * 8 + 48);
  mma_ldmatrix(fb, sb + lane % 8 * 72 + lane / 16 * 576 + lane / 8 % 2 * 8);
  mma_ldmatrix(fb + 4, sb + lane % 8 * 72 + lane / 16 * 576 + lane / 8 % 2 * 8 + 16);
  mma_ldmatrix(fb + 8, sb + lane % 8 * 72 + lane / 16 * 576 + lane / 8 % 2 * 8 + 32);
  mma_ldmatrix(fb + 12, sb + lane % 8 * 72 + lane / 16 * 576 + lane / 8 % 2 * 8 + 48);
  mma_m16n8k16_f16(acc, fa, fb);
  mma_m16n8k16_f16(acc + 4, fa, fb + 2);
  mma_m16n8k16_f16(acc, fa + 4, fb + 4);
  mma_m16n8k16_f16(acc + 4, fa + 4, fb + 6);
  mma_m16n8k16_f16(acc, fa + 8, fb + 8);
  mma_m16n8k16_f16(acc + 4, fa + 8, fb + 10);
  mma_m16n8k16_f16(acc, fa + 12, fb + 12);
  mma_m16n8k16_f16(acc + 4, fa + 12, fb + 14);
  const int quad = t / 4;
  const int pair = t % 4;
  #pragma unroll
  for (int octet = 0; octet < 2; ++octet) {
    *(unsigned *)(c + quad * 16 + octet * 8 + pair * 2) = f32_to_f16x2(acc[octet * 4], acc[octet * 4 + 1]);
  }
  #pragma unroll
  for (int octet_1 = 0; octet_1 < 2; ++octet_1) {
    *(unsigned *)(c + quad * 16 + octet_1 * 8 + pair * 2 + 128) = f32_to_f16x2(acc[octet_1 * 4 + 2], acc[octet_1 * 4 + 3]);
  }
}

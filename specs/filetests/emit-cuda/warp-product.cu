// Expected of a file test.
// sm_80; workspace 0 bytes
// warp_product: 2 x 1 x 1 blocks of 64 x 1 x 1 threads
#define KG_FN static __device__ __forceinline__

KG_FN float max_f32(float a, float b) {
  float r;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
KG_FN unsigned shared_address(const void *p) {
  return (unsigned)__cvta_generic_to_shared(p);
}
KG_FN void cp_async_16(void *to, const void *from, bool read) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"(shared_address(to)), "l"(from), "r"(read ? 16 : 0) : "memory");
}
KG_FN void mma_ldmatrix(unsigned *to, const void *row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(shared_address(row)) : "memory");
}
KG_FN void mma_ldmatrix_transposed(unsigned *to, const void *row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(shared_address(row)) : "memory");
}
KG_FN void mma_m16n8k16_f16(float *sums, const unsigned *a, const unsigned *b) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
    "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" :
    "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]) :
    "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

extern "C" __global__ void __launch_bounds__(64) warp_product(const unsigned short *__restrict__ a, const unsigned short *__restrict__ b, float *__restrict__ c) {
  __shared__ __align__(16) unsigned short sa[1024];
  __shared__ __align__(16) unsigned short sb[2048];
  const int lane = (int)(threadIdx.x % 32);
  const int g = (int)blockIdx.x;
  const int t = (int)threadIdx.x;
  unsigned fa[4];
  unsigned fb[16];
  float acc[32];
  #pragma unroll
  for (int i_1 = 0; i_1 < 32; ++i_1) acc[i_1] = 0.0f;
  cp_async_16(sa + t * 8, a + g * 2048 + t / 2 * 64 + t % 2 * 8, true);
  for (int i = 0; i < 2; ++i) {
    cp_async_16(sb + i * 512 + t * 8, b + i * 512 + t * 8, true);
  }
  asm volatile("cp.async.commit_group;" ::: "memory");
  for (int k = 0; k < 4; ++k) {
    cp_async_16(sa + (k + 1) % 2 * 512 + t * 8, a + g * 2048 + t / 2 * 64 + k * 16 + t % 2 * 8 + 16, k < 3);
    for (int j = 0; j < 2; ++j) {
      cp_async_16(sb + (k + 1) % 2 * 1024 + j * 512 + t * 8, b + k * 1024 + j * 512 + t * 8 + 1024, k < 3);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
    asm volatile("cp.async.wait_group 1;" ::: "memory");
    __syncthreads();
    mma_ldmatrix(fa, sa + k % 2 * 512 + t / 32 * 256 + lane % 8 * 16 + lane / 8 % 2 * 128 + lane / 16 * 8);
    mma_ldmatrix_transposed(fb, sb + k % 2 * 1024 + lane % 8 * 64 + lane / 8 % 2 * 512 + lane / 16 * 8);
    mma_ldmatrix_transposed(fb + 4, sb + k % 2 * 1024 + lane % 8 * 64 + lane / 8 % 2 * 512 + lane / 16 * 8 + 16);
    mma_ldmatrix_transposed(fb + 8, sb + k % 2 * 1024 + lane % 8 * 64 + lane / 8 % 2 * 512 + lane / 16 * 8 + 32);
    mma_ldmatrix_transposed(fb + 12, sb + k % 2 * 1024 + lane % 8 * 64 + lane / 8 % 2 * 512 + lane / 16 * 8 + 48);
    mma_m16n8k16_f16(acc, fa, fb);
    mma_m16n8k16_f16(acc + 4, fa, fb + 2);
    mma_m16n8k16_f16(acc + 8, fa, fb + 4);
    mma_m16n8k16_f16(acc + 12, fa, fb + 6);
    mma_m16n8k16_f16(acc + 16, fa, fb + 8);
    mma_m16n8k16_f16(acc + 20, fa, fb + 10);
    mma_m16n8k16_f16(acc + 24, fa, fb + 12);
    mma_m16n8k16_f16(acc + 28, fa, fb + 14);
    __syncthreads();
  }
  const int quad = t / 4 % 8;
  const int pair = t % 4;
  #pragma unroll
  for (int octet = 0; octet < 8; ++octet) {
    *(float2 *)(c + g * 2048 + t / 32 * 1024 + quad * 64 + octet * 8 + pair * 2) = float2{max_f32(acc[octet * 4], 0.0f), max_f32(acc[octet * 4 + 1], 0.0f)};
  }
  #pragma unroll
  for (int octet_1 = 0; octet_1 < 8; ++octet_1) {
    *(float2 *)(c + g * 2048 + t / 32 * 1024 + quad * 64 + octet_1 * 8 + pair * 2 + 512) = float2{max_f32(acc[octet_1 * 4 + 2], 0.0f), max_f32(acc[octet_1 * 4 + 3], 0.0f)};
  }
}

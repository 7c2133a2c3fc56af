// Expected of a file test.
// sm_70; workspace 0 bytes
// warp_volta: 1 x 1 x 1 blocks of 32 x 1 x 1 threads
#define KG_FN static __device__ __forceinline__

KG_FN unsigned shared_address(const void *p) {
  return (unsigned)__cvta_generic_to_shared(p);
}
KG_FN void wmma_load_a_t(unsigned *to, const void *tile, int stride) {
  asm volatile("wmma.load.a.sync.aligned.col.m16n16k16.shared.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;" :
    "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]), "=r"(to[4]), "=r"(to[5]), "=r"(to[6]), "=r"(to[7]) :
    "r"(shared_address(tile)), "r"(stride) : "memory");
}
KG_FN void wmma_load_b_t_global(unsigned *to, const void *tile, int stride) {
  asm volatile("wmma.load.b.sync.aligned.col.m16n16k16.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;" :
    "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]), "=r"(to[4]), "=r"(to[5]), "=r"(to[6]), "=r"(to[7]) :
    "l"(tile), "r"(stride) : "memory");
}
KG_FN void wmma_load_sums_f32_global(float *to, const void *tile, int stride) {
  asm volatile("wmma.load.c.sync.aligned.row.m16n16k16.f32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;" :
    "=f"(to[0]), "=f"(to[1]), "=f"(to[2]), "=f"(to[3]), "=f"(to[4]), "=f"(to[5]), "=f"(to[6]), "=f"(to[7]) :
    "l"(tile), "r"(stride) : "memory");
}
KG_FN void wmma_store_sums_f32_global(void *tile, const float *from, int stride) {
  asm volatile("wmma.store.d.sync.aligned.row.m16n16k16.f32 [%0], {%1, %2, %3, %4, %5, %6, %7, %8}, %9;" ::
    "l"(tile),
    "f"(from[0]), "f"(from[1]), "f"(from[2]), "f"(from[3]), "f"(from[4]), "f"(from[5]), "f"(from[6]), "f"(from[7]),
    "r"(stride) : "memory");
}
KG_FN void wmma_m16n16k16_f32_tt(float *sums, const unsigned *a, const unsigned *b) {
  asm("wmma.mma.sync.aligned.col.col.m16n16k16.f32.f32 "
    "{%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9, %10, %11, %12, %13, %14, %15}, "
    "{%16, %17, %18, %19, %20, %21, %22, %23}, {%0, %1, %2, %3, %4, %5, %6, %7};" :
    "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]), "+f"(sums[4]), "+f"(sums[5]), "+f"(sums[6]), "+f"(sums[7]) :
    "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(a[4]), "r"(a[5]), "r"(a[6]), "r"(a[7]),
    "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]), "r"(b[4]), "r"(b[5]), "r"(b[6]), "r"(b[7]));
}

extern "C" __global__ void __launch_bounds__(32) warp_volta(const unsigned short *__restrict__ a, const unsigned short *__restrict__ b, const float *__restrict__ c, float *__restrict__ d) {
  __shared__ __align__(32) unsigned short sa[512];
  const int t = (int)threadIdx.x;
  unsigned fa[16];
  unsigned fb[16];
  float acc[8];
  for (int i = 0; i < 2; ++i) {
    *(uint4 *)(sa + i * 256 + t * 8) = *(const uint4 *)(a + i * 256 + t * 8);
  }
  __syncthreads();
  wmma_load_sums_f32_global(acc, c + 0, 16);
  wmma_load_a_t(fa, sa + 0, 16);
  wmma_load_a_t(fa + 8, sa + 256, 16);
  wmma_load_b_t_global(fb, b + 0, 32);
  wmma_load_b_t_global(fb + 8, b + 16, 32);
  wmma_m16n16k16_f32_tt(acc, fa, fb);
  wmma_m16n16k16_f32_tt(acc, fa + 8, fb + 8);
  wmma_store_sums_f32_global(d + 0, acc, 16);
}

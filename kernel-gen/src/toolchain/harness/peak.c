// Floating point peak of one core: independent fused multiply-adds in one asm block, so that the compiler can neither
// drop nor spill them. Gives FLOP per ns for the float32 vectors of the level that this is compiled for; 0 if unknown.

#if defined(__AVX512F__)
#define PEAK_FLOPS_PER_TRIP (24 * 32)
#define PEAK_STEP(r) "vfmadd213ps %%zmm31, %%zmm30, %%zmm" #r "\n"
#define PEAK_INIT(r) "vbroadcastss (%1), %%zmm" #r "\n"
#elif defined(__FMA__)
#define PEAK_FLOPS_PER_TRIP (12 * 16)
#define PEAK_STEP(r) "vfmadd213ps %%ymm15, %%ymm14, %%ymm" #r "\n"
#define PEAK_INIT(r) "vbroadcastss (%1), %%ymm" #r "\n"
#elif defined(__aarch64__)
#define PEAK_FLOPS_PER_TRIP (24 * 8)
#define PEAK_STEP(r) "fmla v" #r ".4s, v30.4s, v31.4s\n"
#define PEAK_INIT(r) "ld1r {v" #r ".4s}, [%1]\n"
#endif

static double peak_now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

#define TWELVE(f) f(0) f(1) f(2) f(3) f(4) f(5) f(6) f(7) f(8) f(9) f(10) f(11)
#define TWELVE_MORE(f) f(12) f(13) f(14) f(15) f(16) f(17) f(18) f(19) f(20) f(21) f(22) f(23)

static double fma_peak(double trips) {
#ifndef PEAK_STEP
  (void)trips;
  (void)peak_now_ns;
  return 0;
#else
  static const float start[3] = {0.5f, 0.999f, 1e-3f};
  int64_t n = (int64_t)trips;
  double begin = peak_now_ns();
#if defined(__AVX512F__)
  __asm__ volatile("vbroadcastss 4(%1), %%zmm30\nvbroadcastss 8(%1), %%zmm31\n" TWELVE(PEAK_INIT) TWELVE_MORE(PEAK_INIT)
                   ".p2align 6\n1:\n" TWELVE(PEAK_STEP) TWELVE_MORE(PEAK_STEP) "dec %0\njnz 1b\n"
                   : "+r"(n)
                   : "r"(start)
                   : "memory", "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9",
                     "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "xmm16", "xmm17", "xmm18", "xmm19", "xmm20",
                     "xmm21", "xmm22", "xmm23", "xmm30", "xmm31");
#elif defined(__FMA__)
  __asm__ volatile("vbroadcastss 4(%1), %%ymm14\nvbroadcastss 8(%1), %%ymm15\n" TWELVE(PEAK_INIT)
                   ".p2align 6\n1:\n" TWELVE(PEAK_STEP) "dec %0\njnz 1b\n"
                   : "+r"(n)
                   : "r"(start)
                   : "memory", "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9",
                     "xmm10", "xmm11", "xmm14", "xmm15");
#else
  __asm__ volatile("add x9, %1, 4\nld1r {v30.4s}, [x9]\nadd x9, %1, 8\nld1r {v31.4s}, [x9]\n" TWELVE(PEAK_INIT)
                   TWELVE_MORE(PEAK_INIT) ".p2align 6\n1:\n" TWELVE(PEAK_STEP) TWELVE_MORE(PEAK_STEP)
                   "subs %0, %0, 1\nb.ne 1b\n"
                   : "+r"(n)
                   : "r"(start)
                   : "memory", "cc", "x9", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11",
                     "v12", "v13", "v14", "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v30", "v31");
#endif
  double ns = peak_now_ns() - begin;
  return ns > 0 ? trips * PEAK_FLOPS_PER_TRIP / ns : 0;
#endif
}

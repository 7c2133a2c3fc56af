// The rate of fused multiply-adds that one core reaches right now, measured by a loop that does nothing else.
// Both peers call it beside each sample: the clock of a shared machine moves, and a share of this rate does not.
#pragma once
#include <time.h>

static inline double kg_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#if defined(__x86_64__)
#define KG_FMA(r, i, x, y) "vfmadd231ps " x ", " y ", " r i "\n\t"  // AT&T order: the last is written.
#define KG_FMA12(r, x, y)                                                                                      \
  KG_FMA(r, "0", x, y) KG_FMA(r, "1", x, y) KG_FMA(r, "2", x, y) KG_FMA(r, "3", x, y) KG_FMA(r, "4", x, y)       \
  KG_FMA(r, "5", x, y) KG_FMA(r, "6", x, y) KG_FMA(r, "7", x, y) KG_FMA(r, "8", x, y) KG_FMA(r, "9", x, y)       \
  KG_FMA(r, "10", x, y) KG_FMA(r, "11", x, y)

// Twelve accumulators cover a latency of four to six cycles at two results a cycle. They start at zero and the factors
// are zero, so no value ever grows or becomes subnormal; should zeros let the clock run higher than data does, then
// shares of this peak err on the low side.
__attribute__((target("avx512f"))) static double kg_fma_512(long n) {
  double t = kg_now();
  __asm__ volatile(
      "vpxord %%zmm0, %%zmm0, %%zmm0\n\tvpxord %%zmm1, %%zmm1, %%zmm1\n\tvpxord %%zmm2, %%zmm2, %%zmm2\n\t"
      "vpxord %%zmm3, %%zmm3, %%zmm3\n\tvpxord %%zmm4, %%zmm4, %%zmm4\n\tvpxord %%zmm5, %%zmm5, %%zmm5\n\t"
      "vpxord %%zmm6, %%zmm6, %%zmm6\n\tvpxord %%zmm7, %%zmm7, %%zmm7\n\tvpxord %%zmm8, %%zmm8, %%zmm8\n\t"
      "vpxord %%zmm9, %%zmm9, %%zmm9\n\tvpxord %%zmm10, %%zmm10, %%zmm10\n\tvpxord %%zmm11, %%zmm11, %%zmm11\n\t"
      "vpxord %%zmm12, %%zmm12, %%zmm12\n\tvpxord %%zmm13, %%zmm13, %%zmm13\n\t"
      "1:\n\t" KG_FMA12("%%zmm", "%%zmm12", "%%zmm13") KG_FMA12("%%zmm", "%%zmm12", "%%zmm13")
      "dec %0\n\tjnz 1b"
      : "+r"(n)
      :
      : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12",
        "xmm13", "cc");
  return kg_now() - t;
}

__attribute__((target("avx2,fma"))) static double kg_fma_256(long n) {
  double t = kg_now();
  __asm__ volatile(
      "vpxor %%ymm0, %%ymm0, %%ymm0\n\tvpxor %%ymm1, %%ymm1, %%ymm1\n\tvpxor %%ymm2, %%ymm2, %%ymm2\n\t"
      "vpxor %%ymm3, %%ymm3, %%ymm3\n\tvpxor %%ymm4, %%ymm4, %%ymm4\n\tvpxor %%ymm5, %%ymm5, %%ymm5\n\t"
      "vpxor %%ymm6, %%ymm6, %%ymm6\n\tvpxor %%ymm7, %%ymm7, %%ymm7\n\tvpxor %%ymm8, %%ymm8, %%ymm8\n\t"
      "vpxor %%ymm9, %%ymm9, %%ymm9\n\tvpxor %%ymm10, %%ymm10, %%ymm10\n\tvpxor %%ymm11, %%ymm11, %%ymm11\n\t"
      "vpxor %%ymm12, %%ymm12, %%ymm12\n\tvpxor %%ymm13, %%ymm13, %%ymm13\n\t"
      "1:\n\t" KG_FMA12("%%ymm", "%%ymm12", "%%ymm13") KG_FMA12("%%ymm", "%%ymm12", "%%ymm13")
      "dec %0\n\tjnz 1b"
      : "+r"(n)
      :
      : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12",
        "xmm13", "cc");
  return kg_now() - t;
}

// GFLOP/s of the calling core: the best of three short loops, 0.3 ms in all.
static double kg_peak_gflops(void) {
  const long n = 20000;
  double best = 0;
  for (int i = 0; i < 3; i++) {
    int wide = __builtin_cpu_supports("avx512f");
    double s = wide ? kg_fma_512(n) : kg_fma_256(n);
    double gflops = (double)n * 24 * (wide ? 16 : 8) * 2 / s * 1e-9;
    if (gflops > best) best = gflops;
  }
  return best;
}
#else
// No loop for this architecture: shares of the peak are left out.
static double kg_peak_gflops(void) { return 0; }
#endif

// Masked loads and stores touch their lanes first: GCC's sanitizers see no access by an intrinsic of that kind.

#include <immintrin.h>

// Reads the first and the last byte of each lane of the mask.
static inline __attribute__((unused)) void kg_touch(const void *p, unsigned lanes, unsigned bytes) {
  const volatile char *lane = p;
  for (unsigned i = 0; i < 32; i++)
    if (lanes >> i & 1) (void)lane[i * bytes], (void)lane[i * bytes + bytes - 1];
}

#ifdef __AVX512VL__
#define _mm_maskz_loadu_ps(m, p) (kg_touch((p), (m), 4), _mm_maskz_loadu_ps((m), (p)))
#define _mm_maskz_loadu_pd(m, p) (kg_touch((p), (m), 8), _mm_maskz_loadu_pd((m), (p)))
#define _mm256_maskz_loadu_ps(m, p) (kg_touch((p), (m), 4), _mm256_maskz_loadu_ps((m), (p)))
#define _mm256_maskz_loadu_pd(m, p) (kg_touch((p), (m), 8), _mm256_maskz_loadu_pd((m), (p)))
#define _mm512_maskz_loadu_ps(m, p) (kg_touch((p), (m), 4), _mm512_maskz_loadu_ps((m), (p)))
#define _mm512_maskz_loadu_pd(m, p) (kg_touch((p), (m), 8), _mm512_maskz_loadu_pd((m), (p)))
#define _mm_mask_storeu_ps(p, m, v) (kg_touch((p), (m), 4), _mm_mask_storeu_ps((p), (m), (v)))
#define _mm_mask_storeu_pd(p, m, v) (kg_touch((p), (m), 8), _mm_mask_storeu_pd((p), (m), (v)))
#define _mm256_mask_storeu_ps(p, m, v) (kg_touch((p), (m), 4), _mm256_mask_storeu_ps((p), (m), (v)))
#define _mm256_mask_storeu_pd(p, m, v) (kg_touch((p), (m), 8), _mm256_mask_storeu_pd((p), (m), (v)))
#define _mm512_mask_storeu_ps(p, m, v) (kg_touch((p), (m), 4), _mm512_mask_storeu_ps((p), (m), (v)))
#define _mm512_mask_storeu_pd(p, m, v) (kg_touch((p), (m), 8), _mm512_mask_storeu_pd((p), (m), (v)))
#elif defined(__AVX2__)
#define KG_PS(bits, m) ((unsigned)_mm##bits##_movemask_ps(m))
#define KG_PD(bits, m) ((unsigned)_mm##bits##_movemask_pd(m))
#define _mm_maskload_ps(p, m) (kg_touch((p), KG_PS(, _mm_castsi128_ps(m)), 4), _mm_maskload_ps((p), (m)))
#define _mm_maskload_pd(p, m) (kg_touch((p), KG_PD(, _mm_castsi128_pd(m)), 8), _mm_maskload_pd((p), (m)))
#define _mm256_maskload_ps(p, m) (kg_touch((p), KG_PS(256, _mm256_castsi256_ps(m)), 4), _mm256_maskload_ps((p), (m)))
#define _mm256_maskload_pd(p, m) (kg_touch((p), KG_PD(256, _mm256_castsi256_pd(m)), 8), _mm256_maskload_pd((p), (m)))
#define _mm_maskstore_ps(p, m, v) (kg_touch((p), KG_PS(, _mm_castsi128_ps(m)), 4), _mm_maskstore_ps((p), (m), (v)))
#define _mm_maskstore_pd(p, m, v) (kg_touch((p), KG_PD(, _mm_castsi128_pd(m)), 8), _mm_maskstore_pd((p), (m), (v)))
#define _mm256_maskstore_ps(p, m, v) (kg_touch((p), KG_PS(256, _mm256_castsi256_ps(m)), 4), _mm256_maskstore_ps((p), (m), (v)))
#define _mm256_maskstore_pd(p, m, v) (kg_touch((p), KG_PD(256, _mm256_castsi256_pd(m)), 8), _mm256_maskstore_pd((p), (m), (v)))
#endif

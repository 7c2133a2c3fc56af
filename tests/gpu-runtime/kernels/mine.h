// Kernels for `[[extern]]`, as bindgen and the CUDA compiler read them.
#pragma once
#include "sizes.h"
#include <stdint.h>

typedef float real;

extern "C" {
__global__ void scale(const real x[ROWS][COLUMNS], real y[ROWS][COLUMNS], real factor, int32_t shift);
__global__ void reverse(const double x[BLOCKS][PART], double y[BLOCKS][PART]);
__global__ void by_value(bool flag, uint8_t small, int64_t out[8], int16_t negative, double wide, int64_t far, unsigned plain,
                         float single);
}

#ifdef __CUDACC__
// What is for the source alone: nothing launches it.
inline __device__ real scaled(real x, real factor, int32_t shift) { return x * factor + (real)shift; }
#endif

// A kernel of two dimensions, one with dynamic shared memory, and one that takes numbers of every size.
#include "mine.h"
#include "sizes.h"

template <typename T> static __device__ T last(const T *row, int n) { return row[n - 1]; }

__global__ void scale(const real x[ROWS][COLUMNS], real y[ROWS][COLUMNS], real factor, int32_t shift) {
    const int row = blockIdx.x * blockDim.y + threadIdx.y;
    for (int column = threadIdx.x; column < COLUMNS; column += blockDim.x) {
        y[row][column] = scaled(x[row][column], factor, shift) + 0.0f * last(x[row], COLUMNS);
    }
}

__global__ void __launch_bounds__(256) reverse(const double x[BLOCKS][PART], double y[BLOCKS][PART]) {
    extern __shared__ double part[];
    for (int i = threadIdx.x; i < PART; i += 256) {
        part[i] = x[blockIdx.x][i];
    }
    __syncthreads();
    for (int i = threadIdx.x; i < PART; i += 256) {
        y[blockIdx.x][i] = part[PART - 1 - i];
    }
}

__global__ void by_value(bool flag, uint8_t small, int64_t out[8], int16_t negative, double wide, int64_t far, unsigned plain,
                         float single) {
    out[0] = flag;
    out[1] = small;
    out[2] = negative;
    out[3] = (int64_t)wide;
    out[4] = far;
    out[5] = plain;
    out[6] = (int64_t)(single * 4);
    out[7] = 0;
}

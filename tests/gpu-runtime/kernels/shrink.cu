// Made for compute capability 9.0 only: a device of another refuses it, and says so.

extern "C" __global__ void __launch_bounds__(32) shrink(const float *__restrict__ x, float *__restrict__ y) {
    y[threadIdx.x] = 0.5f * x[threadIdx.x];
}

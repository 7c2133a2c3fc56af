// y += x: launched many times, the result says how often.

extern "C" __global__ void __launch_bounds__(128) increment(const float *__restrict__ x, float *__restrict__ y) {
    const int i = blockIdx.x * 128 + threadIdx.x;
    if (i < 1000) {
        y[i] += x[i];
    }
}

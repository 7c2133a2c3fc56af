// The second kernel may start before the first has ended, and waits for its results itself.

extern "C" __global__ void __launch_bounds__(128) programmatic_first(const float *__restrict__ x, float *__restrict__ half) {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    const int i = blockIdx.x * 128 + threadIdx.x;
    for (long long start = clock64(); clock64() - start < 20000;) {
    }
    if (i < 1000) {
        half[i] = 0.5f * x[i];
    }
}

extern "C" __global__ void __launch_bounds__(128) programmatic_second(float *__restrict__ y, const float *half) {
    asm volatile("griddepcontrol.wait;" ::: "memory");
    const int i = blockIdx.x * 128 + threadIdx.x;
    if (i < 1000) {
        y[i] = half[999 - i];
    }
}

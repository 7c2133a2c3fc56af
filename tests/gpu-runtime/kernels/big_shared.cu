// Reverses 25600 numbers through 100 KiB of shared memory, which a block has only on request.

extern "C" __global__ void __launch_bounds__(256) big_shared(const float *__restrict__ x, float *__restrict__ y) {
    extern __shared__ __align__(16) unsigned char shared_memory[];
    float *const all = (float *)shared_memory;
    for (int i = threadIdx.x; i < 25600; i += 256) {
        all[i] = x[i];
    }
    __syncthreads();
    for (int i = threadIdx.x; i < 25600; i += 256) {
        y[i] = all[25599 - i];
    }
}

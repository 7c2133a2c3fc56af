// Each block adds its rank in the cluster to its part: 1000 numbers, 8 blocks of 125, clusters of 4.

extern "C" __global__ void __launch_bounds__(125) cluster(const float *__restrict__ x, float *__restrict__ y) {
    unsigned rank, size;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
    const int i = blockIdx.x * 125 + threadIdx.x;
    y[i] = x[i] + rank + 100.0f * size;
}

// Copies the lower right corner of a 32 x 64 matrix by TMA: a box of 8 x 32 from row 28, column 40, so that most of
// it lies outside, where TMA gives zeros.

struct alignas(64) TensorMap {
    unsigned long long opaque[16];
};

extern "C" __global__ void __launch_bounds__(32)
    tensor_map(const __grid_constant__ TensorMap map, float *__restrict__ y) {
    __shared__ __align__(128) float box[8 * 32];
    __shared__ __align__(8) unsigned long long barrier;
    const unsigned to = (unsigned)__cvta_generic_to_shared(box);
    const unsigned bar = (unsigned)__cvta_generic_to_shared(&barrier);
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(bar) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 1024;" ::"r"(bar) : "memory");
        asm volatile(
            "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to),
            "l"(&map), "r"(40), "r"(28), "r"(bar)
            : "memory");
    }
    __syncthreads();
    asm volatile(
        "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], 0;\n@!done bra again;\n}\n" ::"r"(bar)
        : "memory");
    for (int i = threadIdx.x; i < 8 * 32; i += 32) {
        y[i] = box[i];
    }
}

// Expected of a file test.
// sm_90a; workspace 0 bytes
// store_at_4: 2 x 1 x 1 blocks of 64 x 1 x 1 threads
#define KG_FN static __device__ __forceinline__

KG_FN unsigned shared_address(const void *p) {
  return (unsigned)__cvta_generic_to_shared(p);
}
KG_FN void mbarrier_init(unsigned long long *on, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(shared_address(on)), "r"(arrivals) : "memory");
}
KG_FN void store_at_4(float *to, int rank, unsigned long long *on, float v0, float v1, float v2, float v3) {
  asm volatile("{\n.reg .b32 there, counter;\nmapa.shared::cluster.u32 there, %0, %1;\n"
    "mapa.shared::cluster.u32 counter, %2, %1;\n"
    "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [there], {%3, %4, %5, %6}, [counter];\n}" ::
    "r"(shared_address(to)), "r"(rank), "r"(shared_address(on)), "f"(v0), "f"(v1), "f"(v2), "f"(v3) : "memory");
}
KG_FN void mbarrier_expect(unsigned long long *on, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(shared_address(on)), "r"(bytes) : "memory");
}
KG_FN void mbarrier_wait(unsigned long long *on, int parity) {
  asm volatile("{\n.reg .pred done;\nwaiting:\n"
    "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@done bra ended;\nbra waiting;\nended:\n}" :: "r"(shared_address(on)), "r"(parity) : "memory");
}

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(64) store_at_4(const float *__restrict__ x, float *__restrict__ y) {
  __shared__ __align__(16) float parts[64];
  __shared__ __align__(16) unsigned long long arrived[1];
  const int c0 = (int)blockIdx.x % 2;
  const int t = (int)threadIdx.x;
  if (t == 0) {
    mbarrier_init(arrived, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    mbarrier_expect(arrived, 256);
  }
  asm volatile("bar.sync 0;" ::: "memory");
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
  if (t < 16) {
    store_at_4(parts + c0 * 32 + t % 8 * 4, t / 8, arrived, x[c0 * 64 + t * 4], x[c0 * 64 + t * 4 + 1], x[c0 * 64 + t * 4 + 2], x[c0 * 64 + t * 4 + 3]);
  }
  mbarrier_wait(arrived, 0);
  if (t < 32) {
    y[c0 * 32 + t] = parts[t] + parts[t + 32];
  }
}

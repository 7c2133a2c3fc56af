// Expected of a file test.
// sm_90a; workspace 0 bytes
// cluster_multicast: 2 x 1 x 1 blocks of 128 x 1 x 1 threads
#define KG_FN static __device__ __forceinline__

KG_FN unsigned shared_address(const void *p) {
  return (unsigned)__cvta_generic_to_shared(p);
}
KG_FN void mbarrier_init(unsigned long long *on, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(shared_address(on)), "r"(arrivals) : "memory");
}
KG_FN void mbarrier_expect(unsigned long long *on, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(shared_address(on)), "r"(bytes) : "memory");
}
KG_FN void mbarrier_wait(unsigned long long *on, int parity) {
  asm volatile("{\n.reg .pred done;\nwaiting:\n"
    "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@done bra ended;\nbra waiting;\nended:\n}" :: "r"(shared_address(on)), "r"(parity) : "memory");
}
struct __align__(64) tensor_map {
  unsigned long long words[16];
};
KG_FN void tma_load_2d(void *to, const tensor_map &map, unsigned long long *on, int c0, int c1) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::
    "r"(shared_address(to)), "l"(&map), "r"(shared_address(on)), "r"(c0), "r"(c1) : "memory");
}
KG_FN void tma_load_2d_multicast(void *to, const tensor_map &map, unsigned long long *on, int blocks, int c0, int c1) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%4, %5}], [%2], %3;" ::
    "r"(shared_address(to)), "l"(&map), "r"(shared_address(on)), "h"((unsigned short)blocks), "r"(c0), "r"(c1) : "memory");
}
template <int n> KG_FN void wgmma_settle(float *sums) {
  #pragma unroll
  for (int i = 0; i < n; ++i) asm volatile("" : "+f"(sums[i]) :: "memory");
}
KG_FN unsigned long long wgmma_operand(const void *p, unsigned long long layout) {
  return layout | (shared_address(p) & 0x3ffffu) >> 4;
}
KG_FN void wgmma_m64n64k16_bf16_nt(float *sums, unsigned long long a, unsigned long long b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
    "%32, %33, 1, 1, 1, 0, 1;" :
    "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]), "+f"(sums[4]), "+f"(sums[5]),
    "+f"(sums[6]), "+f"(sums[7]), "+f"(sums[8]), "+f"(sums[9]), "+f"(sums[10]), "+f"(sums[11]),
    "+f"(sums[12]), "+f"(sums[13]), "+f"(sums[14]), "+f"(sums[15]), "+f"(sums[16]), "+f"(sums[17]),
    "+f"(sums[18]), "+f"(sums[19]), "+f"(sums[20]), "+f"(sums[21]), "+f"(sums[22]), "+f"(sums[23]),
    "+f"(sums[24]), "+f"(sums[25]), "+f"(sums[26]), "+f"(sums[27]), "+f"(sums[28]), "+f"(sums[29]),
    "+f"(sums[30]), "+f"(sums[31]) :
    "l"(a), "l"(b));
}

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(128) cluster_multicast(float *__restrict__ c, const __grid_constant__ tensor_map a_map, const __grid_constant__ tensor_map b_map) {
  __shared__ __align__(1024) unsigned short sa[4096];
  __shared__ __align__(1024) unsigned short sb[4096];
  __shared__ __align__(16) unsigned long long full[1];
  const int r = (int)blockIdx.x % 2;
  const int t = (int)threadIdx.x;
  float acc[32];
  asm volatile("griddepcontrol.wait;" ::: "memory");
  if (t == 0) {
    mbarrier_init(full, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
  if (t == 0) {
    mbarrier_expect(full, 16384);
    tma_load_2d(sa, a_map, full, 0, r * 64);
    tma_load_2d_multicast(sb + r * 2048, b_map, full, 3, 0, r * 32);
  }
  #pragma unroll
  for (int i_1 = 0; i_1 < 32; ++i_1) acc[i_1] = 0.0f;
  mbarrier_wait(full, 0);
  wgmma_settle<32>(acc);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  const unsigned long long sa_operand = wgmma_operand(sa, 0x4000004000010000ULL);
  const unsigned long long sb_operand = wgmma_operand(sb, 0x4000004000010000ULL);
  wgmma_m64n64k16_bf16_nt(acc, sa_operand, sb_operand);
  wgmma_m64n64k16_bf16_nt(acc, sa_operand + 2, sb_operand + 128);
  wgmma_m64n64k16_bf16_nt(acc, sa_operand + 4, sb_operand + 256);
  wgmma_m64n64k16_bf16_nt(acc, sa_operand + 6, sb_operand + 384);
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  wgmma_settle<32>(acc);
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  const int warp = t / 32;
  const int quad = t / 4 % 8;
  const int pair = t % 4;
  #pragma unroll
  for (int octet = 0; octet < 8; ++octet) {
    *(float2 *)(c + r * 4096 + warp * 1024 + quad * 64 + octet * 8 + pair * 2) = float2{acc[octet * 4], acc[octet * 4 + 1]};
  }
  #pragma unroll
  for (int octet_1 = 0; octet_1 < 8; ++octet_1) {
    *(float2 *)(c + r * 4096 + warp * 1024 + quad * 64 + octet_1 * 8 + pair * 2 + 512) = float2{acc[octet_1 * 4 + 2], acc[octet_1 * 4 + 3]};
  }
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

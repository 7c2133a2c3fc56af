// Expected of a file test.
// sm_90a; workspace 0 bytes
// split_bf16_turned: 1 x 1 x 1 blocks of 128 x 1 x 1 threads
#define KG_FN static __device__ __forceinline__

KG_FN unsigned f32_to_bf16x2(float low, float high) {
  unsigned pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
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
template <int n> KG_FN void wgmma_settle(float *sums) {
  #pragma unroll
  for (int i = 0; i < n; ++i) asm volatile("" : "+f"(sums[i]) :: "memory");
}
template <int n> KG_FN void wgmma_settle_operand(unsigned *operand) {
  #pragma unroll
  for (int i = 0; i < n; ++i) asm volatile("" : "+r"(operand[i]) :: "memory");
}
KG_FN unsigned long long wgmma_operand(const void *p, unsigned long long layout) {
  return layout | (shared_address(p) & 0x3ffffu) >> 4;
}
KG_FN void split_bf16_2(unsigned &part0, unsigned &part1, float low, float high) {
  part0 = f32_to_bf16x2(low, high);
  low -= __uint_as_float(part0 << 16);
  high -= __uint_as_float(part0 & 0xffff0000u);
  part1 = f32_to_bf16x2(low, high);
}
KG_FN void wgmma_m64n32k16_bf16_held_t(float *sums, const unsigned *a, unsigned long long b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 "
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
    "{%16, %17, %18, %19}, %20, 1, 1, 1, 1;" :
    "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]), "+f"(sums[4]), "+f"(sums[5]),
    "+f"(sums[6]), "+f"(sums[7]), "+f"(sums[8]), "+f"(sums[9]), "+f"(sums[10]), "+f"(sums[11]),
    "+f"(sums[12]), "+f"(sums[13]), "+f"(sums[14]), "+f"(sums[15]) :
    "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

extern "C" __global__ void __launch_bounds__(128) split_bf16_turned(const float *__restrict__ a, float *__restrict__ c, const __grid_constant__ tensor_map b_map) {
  __shared__ __align__(512) unsigned short sb[2048];
  __shared__ __align__(16) unsigned long long full[1];
  const int own_warp = (int)(threadIdx.x / 32 % 4);
  const int lane = (int)(threadIdx.x % 32);
  float acc[16];
  unsigned rows[32];
  const int t = (int)threadIdx.x;
  if (t == 0) {
    mbarrier_init(full, 1);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  __syncthreads();
  if (t == 0) {
    mbarrier_expect(full, 4096);
    tma_load_2d(sb, b_map, full, 0, 0);
  }
  mbarrier_wait(full, 0);
  #pragma unroll
  for (int i = 0; i < 16; ++i) acc[i] = 0.0f;
  split_bf16_2(rows[0], rows[16], a[own_warp * 16 + lane / 4 + lane % 4 * 128], a[own_warp * 16 + lane / 4 + lane % 4 * 128 + 64]);
  split_bf16_2(rows[1], rows[17], a[own_warp * 16 + lane / 4 + lane % 4 * 128 + 8], a[own_warp * 16 + lane / 4 + lane % 4 * 128 + 72]);
  split_bf16_2(rows[2], rows[18], a[own_warp * 16 + lane / 4 + lane % 4 * 128 + 512], a[own_warp * 16 + lane / 4 + lane % 4 * 128 + 576]);
  split_bf16_2(rows[3], rows[19], a[own_warp * 16 + lane / 4 + lane % 4 * 128 + 520], a[own_warp * 16 + lane / 4 + lane % 4 * 128 + 584]);
  split_bf16_2(rows[4], rows[20], a[own_warp * 16 + lane / 4 + lane % 4 * 128 + 1024], a[own_warp * 16 + lane / 4 + lane % 4 * 128 + 1088]);
  split_bf16_2(rows[5], rows[21], a[own_warp * 16 + lane / 4 + lane % 4 * 128 + 1032], a[own_warp * 16 + lane / 4 + lane % 4 * 128 + 1096]);
  split_bf16_2(rows[6], rows[22], a[own_warp * 16 + lane / 4 + lane % 4 * 128 + 1536], a[own_warp * 16 + lane / 4 + lane % 4 * 128 + 1600]);
  split_bf16_2(rows[7], rows[23], a[own_warp * 16 + lane / 4 + lane % 4 * 128 + 1544], a[own_warp * 16 + lane / 4 + lane % 4 * 128 + 1608]);
  split_bf16_2(rows[8], rows[24], a[own_warp * 16 + lane / 4 + lane % 4 * 128 + 2048], a[own_warp * 16 + lane / 4 + lane % 4 * 128 + 2112]);
  split_bf16_2(rows[9], rows[25], a[own_warp * 16 + lane / 4 + lane % 4 * 128 + 2056], a[own_warp * 16 + lane / 4 + lane % 4 * 128 + 2120]);
  split_bf16_2(rows[10], rows[26], a[own_warp * 16 + lane / 4 + lane % 4 * 128 + 2560], a[own_warp * 16 + lane / 4 + lane % 4 * 128 + 2624]);
  split_bf16_2(rows[11], rows[27], a[own_warp * 16 + lane / 4 + lane % 4 * 128 + 2568], a[own_warp * 16 + lane / 4 + lane % 4 * 128 + 2632]);
  split_bf16_2(rows[12], rows[28], a[own_warp * 16 + lane / 4 + lane % 4 * 128 + 3072], a[own_warp * 16 + lane / 4 + lane % 4 * 128 + 3136]);
  split_bf16_2(rows[13], rows[29], a[own_warp * 16 + lane / 4 + lane % 4 * 128 + 3080], a[own_warp * 16 + lane / 4 + lane % 4 * 128 + 3144]);
  split_bf16_2(rows[14], rows[30], a[own_warp * 16 + lane / 4 + lane % 4 * 128 + 3584], a[own_warp * 16 + lane / 4 + lane % 4 * 128 + 3648]);
  split_bf16_2(rows[15], rows[31], a[own_warp * 16 + lane / 4 + lane % 4 * 128 + 3592], a[own_warp * 16 + lane / 4 + lane % 4 * 128 + 3656]);
  wgmma_settle_operand<32>(rows);
  wgmma_settle<16>(acc);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  const unsigned long long sb_operand = wgmma_operand(sb, 0x8000002000010000ULL);
  wgmma_m64n32k16_bf16_held_t(acc, rows + 16, sb_operand);
  wgmma_m64n32k16_bf16_held_t(acc, rows + 20, sb_operand + 64);
  wgmma_m64n32k16_bf16_held_t(acc, rows + 24, sb_operand + 128);
  wgmma_m64n32k16_bf16_held_t(acc, rows + 28, sb_operand + 192);
  const unsigned long long sb_operand_1 = wgmma_operand(sb, 0x8000002000010000ULL);
  wgmma_m64n32k16_bf16_held_t(acc, rows, sb_operand_1);
  wgmma_m64n32k16_bf16_held_t(acc, rows + 4, sb_operand_1 + 64);
  wgmma_m64n32k16_bf16_held_t(acc, rows + 8, sb_operand_1 + 128);
  wgmma_m64n32k16_bf16_held_t(acc, rows + 12, sb_operand_1 + 192);
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  wgmma_settle<16>(acc);
  const int warp = t / 32;
  const int quad = t / 4 % 8;
  const int pair = t % 4;
  #pragma unroll
  for (int octet = 0; octet < 4; ++octet) {
    *(float2 *)(c + warp * 512 + quad * 32 + octet * 8 + pair * 2) = float2{acc[octet * 4], acc[octet * 4 + 1]};
  }
  #pragma unroll
  for (int octet_1 = 0; octet_1 < 4; ++octet_1) {
    *(float2 *)(c + warp * 512 + quad * 32 + octet_1 * 8 + pair * 2 + 256) = float2{acc[octet_1 * 4 + 2], acc[octet_1 * 4 + 3]};
  }
}

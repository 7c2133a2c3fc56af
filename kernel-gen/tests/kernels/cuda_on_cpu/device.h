// What emitted CUDA C++ asks of its compiler, said in C++ for a CPU. The threads of a block take turns on one thread of the
// system: each runs until it has to wait for others, so a kernel is run the same way each time. Blocks run one after the
// other. Of the C++ library nothing is included: that would take longer to compile than most kernels.
#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define __global__ static
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static
#define __align__(n) __attribute__((aligned(n)))

struct index3 { unsigned x, y, z; };
static index3 threadIdx, blockIdx;

// What threads wait for each other with. `turns` counts the times that all have come, and a thread waits for the next.
struct barrier {
  unsigned size, come, turns;
};
static void next_thread();
// Counts what a thread may wait for: where it stands still and all wait, they wait for ever.
static unsigned long long happened;
static void barrier_wait(barrier &b) {
  const unsigned turn = b.turns;
  ++happened;
  if (++b.come == b.size) {
    b.come = 0;
    ++b.turns;
  }
  while (b.turns == turn) next_thread();
}
static barrier block_barrier;
static void __syncthreads() { barrier_wait(block_barrier); }
static __attribute__((aligned(1024))) unsigned char shared_memory[232448];

struct float2 { float x, y; };
struct float4 { float x, y, z, w; };
struct double2 { double x, y; };
struct int2 { int x, y; };
struct int4 { int x, y, z, w; };
struct uint2 { unsigned x, y; };
struct uint4 { unsigned x, y, z, w; };
struct longlong2 { long long x, y; };
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

template <class To, class From> static To bits(From v) {
  To out;
  memcpy(&out, &v, sizeof out);
  return out;
}
static inline float __uint_as_float(unsigned v) { return bits<float>(v); }
static inline float __int_as_float(int v) { return bits<float>(v); }
static inline unsigned __float_as_uint(float v) { return bits<unsigned>(v); }
static inline double __longlong_as_double(long long v) { return bits<double>(v); }

// Products of four bytes each and their sum.
template <class A, class B> static inline int cpu_dot4(int sum, unsigned a, unsigned b) {
  for (int i = 0; i < 4; ++i) sum = (int)((unsigned)sum + (unsigned)((A)(a >> 8 * i) * (B)(b >> 8 * i)));
  return sum;
}
static inline int dot4_ss(int sum, unsigned a, unsigned b) { return cpu_dot4<signed char, signed char>(sum, a, b); }
static inline int dot4_su(int sum, unsigned a, unsigned b) { return cpu_dot4<signed char, unsigned char>(sum, a, b); }
static inline int dot4_us(int sum, unsigned a, unsigned b) { return cpu_dot4<unsigned char, signed char>(sum, a, b); }
static inline int dot4_uu(int sum, unsigned a, unsigned b) { return cpu_dot4<unsigned char, unsigned char>(sum, a, b); }

static inline float cpu_f16_to_f32(unsigned short h) {
  const int exponent = h >> 10 & 31, mantissa = h & 0x3ff;
  const float sign = h & 0x8000 ? -1.0f : 1.0f;
  if (exponent == 0) return sign * ldexpf((float)mantissa, -24);
  if (exponent == 31) return sign * (mantissa ? NAN : INFINITY);
  return sign * ldexpf((float)(mantissa | 0x400), exponent - 25);
}
static inline unsigned short cpu_f32_to_f16(float f) {
  const unsigned u = bits<unsigned>(f), sign = u >> 16 & 0x8000u, magnitude = u & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return sign | 0x7e00;
  if (magnitude >= 0x47800000u) return sign | 0x7c00;
  if (magnitude < 0x38800000u) return sign | (bits<unsigned>(bits<float>(magnitude) + 0.5f) - 0x3f000000u);
  return sign | (magnitude - (112u << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
}
static inline unsigned short cpu_f32_to_bf16(float f) {
  const unsigned u = bits<unsigned>(f);
  if ((u & 0x7fffffffu) > 0x7f800000u) return u >> 16 | 0x40;
  return (u + 0x7fff + (u >> 16 & 1)) >> 16;
}

// Floats of eight bits, by their definition: so many bits of fraction, and the bias of the exponent.
static inline float cpu_f8_to_f32(unsigned char h, int fraction, int bias) {
  const int exponent = (h & 0x7f) >> fraction, rest = h & ((1 << fraction) - 1);
  const float sign = h & 0x80 ? -1.0f : 1.0f;
  if (fraction == 3 && (h & 0x7f) == 0x7f) return NAN;
  if (fraction == 2 && exponent == 31) return sign * (rest ? NAN : INFINITY);
  if (exponent == 0) return sign * ldexpf((float)rest, 1 - bias - fraction);
  return sign * ldexpf((float)(rest | 1 << fraction), exponent - bias - fraction);
}
static inline float cpu_e4m3_to_f32(unsigned char h) { return cpu_f8_to_f32(h, 3, 7); }
static inline float cpu_e5m2_to_f32(unsigned char h) { return cpu_f8_to_f32(h, 2, 15); }
// The nearest of all that there are, of two that are as near the even one.
template <class Widen> static unsigned char cpu_nearest_f8(float f, Widen widen, int largest) {
  if (f != f) return 0x7f;
  int best = 0;
  for (int h = 1; h <= largest; ++h) {
    const float now = fabsf(fabsf(f) - widen(h)), before = fabsf(fabsf(f) - widen(best));
    if (now < before || (now == before && h % 2 == 0)) best = h;
  }
  if (fabsf(f) > widen(largest)) best = largest;
  return (unsigned char)(best | (signbit(f) ? 0x80 : 0));
}
static inline unsigned char cpu_f32_to_e4m3(float f) { return cpu_nearest_f8(f, cpu_e4m3_to_f32, 0x7e); }
static inline unsigned char cpu_f32_to_e5m2(float f) { return cpu_nearest_f8(f, cpu_e5m2_to_f32, 0x7b); }

// Instructions of a warp: lanes put their operands where the others see them, and wait for each other.
static barrier warp_barriers[32], warpgroup_barriers[8], named_barriers[16];
struct warp_mail {
  const void *row[32];
  unsigned a[32][4], b[32][4];
};
static warp_mail mail[32];
static inline unsigned linear_thread();
static inline void warp_wait() { barrier_wait(warp_barriers[linear_thread() / 32]); }
static inline void warpgroup_wait() { barrier_wait(warpgroup_barriers[linear_thread() / 128]); }
static void __syncwarp() { warp_wait(); }

static inline void cp_async_4(void *to, const void *from, bool read) { read ? memcpy(to, from, 4) : memset(to, 0, 4); }
static inline void cp_async_8(void *to, const void *from, bool read) { read ? memcpy(to, from, 8) : memset(to, 0, 8); }
static inline void cp_async_16(void *to, const void *from, bool read) {
  read ? memcpy(to, from, 16) : memset(to, 0, 16);
}

// PTX ISA, "shfl.sync": the value of the lane whose number differs in the bits of the mask.
static inline float shuffle_xor(unsigned mask, float value) {
  const unsigned lane = linear_thread() % 32;
  warp_mail &m = mail[linear_thread() / 32];
  memcpy(m.a[lane], &value, 4);
  warp_wait();
  float other;
  memcpy(&other, m.a[lane ^ mask], 4);
  warp_wait();
  return other;
}

// Lane l gives row l % 8 of matrix l / 8, and gets elements 2 (l % 4) and the next of row l / 4 of each, or of column
// l / 4 where the matrices are transposed.
static inline void ldmatrix(unsigned *to, const void *row, bool transposed, int matrices = 4) {
  const unsigned lane = linear_thread() % 32;
  warp_mail &m = mail[linear_thread() / 32];
  m.row[lane] = row;
  warp_wait();
  for (int i = 0; i < matrices; ++i) {
    unsigned short pair[2];
    for (int e = 0; e < 2; ++e) {
      const int r = transposed ? lane % 4 * 2 + e : lane / 4, c = transposed ? lane / 4 : lane % 4 * 2 + e;
      pair[e] = ((const unsigned short *)m.row[i * 8 + r])[c];
    }
    to[i] = pair[0] | (unsigned)pair[1] << 16;
  }
  warp_wait();
}
static inline void mma_ldmatrix(unsigned *to, const void *row) { ldmatrix(to, row, false); }
static inline void mma_ldmatrix_half(unsigned *to, const void *row) { ldmatrix(to, row, false, 2); }
static inline void mma_ldmatrix_transposed(unsigned *to, const void *row) { ldmatrix(to, row, true); }

// PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type".
template <class Widen> static void mma(float *sums, const unsigned *a, const unsigned *b, Widen widen) {
  const unsigned lane = linear_thread() % 32;
  warp_mail &m = mail[linear_thread() / 32];
  memcpy(m.a[lane], a, 16);
  memcpy(m.b[lane], b, 8);
  warp_wait();
  const auto half = [&](unsigned pair, int odd) { return widen((unsigned short)(odd ? pair >> 16 : pair)); };
  for (int i = 0; i < 4; ++i) {
    const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
    for (int k = 0; k < 16; ++k) {
      const float left = half(m.a[row % 8 * 4 + k % 8 / 2][row / 8 + k / 8 * 2], k % 2);
      const float right = half(m.b[column * 4 + k % 8 / 2][k / 8], k % 2);
      sums[i] += left * right;
    }
  }
  warp_wait();
}
static inline void mma_m16n8k16_f16(float *sums, const unsigned *a, const unsigned *b) {
  mma(sums, a, b, cpu_f16_to_f32);
}
static inline float cpu_bf16_to_f32(unsigned short h) { return bits<float>((unsigned)h << 16); }
static inline void mma_m16n8k16_bf16(float *sums, const unsigned *a, const unsigned *b) {
  mma(sums, a, b, cpu_bf16_to_f32);
}

// PTX ISA, "Matrix Fragments for mma.m16n8k32" of integers.
template <class A, class B> static void mma_bytes(int *sums, const unsigned *a, const unsigned *b) {
  const unsigned lane = linear_thread() % 32;
  warp_mail &m = mail[linear_thread() / 32];
  memcpy(m.a[lane], a, 16);
  memcpy(m.b[lane], b, 8);
  warp_wait();
  for (int i = 0; i < 4; ++i) {
    const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
    for (int k = 0; k < 32; ++k) {
      const A left = (A)(m.a[row % 8 * 4 + k % 16 / 4][row / 8 + k / 16 * 2] >> k % 4 * 8);
      const B right = (B)(m.b[column * 4 + k % 16 / 4][k / 16] >> k % 4 * 8);
      sums[i] += left * right;
    }
  }
  warp_wait();
}
#define MMA_BYTES(a, A, b, B)                                                                                  \
  static inline void mma_m16n8k32_##a##_##b(int *sums, const unsigned *left, const unsigned *right) {          \
    mma_bytes<A, B>(sums, left, right);                                                                        \
  }
MMA_BYTES(s8, signed char, s8, signed char)
MMA_BYTES(s8, signed char, u8, unsigned char)
MMA_BYTES(u8, unsigned char, s8, signed char)
MMA_BYTES(u8, unsigned char, u8, unsigned char)

// Sums of two neighbours in a register. They are rounded once an instruction.
template <class Pair> static void widen_pairs(float *to, const Pair *from, int pairs) {
  for (int i = 0; i < 2 * pairs; ++i) to[i] = cpu_f16_to_f32((unsigned short)(from[i / 2].both >> i % 2 * 16));
}
template <class Pair> static void narrow_pairs(Pair *to, const float *from, int pairs) {
  for (int i = 0; i < pairs; ++i) {
    to[i].both = cpu_f32_to_f16(from[2 * i]) | (unsigned)cpu_f32_to_f16(from[2 * i + 1]) << 16;
  }
}
template <class Pair> static void mma_m16n8k16_f16_f16(Pair *sums, const unsigned *a, const unsigned *b) {
  float wide[4];
  widen_pairs(wide, sums, 2);
  mma(wide, a, b, cpu_f16_to_f32);
  narrow_pairs(sums, wide, 2);
}

// wmma on tiles of 16 x 16. Nobody may know the layout, so here it is one of its own: lane l has the eight elements from
// 8 l on, row by row, and of an operand's eight registers the last four hold nothing. Rows are aligned as PTX asks.
static inline const void *wmma_row(const void *tile, int stride, int row, size_t element, size_t alignment) {
  const unsigned char *at = (const unsigned char *)tile + (size_t)row * stride * element;
  if ((size_t)at % alignment != 0) abort();
  return at;
}
template <class T> static T wmma_element(const void *tile, int stride, bool transposed, int i, size_t alignment) {
  const int own = linear_thread() % 32 * 8 + i, row = own / 16, column = own % 16;
  const T *at = (const T *)wmma_row(tile, stride, transposed ? column : row, sizeof(T), alignment);
  return at[transposed ? row : column];
}
static void wmma_load_operand(unsigned *to, const void *tile, int stride, bool transposed) {
  for (int i = 0; i < 8; ++i) to[i] = 0x7e007e00;
  for (int i = 0; i < 4; ++i) {
    const unsigned low = wmma_element<unsigned short>(tile, stride, transposed, 2 * i, 32);
    to[i] = low | (unsigned)wmma_element<unsigned short>(tile, stride, transposed, 2 * i + 1, 32) << 16;
  }
}
#define WMMA_LOAD(operand, suffix)                                                                             \
  static inline void wmma_load_##operand##suffix(unsigned *to, const void *tile, int stride) {                 \
    wmma_load_operand(to, tile, stride, false);                                                                \
  }                                                                                                            \
  static inline void wmma_load_##operand##_t##suffix(unsigned *to, const void *tile, int stride) {             \
    wmma_load_operand(to, tile, stride, true);                                                                 \
  }
WMMA_LOAD(a, ) WMMA_LOAD(b, ) WMMA_LOAD(a, _global) WMMA_LOAD(b, _global)
#define WMMA_SUMS(suffix)                                                                                      \
  static inline void wmma_load_sums_f32##suffix(float *to, const void *tile, int stride) {                     \
    for (int i = 0; i < 8; ++i) to[i] = wmma_element<float>(tile, stride, false, i, 32);                       \
  }                                                                                                            \
  template <class Pair> static void wmma_load_sums_f16##suffix(Pair *to, const void *tile, int stride) {       \
    for (int i = 0; i < 4; ++i) {                                                                              \
      const unsigned low = wmma_element<unsigned short>(tile, stride, false, 2 * i, 16);                       \
      to[i].both = low | (unsigned)wmma_element<unsigned short>(tile, stride, false, 2 * i + 1, 16) << 16;     \
    }                                                                                                          \
  }                                                                                                            \
  static inline void wmma_store_sums_f32##suffix(void *tile, const float *from, int stride) {                  \
    const unsigned own = linear_thread() % 32 * 8;                                                             \
    memcpy((float *)wmma_row(tile, stride, own / 16, 4, 32) + own % 16, from, 32);                             \
  }                                                                                                            \
  template <class Pair> static void wmma_store_sums_f16##suffix(void *tile, const Pair *from, int stride) {    \
    const unsigned own = linear_thread() % 32 * 8;                                                             \
    memcpy((unsigned short *)wmma_row(tile, stride, own / 16, 2, 16) + own % 16, from, 16);                    \
  }
WMMA_SUMS() WMMA_SUMS(_global)
static void wmma(float *sums, const unsigned *a, const unsigned *b) {
  const unsigned lane = linear_thread() % 32;
  warp_mail &m = mail[linear_thread() / 32];
  memcpy(m.a[lane], a, 16);
  memcpy(m.b[lane], b, 16);
  warp_wait();
  const auto half = [](const unsigned (*of)[4], int row, int column) {
    const int at = row * 16 + column;
    return cpu_f16_to_f32((unsigned short)(of[at / 8][at % 8 / 2] >> at % 2 * 16));
  };
  for (int i = 0; i < 8; ++i) {
    const int own = lane * 8 + i;
    for (int k = 0; k < 16; ++k) sums[i] += half(m.a, own / 16, k) * half(m.b, k, own % 16);
  }
  warp_wait();
}
// An operand's order is that of its load; a fragment here is the matrix itself.
#define WMMA(orders)                                                                                           \
  static inline void wmma_m16n16k16_f32_##orders(float *sums, const unsigned *a, const unsigned *b) {          \
    wmma(sums, a, b);                                                                                          \
  }                                                                                                            \
  template <class Pair> static void wmma_m16n16k16_f16_##orders(Pair *sums, const unsigned *a, const unsigned *b) { \
    float wide[8];                                                                                             \
    widen_pairs(wide, sums, 4);                                                                                \
    wmma(wide, a, b);                                                                                          \
    narrow_pairs(sums, wide, 4);                                                                               \
  }
WMMA(nn) WMMA(nt) WMMA(tn) WMMA(tt)

// Barriers that count arrivals and bytes.
#define __grid_constant__
struct mbarrier {
  int bytes;
  unsigned phase : 1, arrivals : 15, missing : 16;
};
static void mbarrier_change(unsigned long long *on, int bytes, int arrivals) {
  mbarrier &b = *(mbarrier *)on;
  ++happened;
  b.bytes += bytes;
  b.missing -= arrivals;
  if (b.bytes == 0 && b.missing == 0) {
    b.phase ^= 1;
    b.missing = b.arrivals;
  }
}
static inline void mbarrier_init(unsigned long long *on, int arrivals) {
  mbarrier b = {0, 0, (unsigned)arrivals, (unsigned)arrivals};
  memcpy(on, &b, 8);
}
static inline void mbarrier_arrive(unsigned long long *on) { mbarrier_change(on, 0, 1); }
static inline void mbarrier_expect(unsigned long long *on, int bytes) { mbarrier_change(on, bytes, 1); }
static inline void mbarrier_wait(unsigned long long *on, int parity) {
  while (((volatile mbarrier *)on)->phase == (unsigned)parity) next_thread();
}
static void bar_sync(int id, int threads) {
  named_barriers[id].size = threads;
  barrier_wait(named_barriers[id]);
}

// The copy engine: boxes of tensors, fastest dimension first, under the address map of shared memory.
struct tensor_map {
  unsigned char *base;
  int rank, element;
  unsigned long long dims[5], strides[5];
  unsigned box[5], steps[5], swizzle;
};
static inline size_t swizzled(size_t address, unsigned row) { return row ? address ^ (address >> 3 & (row - 16)) : address; }
template <class Move> static int each_of_box(const tensor_map &map, const int *at, void *shared, Move move) {
  unsigned n[5] = {1, 1, 1, 1, 1}, i[5];
  int count = 0;
  for (int d = 0; d < map.rank; ++d) n[d] = (map.box[d] + map.steps[d] - 1) / map.steps[d];
  // A row of an address map is as long as that says, however much of it is moved.
  const size_t row = map.swizzle ? map.swizzle : n[0] * map.element;
  for (i[4] = 0; i[4] < n[4]; ++i[4])
    for (i[3] = 0; i[3] < n[3]; ++i[3])
      for (i[2] = 0; i[2] < n[2]; ++i[2])
        for (i[1] = 0; i[1] < n[1]; ++i[1])
          for (i[0] = 0; i[0] < n[0]; ++i[0]) {
            bool inside = true;
            unsigned char *global = map.base;
            for (int d = 0; d < map.rank; ++d) {
              const long long c = at[d] + (long long)i[d] * map.steps[d];
              inside &= 0 <= c && c < (long long)map.dims[d];
              global += c * (long long)(d == 0 ? map.element : map.strides[d - 1]);
            }
            const size_t place = count++ / n[0] * row + i[0] * map.element;
            move(inside, global, (unsigned char *)swizzled((size_t)shared + place, map.swizzle));
          }
  return count * map.element;
}
static void tma_load(void *to, const tensor_map &map, unsigned long long *on, const int *at) {
  const int bytes = each_of_box(map, at, to, [&](bool inside, unsigned char *global, unsigned char *shared) {
    inside ? memcpy(shared, global, map.element) : memset(shared, 0, map.element);
  });
  mbarrier_change(on, -bytes, 0);
}
static void tma_store(const tensor_map &map, const void *from, const int *at) {
  each_of_box(map, at, (void *)from, [&](bool inside, unsigned char *global, unsigned char *shared) {
    if (inside) memcpy(global, shared, map.element);
  });
}
#define TMA(rank)                                                                                              \
  template <class... C>                                                                                        \
  static void tma_load_##rank##d(void *to, const tensor_map &map, unsigned long long *on, C... c) {            \
    const int at[] = {c...};                                                                                   \
    tma_load(to, map, on, at);                                                                                 \
  }                                                                                                            \
  template <class... C> static void tma_store_##rank##d(const tensor_map &map, const void *from, C... c) {     \
    const int at[] = {c...};                                                                                   \
    tma_store(map, from, at);                                                                                  \
  }
TMA(1) TMA(2) TMA(3) TMA(4) TMA(5)

// Products of a warpgroup: PTX ISA, "Matrix Descriptor Format" and "Canonical Layouts". Bits that a descriptor leaves
// free say which 256 KiB the address is in.
template <int n> static void wgmma_settle(float *) {}
template <int n> static void wgmma_settle_i32(int *) {}
template <int n> static void wgmma_settle_operand(unsigned *) {}
static size_t windows[1024], windows_used;
static unsigned long long wgmma_operand(const void *p, unsigned long long layout) {
  const size_t address = (size_t)p, window = address >> 18;
  size_t i = 0;
  while (i < windows_used && windows[i] != window) ++i;
  if (i == 1024) abort();
  if (i == windows_used) windows[windows_used++] = window;
  return layout | (unsigned long long)i << 52 | (address & 0x3ffff) >> 4;
}
static size_t wgmma_start(unsigned long long operand) {
  const size_t window = windows[operand >> 52 & 0x3ff];
  return (window << 18) + ((operand & 0xffff) << 4);
}
static unsigned short wgmma_element(unsigned long long operand, size_t start, int outer, int k, bool across) {
  const size_t leading = (operand >> 16 & 0x3fff) * 16, stride = (operand >> 32 & 0x3fff) * 16;
  const int row = 256 >> (operand >> 62);
  const size_t offset = across ? outer / (row / 2) * leading + k / 8 * stride + k % 8 * row + outer % (row / 2) * 2
                               : outer / 8 * stride + outer % 8 * row + k * 2;
  return *(const unsigned short *)swizzled(start + offset, row);
}
template <int columns, class Widen>
static void wgmma(float *sums, unsigned long long a, unsigned long long b, bool left, bool right, Widen widen) {
  const int thread = linear_thread() % 128, lane = thread % 32;
  const size_t from_a = wgmma_start(a), from_b = wgmma_start(b);
  for (int i = 0; i < columns / 2; ++i) {
    const int row = thread / 32 * 16 + lane / 4 + i % 4 / 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
    for (int k = 0; k < 16; ++k) {
      sums[i] += widen(wgmma_element(a, from_a, row, k, left)) * widen(wgmma_element(b, from_b, column, k, right));
    }
  }
}

// Both operands are floats in shared memory, rows along the reduction. Of a float the last 13 bits do not count.
static float wgmma_tf32_element(unsigned long long operand, size_t start, int outer, int k) {
  const size_t stride = (operand >> 32 & 0x3fff) * 16;
  const int row = 256 >> (operand >> 62);
  const unsigned v = *(const unsigned *)swizzled(start + outer / 8 * stride + outer % 8 * row + k * 4, row);
  return bits<float>(v & 0xffffe000u);
}
template <int columns> static void wgmma_tf32_both(float *sums, unsigned long long a, unsigned long long b) {
  const int thread = linear_thread() % 128, lane = thread % 32;
  const size_t from_a = wgmma_start(a), from_b = wgmma_start(b);
  for (int i = 0; i < columns / 2; ++i) {
    const int row = thread / 32 * 16 + lane / 4 + i % 4 / 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
    for (int k = 0; k < 8; ++k) {
      sums[i] += wgmma_tf32_element(a, from_a, row, k) * wgmma_tf32_element(b, from_b, column, k);
    }
  }
}

// Both operands are bytes in shared memory, rows along the reduction.
template <class T> static T wgmma_byte(unsigned long long operand, size_t start, int outer, int k) {
  const size_t stride = (operand >> 32 & 0x3fff) * 16;
  const int row = 256 >> (operand >> 62);
  return *(const T *)swizzled(start + outer / 8 * stride + outer % 8 * row + k, row);
}
template <int columns, class A, class B> static void wgmma_bytes(int *sums, unsigned long long a, unsigned long long b) {
  const int thread = linear_thread() % 128, lane = thread % 32;
  const size_t from_a = wgmma_start(a), from_b = wgmma_start(b);
  for (int i = 0; i < columns / 2; ++i) {
    const int row = thread / 32 * 16 + lane / 4 + i % 4 / 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
    for (int k = 0; k < 32; ++k) sums[i] += wgmma_byte<A>(a, from_a, row, k) * wgmma_byte<B>(b, from_b, column, k);
  }
}

// The same of floats of eight bits.
template <int columns, class A, class B>
static void wgmma_f8(float *sums, unsigned long long a, unsigned long long b, A widen_a, B widen_b) {
  const int thread = linear_thread() % 128, lane = thread % 32;
  const size_t from_a = wgmma_start(a), from_b = wgmma_start(b);
  for (int i = 0; i < columns / 2; ++i) {
    const int row = thread / 32 * 16 + lane / 4 + i % 4 / 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
    for (int k = 0; k < 32; ++k) {
      sums[i] += widen_a(wgmma_byte<unsigned char>(a, from_a, row, k)) * widen_b(wgmma_byte<unsigned char>(b, from_b, column, k));
    }
  }
}

// The left operand is in registers: PTX ISA, "Register Fragments for wgmma.mma_async.m64nNk8". Of a float the last 13 bits
// do not count.
template <int columns> static void wgmma_tf32(float *sums, const unsigned *a, unsigned long long b) {
  const int thread = linear_thread() % 128, lane = thread % 32;
  warp_mail &m = mail[linear_thread() / 32];
  const size_t from_b = wgmma_start(b), stride = (b >> 32 & 0x3fff) * 16;
  const int row_bytes = 256 >> (b >> 62);
  const auto tf32 = [](unsigned v) { return bits<float>(v & 0xffffe000u); };
  memcpy(m.a[lane], a, 16);
  warp_wait();
  for (int i = 0; i < columns / 2; ++i) {
    const int row = lane / 4 + i % 4 / 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
    for (int k = 0; k < 8; ++k) {
      const size_t offset = column / 8 * stride + column % 8 * row_bytes + k * 4;
      const unsigned right = *(const unsigned *)swizzled(from_b + offset, row_bytes);
      sums[i] += tf32(m.a[row % 8 * 4 + k % 4][row / 8 + k / 4 * 2]) * tf32(right);
    }
  }
  warp_wait();
}

// The same with two elements in a register: PTX ISA, "Register Fragments for wgmma.mma_async.m64nNk16".
template <int columns, class Widen>
static void wgmma_held(float *sums, const unsigned *a, unsigned long long b, bool right, Widen widen) {
  const int thread = linear_thread() % 128, lane = thread % 32;
  warp_mail &m = mail[linear_thread() / 32];
  const size_t from_b = wgmma_start(b);
  memcpy(m.a[lane], a, 16);
  warp_wait();
  for (int i = 0; i < columns / 2; ++i) {
    const int row = lane / 4 + i % 4 / 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
    for (int k = 0; k < 16; ++k) {
      const unsigned pair = m.a[row % 8 * 4 + k % 8 / 2][row / 8 + k / 8 * 2];
      sums[i] += widen((unsigned short)(pair >> k % 2 * 16)) * widen(wgmma_element(b, from_b, column, k, right));
    }
  }
  warp_wait();
}

// Runs `body` as every thread of every block.
struct Run {
  index3 grid, block;
  void (*body)(void);
};
static const Run *current;
static inline unsigned linear_thread() {
  return threadIdx.x + current->block.x * (threadIdx.y + current->block.y * threadIdx.z);
}
// A thread of a block: where it goes on, and what it goes on with.
struct turn {
  jmp_buf at;
  index3 index;
  bool ended;
  char *stack;
};
static turn turns[1024];
static unsigned threads, running, ended;
static ucontext_t first_turns, launcher;
static const size_t STACK = 256 << 10;
static void go_on() {
  threadIdx = turns[running].index;
  _longjmp(turns[running].at, 1);
}
// The next thread that has not ended goes on.
static void next_thread() {
  static unsigned long long waited, last;
  waited = last == happened ? waited + 1 : 0;
  last = happened;
  if (waited > 4 * (unsigned long long)threads) {
    fprintf(stderr, "all threads wait\n");
    abort();
  }
  if (_setjmp(turns[running].at)) return;
  do running = (running + 1) % threads;
  while (turns[running].ended);
  go_on();
}
static void thread_main() {
  // Only the first jump to a new stack asks the system for one.
  if (!_setjmp(turns[running].at)) swapcontext(&first_turns, &launcher);
  current->body();
  turns[running].ended = true;
  ++happened;
  if (++ended == threads) setcontext(&launcher);
  next_thread();
}
static void launch(const Run &r) {
  threads = r.block.x * r.block.y * r.block.z;
  current = &r;
  if (threads > 1024) abort();
  for (unsigned b = 0, n = r.grid.x * r.grid.y * r.grid.z; b < n; ++b) {
    blockIdx = {b % r.grid.x, b / r.grid.x % r.grid.y, b / (r.grid.x * r.grid.y)};
    block_barrier = {threads, 0, 0};
    for (unsigned w = 0; w < 32; ++w) warp_barriers[w] = {threads < 32 * w + 32 ? threads - 32 * w : 32, 0, 0};
    for (barrier &w : warpgroup_barriers) w = {128, 0, 0};
    for (barrier &named : named_barriers) named = {0, 0, 0};
    ended = 0;
    for (running = 0; running < threads; ++running) {
      turn &t = turns[running];
      const unsigned i = running;
      t.index = {i % r.block.x, i / r.block.x % r.block.y, i / (r.block.x * r.block.y)};
      t.ended = false;
      if (!t.stack) t.stack = (char *)malloc(STACK);
      getcontext(&first_turns);
      first_turns.uc_stack.ss_sp = t.stack;
      first_turns.uc_stack.ss_size = STACK;
      makecontext(&first_turns, thread_main, 0);
      swapcontext(&launcher, &first_turns);
    }
    // The last thread to end comes back to here.
    running = 0;
    static volatile bool begun;
    begun = false;
    getcontext(&launcher);
    if (!begun) {
      begun = true;
      go_on();
    }
  }
}

// Buffers come and go by standard input and output.
static unsigned char *buffer(size_t bytes) {
  void *p = NULL;
  if (posix_memalign(&p, 256, bytes + 256)) abort();
  memset(p, 0x7b, bytes + 256);
  return (unsigned char *)p;
}

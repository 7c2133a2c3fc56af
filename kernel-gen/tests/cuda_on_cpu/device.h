// What emitted CUDA C++ asks of its compiler, said in C++ for the threads of a CPU: one thread of the system is one
// thread of a block, and blocks run one after the other.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <pthread.h>
#include <vector>

#define __global__ static
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static
#define __align__(n) __attribute__((aligned(n)))

struct index3 { unsigned x, y, z; };
static thread_local index3 threadIdx;
static index3 blockIdx;
static pthread_barrier_t block_barrier;
static void __syncthreads() { pthread_barrier_wait(&block_barrier); }
static __attribute__((aligned(1024))) unsigned char shared_memory[232448];

struct float2 { float x, y; };
struct float4 { float x, y, z, w; };
struct double2 { double x, y; };
struct int2 { int x, y; };
struct int4 { int x, y, z, w; };
struct uint2 { unsigned x, y; };
struct uint4 { unsigned x, y, z, w; };
struct longlong2 { long long x, y; };

template <class To, class From> static To bits(From v) {
  To out;
  memcpy(&out, &v, sizeof out);
  return out;
}
static inline float __uint_as_float(unsigned v) { return bits<float>(v); }
static inline float __int_as_float(int v) { return bits<float>(v); }
static inline unsigned __float_as_uint(float v) { return bits<unsigned>(v); }
static inline double __longlong_as_double(long long v) { return bits<double>(v); }

static inline float cpu_f16_to_f32(unsigned short h) {
  const int exponent = h >> 10 & 31, mantissa = h & 0x3ff;
  const float sign = h & 0x8000 ? -1.0f : 1.0f;
  if (exponent == 0) return sign * std::ldexp((float)mantissa, -24);
  if (exponent == 31) return sign * (mantissa ? NAN : INFINITY);
  return sign * std::ldexp((float)(mantissa | 0x400), exponent - 25);
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

// Instructions of a warp: lanes put their operands where the others see them, and wait for each other.
static pthread_barrier_t warp_barriers[32];
struct warp_mail {
  const void *row[32];
  unsigned a[32][4], b[32][2];
};
static warp_mail mail[32];
static inline unsigned linear_thread();
static inline void warp_wait() { pthread_barrier_wait(&warp_barriers[linear_thread() / 32]); }
static void __syncwarp() { warp_wait(); }

static inline void cp_async_4(void *to, const void *from, bool read) { read ? memcpy(to, from, 4) : memset(to, 0, 4); }
static inline void cp_async_8(void *to, const void *from, bool read) { read ? memcpy(to, from, 8) : memset(to, 0, 8); }
static inline void cp_async_16(void *to, const void *from, bool read) {
  read ? memcpy(to, from, 16) : memset(to, 0, 16);
}

// Lane l gives row l % 8 of matrix l / 8, and gets elements 2 (l % 4) and the next of row l / 4 of each, or of column
// l / 4 where the matrices are transposed.
static inline void ldmatrix(unsigned *to, const void *row, bool transposed) {
  const unsigned lane = linear_thread() % 32;
  warp_mail &m = mail[linear_thread() / 32];
  m.row[lane] = row;
  warp_wait();
  for (int i = 0; i < 4; ++i) {
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
static inline void mma_m16n8k16_bf16(float *sums, const unsigned *a, const unsigned *b) {
  mma(sums, a, b, [](unsigned short h) { return bits<float>((unsigned)h << 16); });
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
static void *thread_main(void *linear) {
  const unsigned i = (unsigned)(size_t)linear;
  const Run &r = *current;
  threadIdx = {i % r.block.x, i / r.block.x % r.block.y, i / (r.block.x * r.block.y)};
  for (unsigned b = 0, n = r.grid.x * r.grid.y * r.grid.z; b < n; ++b) {
    if (pthread_barrier_wait(&block_barrier) == PTHREAD_BARRIER_SERIAL_THREAD) {
      blockIdx = {b % r.grid.x, b / r.grid.x % r.grid.y, b / (r.grid.x * r.grid.y)};
    }
    pthread_barrier_wait(&block_barrier);
    r.body();
  }
  return nullptr;
}
static void launch(const Run &r) {
  const unsigned threads = r.block.x * r.block.y * r.block.z;
  current = &r;
  pthread_barrier_init(&block_barrier, nullptr, threads);
  for (unsigned w = 0; w * 32 < threads; ++w) {
    pthread_barrier_init(&warp_barriers[w], nullptr, threads - w * 32 < 32 ? threads - w * 32 : 32);
  }
  std::vector<pthread_t> ids(threads);
  for (unsigned i = 0; i < threads; ++i) {
    if (pthread_create(&ids[i], nullptr, thread_main, (void *)(size_t)i)) abort();
  }
  for (pthread_t id : ids) pthread_join(id, nullptr);
  for (unsigned w = 0; w * 32 < threads; ++w) pthread_barrier_destroy(&warp_barriers[w]);
  pthread_barrier_destroy(&block_barrier);
}

// Buffers come and go by standard input and output.
static unsigned char *buffer(size_t bytes) {
  void *p = nullptr;
  if (posix_memalign(&p, 256, bytes + 256)) abort();
  memset(p, 0x7b, bytes + 256);
  return (unsigned char *)p;
}

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

// Runs `body` as every thread of every block.
struct Run {
  index3 grid, block;
  void (*body)(void);
};
static const Run *current;
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
  std::vector<pthread_t> ids(threads);
  for (unsigned i = 0; i < threads; ++i) {
    if (pthread_create(&ids[i], nullptr, thread_main, (void *)(size_t)i)) abort();
  }
  for (pthread_t id : ids) pthread_join(id, nullptr);
  pthread_barrier_destroy(&block_barrier);
}

// Buffers come and go by standard input and output.
static unsigned char *buffer(size_t bytes) {
  void *p = nullptr;
  if (posix_memalign(&p, 256, bytes + 256)) abort();
  memset(p, 0x7b, bytes + 256);
  return (unsigned char *)p;
}

// What nvcc and NVRTC know without a header, for a clang that has no CUDA beside it.
#pragma once

#define __host__ __attribute__((host))
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
// Without the attribute a parameter whose address is taken is copied to local memory, where no tensor map may be: better
// an older clang stops at the name.
#if __clang_major__ >= 20
#define __grid_constant__ __attribute__((grid_constant))
#endif
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(n) __attribute__((aligned(n)))

// Reading a member of an index reads the register.
#define KG_INDEX(name, x_, y_, z_)                                                                                     \
    struct kg_##name {                                                                                                 \
        KG_MEMBER(x, x_) KG_MEMBER(y, y_) KG_MEMBER(z, z_)                                                             \
    };                                                                                                                 \
    extern const __device__ __attribute__((weak)) kg_##name name;
#define KG_MEMBER(member, value)                                                                                       \
    __declspec(property(get = kg_get_##member)) unsigned member;                                                       \
    static __device__ __forceinline__ unsigned kg_get_##member() { return value; }
KG_INDEX(threadIdx, __nvvm_read_ptx_sreg_tid_x(), __nvvm_read_ptx_sreg_tid_y(), __nvvm_read_ptx_sreg_tid_z())
KG_INDEX(blockIdx, __nvvm_read_ptx_sreg_ctaid_x(), __nvvm_read_ptx_sreg_ctaid_y(), __nvvm_read_ptx_sreg_ctaid_z())
KG_INDEX(blockDim, __nvvm_read_ptx_sreg_ntid_x(), __nvvm_read_ptx_sreg_ntid_y(), __nvvm_read_ptx_sreg_ntid_z())
KG_INDEX(gridDim, __nvvm_read_ptx_sreg_nctaid_x(), __nvvm_read_ptx_sreg_nctaid_y(), __nvvm_read_ptx_sreg_nctaid_z())
#undef KG_MEMBER
#undef KG_INDEX

#define KG_VECTORS(type, name)                                                                                         \
    struct alignas(2 * sizeof(type)) name##2 { type x, y; };                                                           \
    struct alignas(sizeof(type) < 8 ? 4 * sizeof(type) : 16) name##4 { type x, y, z, w; };                             \
    static __device__ __forceinline__ name##2 make_##name##2(type x, type y) { return {x, y}; }                        \
    static __device__ __forceinline__ name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }
KG_VECTORS(float, float)
KG_VECTORS(double, double)
KG_VECTORS(int, int)
KG_VECTORS(unsigned, uint)
KG_VECTORS(short, short)
KG_VECTORS(unsigned short, ushort)
KG_VECTORS(signed char, char)
KG_VECTORS(unsigned char, uchar)
KG_VECTORS(long long, longlong)
KG_VECTORS(unsigned long long, ulonglong)
#undef KG_VECTORS

#define KG_FUNCTION static __device__ __forceinline__
KG_FUNCTION float __int_as_float(int x) { return __builtin_bit_cast(float, x); }
KG_FUNCTION int __float_as_int(float x) { return __builtin_bit_cast(int, x); }
KG_FUNCTION float __uint_as_float(unsigned x) { return __builtin_bit_cast(float, x); }
KG_FUNCTION unsigned __float_as_uint(float x) { return __builtin_bit_cast(unsigned, x); }
KG_FUNCTION double __longlong_as_double(long long x) { return __builtin_bit_cast(double, x); }
KG_FUNCTION long long __double_as_longlong(double x) { return __builtin_bit_cast(long long, x); }
KG_FUNCTION float fmaf(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
KG_FUNCTION double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
KG_FUNCTION float fabsf(float x) { return __builtin_fabsf(x); }
KG_FUNCTION double fabs(double x) { return __builtin_fabs(x); }
KG_FUNCTION float sqrtf(float x) { return __builtin_sqrtf(x); }
KG_FUNCTION double sqrt(double x) { return __builtin_sqrt(x); }
KG_FUNCTION void __syncwarp(unsigned mask = 0xffffffffu) { __nvvm_bar_warp_sync(mask); }
KG_FUNCTION unsigned long long __cvta_generic_to_shared(const void *p) {
    return (unsigned long long)(__attribute__((address_space(3))) const void *)p;
}
#undef KG_FUNCTION

//! Words of CUDA C++ that no variable or buffer may be called.

use crate::emit::clike::names::Reserved;

/// The further words of C++, what every kernel sees, macros of the headers that nvcc includes by itself, and functions that
/// the emitted code calls.
#[rustfmt::skip]
pub(super) const RESERVED: Reserved = Reserved {
    words: &[
        "alignas", "alignof", "and", "and_eq", "bitand", "bitor", "bool", "catch", "char16_t", "char32_t", "char8_t",
        "class", "co_await", "co_return", "co_yield", "compl", "concept", "const_cast", "consteval", "constexpr",
        "constinit", "decltype", "delete", "dynamic_cast", "explicit", "export", "false", "friend", "mutable",
        "namespace", "new", "noexcept", "not", "not_eq", "nullptr", "operator", "or", "or_eq", "private", "protected",
        "public", "reinterpret_cast", "requires", "static_assert", "static_cast", "template", "this", "thread_local",
        "throw", "true", "try", "typeid", "typename", "using", "virtual", "wchar_t", "xor", "xor_eq", "threadIdx",
        "blockIdx", "blockDim", "gridDim", "warpSize", "dim3", "shared_memory", "float2", "float4", "double2", "int2",
        "int4", "uint2", "uint4", "longlong2", "NULL", "EOF", "HUGE_VAL", "RAND_MAX", "BUFSIZ", "assert", "stdin",
        "stdout", "stderr", "errno", "fabsf", "fabs", "sqrtf", "sqrt", "expf", "exp", "tanhf", "tanh", "erff", "erf",
        "lo16", "hi16", "shared_address",
    ],
    prefixes: &[
        "dot2", "dot4_",
        "f32_to_", "f16_to_", "bf16_to_", "min_", "max_", "floor_", "wgmma_", "mma_", "tma_", "mbarrier_", "cp_async",
    ],
    parts: &[],
};

//! Words of CUDA C++ that no variable or buffer may be called.

use crate::emit::names::Reserved;

/// The language's own words, what every kernel sees, macros of the headers that nvcc includes by itself, and functions
/// that the emitted code calls.
pub(super) const RESERVED: Reserved = Reserved { words: WORDS, helper };

#[rustfmt::skip]
const WORDS: &[&str] = &[
    "alignas", "alignof", "and", "and_eq", "asm", "auto", "bitand", "bitor", "bool", "break", "case", "catch", "char",
    "char16_t", "char32_t", "char8_t", "class", "co_await", "co_return", "co_yield", "compl", "concept", "const",
    "const_cast", "consteval", "constexpr", "constinit", "continue", "decltype", "default", "delete", "do", "double",
    "dynamic_cast", "else", "enum", "explicit", "export", "extern", "false", "float", "for", "friend", "goto", "if",
    "inline", "int", "long", "mutable", "namespace", "new", "noexcept", "not", "not_eq", "nullptr", "operator", "or",
    "or_eq", "private", "protected", "public", "register", "reinterpret_cast", "requires", "restrict", "return", "short",
    "signed", "sizeof", "static", "static_assert", "static_cast", "struct", "switch", "template", "this", "thread_local",
    "throw", "true", "try", "typedef", "typeid", "typename", "typeof", "union", "unsigned", "using", "virtual", "void",
    "volatile", "wchar_t", "while", "xor", "xor_eq",
    "threadIdx", "blockIdx", "blockDim", "gridDim", "warpSize", "dim3", "shared_memory",
    "float2", "float4", "double2", "int2", "int4", "uint2", "uint4", "longlong2",
    "main", "linux", "unix", "i386", "INFINITY", "NAN", "NULL", "EOF", "HUGE_VAL", "RAND_MAX", "BUFSIZ", "assert",
    "stdin", "stdout", "stderr", "errno",
    "fabsf", "fabs", "sqrtf", "sqrt", "expf", "exp", "tanhf", "tanh", "erff", "erf",
    "lo16", "hi16", "shared_address",
];

/// Whether a name could be that of a function of the prelude.
fn helper(n: &str) -> bool {
    #[rustfmt::skip]
    const PREFIXES: [&str; 11] =
        ["f32_to_", "f16_to_", "bf16_to_", "min_", "max_", "floor_", "wgmma_", "mma_", "tma_", "mbarrier_", "cp_async"];
    PREFIXES.iter().any(|p| n.starts_with(p))
}

//! What a target allows.

/// Resource limits that a kernel is held against. `target::Target::limits` gives those of a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Shared memory of one block.
    pub shared_bytes: i64,
    /// Threads of one block; 0 where the target has no blocks, and so no grid, no threads and no barriers.
    pub threads_per_block: i64,
    /// Threads of a block along x, y and z.
    pub block_dim: [i64; 3],
    /// Blocks of a grid along x, y and z.
    pub grid_dim: [i64; 3],
    /// Registers of one thread, of 32 bits each, that register arrays may take; `None` where the compiler spills at
    /// will.
    pub registers_per_thread: Option<i64>,
    /// Whether a vector access of global or shared memory must be aligned to its own size.
    pub require_vector_alignment: bool,
    /// The largest vector that one access moves; longer ones are split by the emitter, so this bounds the alignment
    /// that is needed.
    pub vector_bytes: i64,
    /// Whether no thread knows which elements of a fragment it holds, as before compute capability 7.5.
    pub opaque_fragments: bool,
}

impl Limits {
    /// Any CPU: no blocks of threads, unaligned vectors allowed, spilled registers.
    pub fn cpu() -> Limits {
        Limits {
            shared_bytes: 0,
            threads_per_block: 0,
            block_dim: [0; 3],
            grid_dim: [0; 3],
            registers_per_thread: None,
            require_vector_alignment: false,
            vector_bytes: 64,
            opaque_fragments: false,
        }
    }

    /// What every CUDA device since compute capability 7.0 has without opting in (CUDA C++ Programming Guide, table
    /// "Technical Specifications per Compute Capability"). Fragments are those of compute capability 7.5 and later.
    pub fn cuda() -> Limits {
        Limits {
            shared_bytes: 48 * 1024,
            threads_per_block: 1024,
            block_dim: [1024, 1024, 64],
            grid_dim: [i32::MAX as i64, 65535, 65535],
            registers_per_thread: Some(255),
            require_vector_alignment: true,
            vector_bytes: 16,
            opaque_fragments: false,
        }
    }
}

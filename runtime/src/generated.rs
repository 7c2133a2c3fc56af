//! What generated code names: constructors of the tables, in a module with a number.
//!
//! The number is that of the format of generated code. A generator says which format it writes, and the macro
//! `generated!` takes it or says which crate to update. A change that older generated code would not compile with,
//! or would mean something else by, is a new number.
//!
//! This is not for use by hand: nothing is checked here, every promise is the caller's.

/// Takes what a generator wrote, if it is in the format that this runtime reads; else one error says what to update.
#[doc(hidden)]
#[macro_export]
macro_rules! generated {
    (format 2, by $generator:literal; $($items:tt)*) => { $($items)* };
    (format $format:literal, by $generator:literal; $($items:tt)*) => {
        ::core::compile_error!(::core::concat!(
            $generator,
            " writes generated code in format ",
            $format,
            ", and this kernel-gen-runtime reads format 2: update the dependency kernel-gen-runtime to the version of the build-dependency kernel-gen-build"
        ));
    };
}

/// Format 2.
pub mod v2 {
    use crate::dispatch::{CudaTable, MAX_PARAMS, PhaseFn, Units};
    use crate::{DType, Isa};

    pub use crate::dispatch::{
        About, Access, Choice, Entry, First, Function, Pack, Param, Phase, Program, Variant, preload,
    };

    /// A parameter of a workload. It promises nothing: an [`entry`] does.
    pub const fn param(name: &'static str, dtype: DType, shape: &'static [usize], access: Access) -> Param {
        Param { name, dtype, shape, access }
    }

    /// A function of the spec. Its workloads have the same parameters, but for their shapes.
    pub const fn function(name: &'static str, entries: &'static [&'static Entry]) -> Function {
        Function { name, entries }
    }

    /// A phase.
    ///
    /// # Safety
    /// `func`, in a program whose sizes are stated in its [`program`] and with the arguments that its [`entry`] (or
    /// [`pack`]) states, must access only these arguments (writing only those that are not read-only), the
    /// `workspace_bytes` at the start of the workspace and its own worker's `worker_bytes` behind them; and calls for
    /// disjoint parts of `0..extent` with different workers must not race. With `first`, that holds for the iterations which that
    /// says, of each number of units that the entry (and the [`variant`]) allows.
    pub const unsafe fn phase(func: PhaseFn, extent: usize, first: Option<First>) -> Phase {
        Phase { func, extent, first }
    }

    /// A program.
    ///
    /// # Safety
    /// The sizes must be those that the phases were promised.
    pub const unsafe fn program(phases: &'static [Phase], workspace_bytes: usize, worker_bytes: usize) -> Program {
        Program { phases, workspace_bytes, worker_bytes }
    }

    /// The packed form of a parameter.
    ///
    /// # Safety
    /// `program` takes the entry's parameter `param` and `bytes` bytes, and writes all of them that the variant reads.
    pub const unsafe fn pack(param: usize, bytes: usize, program: Program) -> Pack {
        Pack { param, bytes, program, name: "" }
    }

    /// The same, called by a name.
    ///
    /// # Safety
    /// All of one name make the same bytes of the same weight.
    pub const unsafe fn named(name: &'static str, pack: Pack) -> Pack {
        Pack { name, ..pack }
    }

    /// The code for a level.
    ///
    /// # Safety
    /// The C functions are compiled for `isa` or a lower level, and take the parameters in `packs` packed; for any number of
    /// units up to `most`.
    pub const unsafe fn variant(
        isa: Isa,
        most: usize,
        program: Program,
        packs: &'static [Pack],
        choice: Choice,
        symbol: &'static str,
    ) -> Variant {
        Variant { isa, most, program, packs, choice, symbol }
    }

    /// That the first dimension of these parameters holds `least` to `most` units. It promises nothing: an [`entry`] does.
    pub const fn units(least: usize, most: usize, params: &'static [usize]) -> Option<Units> {
        Some(Units { least, most, params })
    }

    /// A workload.
    ///
    /// # Safety
    /// All programs in `variants` and `cuda` are of kernels with these parameters. Each level and each architecture occurs
    /// once, or with `units` once for each number that it has the `most` of, all with weights packed in one form, and the last for
    /// all units. The parameters of `units` have `most` units as their first extent. Every packed parameter, `weight` among them,
    /// is one of `params` that is only read, and whose units do not vary.
    pub const unsafe fn entry(
        about: About,
        params: &'static [Param],
        weight: Option<usize>,
        units: Option<Units>,
        variants: &'static [Variant],
        cuda: CudaTable,
    ) -> Entry {
        assert!(params.len() <= MAX_PARAMS, "the generator keeps to the limit");
        Entry { about, params, weight, units, variants, cuda }
    }

    /// The same for GPUs.
    #[cfg(feature = "cuda")]
    pub mod cuda {
        use crate::cuda::{MAX_KERNEL_ARGS, MAX_TENSOR_MAPS};
        use crate::dispatch::Choice;

        pub use crate::cuda::{Arch, KernelArg, Launch, Pack, Program, Slot, TensorMapSpec, Variant};

        /// A program. `image` is a bundle of compiled code as the generator writes it.
        ///
        /// # Safety
        /// No other program has `slot`. The kernels of the image that the launches name, run with these grids and blocks
        /// and with the arguments that the entry (or the [`pack`]) states, must take exactly the parameters that
        /// each launch lists, and must access only these arguments (writing only those that are not read-only) and the
        /// `workspace_bytes` at the start of the workspace. The tensor maps must lie within what they are based on. A
        /// launch with an `overlap` must keep to what that says.
        pub const unsafe fn program(
            image: &'static [u8],
            slot: &'static Slot,
            launches: &'static [Launch],
            maps: &'static [TensorMapSpec],
            workspace_bytes: usize,
        ) -> Program {
            assert!(maps.len() <= MAX_TENSOR_MAPS, "the generator keeps to the limit");
            let mut i = 0;
            while i < launches.len() {
                assert!(launches[i].args.len() <= MAX_KERNEL_ARGS, "the generator keeps to the limit");
                i += 1;
            }
            Program { image, slot, launches, maps, workspace_bytes }
        }

        /// The packed form of a parameter.
        ///
        /// # Safety
        /// `program` takes the entry's parameter `param` and `bytes` bytes, and writes all of them that the variant reads.
        pub const unsafe fn pack(param: usize, bytes: usize, program: Program) -> Pack {
            Pack { param, bytes, program }
        }

        /// The code for an architecture.
        ///
        /// # Safety
        /// The kernels run on devices of this architecture, for any number of units up to `most`, take the parameters in `packs` packed, and need no buffer to be
        /// aligned to more than `align` bytes.
        pub const unsafe fn variant(
            arch: Arch,
            most: usize,
            program: Program,
            packs: &'static [Pack],
            align: u64,
            choice: Choice,
        ) -> Variant {
            assert!(align > 0, "every address is a multiple of 1 at least");
            Variant { arch, most, program, packs, align, choice }
        }
    }
}

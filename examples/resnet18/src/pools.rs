//! The pooling layers on a GPU, of this network and of `examples/networks`, written by hand: launches of them with the tables
//! that the generator writes for its own kernels. The constructors of tables are not part of the runtime's stable interface:
//! their module has the number of the format, and goes when the format changes.
#![allow(unsafe_code, reason = "the tables of kernels written by hand, as the generator writes them for its own")]

use kernel_gen_runtime::cuda::{Arch, KernelArg, Launch, Program, Slot, Variant};
use kernel_gen_runtime::dispatch::{Access, Entry, Param};
use kernel_gen_runtime::generated::v2;
use kernel_gen_runtime::{Cuda, D2, D4, DType, Element, F16, Input, Output, Result, Shape};

/// A pooling layer from one shape to another, of elements of type `E`.
pub trait Pool<X: Shape, Y: Shape>: Element {
    /// The kernel.
    const ENTRY: &'static Entry;
}

/// Runs the layer that goes from the one shape to the other.
pub fn pool<E: Pool<X, Y>, X: Shape, Y: Shape>(
    dev: &Cuda,
    x: &impl Input<Cuda, Elem = E, Shape = X>,
    y: &mut impl Output<Cuda, Elem = E, Shape = Y>,
) -> Result<()> {
    E::ENTRY.launch(dev, &[x.arg(dev), y.arg_mut(dev)])
}

const fn param<E: Element, S: Shape>(name: &'static str, access: Access) -> Param {
    let dtype: DType = E::DTYPE;
    v2::param(name, dtype, S::DIMS, access)
}

const CHOICE: v2::Choice = v2::Choice {
    template: "written by hand",
    config: "",
    origin: "written by hand",
    origin_detail: "written by hand",
    cost_us: None,
};

const fn launch(kernel: &'static str, blocks: u32, threads: u32, overlap: Option<&'static [usize]>) -> Launch {
    let (grid, block) = ([blocks, 1, 1], [threads, 1, 1]);
    let args = &[KernelArg::Param(0), KernelArg::Param(1)];
    Launch { kernel, grid, block, cluster: [1; 3], shared_bytes: 0, overlap, early_units: 1, first: None, args }
}

/// `pool!(element, from, to: kernel, blocks, threads)`.
macro_rules! pool {
    ($E:ty, $X:ty, $Y:ty: $kernel:literal, $blocks:literal, $threads:literal) => {
        impl Pool<$X, $Y> for $E {
            const ENTRY: &'static Entry = {
                static OLDER: Slot = Slot::new();
                static NEWER: Slot = Slot::new();
                const fn older() -> Program {
                    const LAUNCH: &[Launch] = &[launch($kernel, $blocks, $threads, None)];
                    let image = include_bytes!(concat!(env!("OUT_DIR"), "/pools.sm_80.kgi"));
                    // SAFETY: with this many threads the kernel reads the elements of its first argument and writes those
                    // of the second, which have these shapes, as `kernels/pools.cu` says.
                    unsafe { v2::cuda::program(image, &OLDER, LAUNCH, &[], 0) }
                }
                const fn newer() -> Program {
                    // For this architecture it waits before it touches anything, and lets the next kernel go.
                    const LAUNCH: &[Launch] = &[launch($kernel, $blocks, $threads, Some(&[]))];
                    let image = include_bytes!(concat!(env!("OUT_DIR"), "/pools.sm_90.kgi"));
                    // SAFETY: as above.
                    unsafe { v2::cuda::program(image, &NEWER, LAUNCH, &[], 0) }
                }
                const fn variant(arch: Arch, program: Program) -> Variant {
                    // SAFETY: the programs are compiled for these architectures. The kernels take elements of 4 and 2 bytes.
                    unsafe { v2::cuda::variant(arch, 1, program, &[], 16, CHOICE) }
                }
                static VARIANTS: [Variant; 2] = [
                    variant(Arch { name: "sm_90", capability: (9, 0), exact: false }, newer()),
                    variant(Arch { name: "sm_80", capability: (8, 0), exact: false }, older()),
                ];
                const ABOUT: v2::About =
                    v2::About { name: $kernel, workload: $kernel, flops: 0, bytes: 0, no_code: "" };
                const PARAMS: &[Param] = &[param::<$E, $X>("x", Access::Read), param::<$E, $Y>("y", Access::Write)];
                // SAFETY: these are the parameters that the variants' kernels take.
                static ENTRY: Entry = unsafe { v2::entry(ABOUT, PARAMS, None, None, &[], &VARIANTS) };
                &ENTRY
            };
        }
    };
}

pool!(f32, D4<1, 64, 112, 112>, D4<1, 64, 56, 56>: "max_pool_nchw_f32", 128, 392);
pool!(F16, D4<1, 112, 112, 64>, D4<1, 56, 56, 64>: "max_pool_nhwc_f16", 128, 196);
pool!(f32, D4<1, 512, 7, 7>, D2<1, 512>: "average_pool_nchw_f32", 128, 128);
pool!(f32, D4<1, 2048, 7, 7>, D2<1, 2048>: "average_pool_nchw_f32", 128, 512);
pool!(F16, D4<1, 7, 7, 512>, D2<1, 512>: "average_pool_nhwc_f16", 16, 224);
pool!(F16, D4<1, 7, 7, 2048>, D2<1, 2048>: "average_pool_nhwc_f16", 64, 224);

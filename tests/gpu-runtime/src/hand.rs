//! The tables of the kernels written by hand, and functions for them as the generator writes them.

use kernel_gen_runtime::cuda::{Arch, KernelArg, Launch, Slot, TensorMapSpec};
use kernel_gen_runtime::dispatch::{Access, Entry, Param};
use kernel_gen_runtime::generated::v2::{self, cuda::program};
use kernel_gen_runtime::{D1, DType, Device, Input, Output, Result};

const SM_80: Arch = Arch { name: "sm_80", capability: (8, 0), exact: false };
const SM_90: Arch = Arch { name: "sm_90", capability: (9, 0), exact: false };
const SM_90A: Arch = Arch { name: "sm_90a", capability: (9, 0), exact: true };

/// The bundle that the build script made of a kernel.
macro_rules! image {
    ($name:literal) => {
        include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".kgi"))
    };
}

const CHOICE: v2::Choice =
    v2::Choice { template: "by hand", config: "", origin: "by hand", origin_detail: "written by hand", cost_us: None };

/// A variant of one program, within an `entry!`.
macro_rules! variant {
    ($arch:expr, $program:expr, $packs:expr) => {
        v2::cuda::variant($arch, 1, $program, $packs, 16, CHOICE)
    };
}

/// An entry whose second parameter of three is its weight.
macro_rules! entry {
    ($name:literal, $params:expr, $cuda:expr $(,)?) => {{
        const PARAMS: &[Param] = $params;
        const ABOUT: v2::About = v2::About { name: $name, workload: $name, flops: 0, bytes: 0, no_code: "" };
        const WEIGHT: Option<usize> = if PARAMS.len() == 3 { Some(1) } else { None };
        // SAFETY: the kernels access what their sources show, which is what the tables say.
        unsafe { v2::entry(ABOUT, PARAMS, WEIGHT, None, &[], $cuda) }
    }};
}

const fn param(name: &'static str, shape: &'static [usize], access: Access) -> Param {
    v2::param(name, DType::F32, shape, access)
}

const fn launch(kernel: &'static str, grid: u32, block: u32, args: &'static [KernelArg]) -> Launch {
    let (grid, block) = ([grid, 1, 1], [block, 1, 1]);
    Launch { kernel, grid, block, cluster: [1; 3], shared_bytes: 0, overlap: None, early_units: 1, first: None, args }
}

const X_AND_Y: &[Param] = &[param("x", &[1000], Access::Read), param("y", &[1000], Access::Write)];
const BOTH: &[KernelArg] = &[KernelArg::Param(0), KernelArg::Param(1)];

/// Two launches that share workspace, and a packed weight.
macro_rules! add {
    ($arch:expr, $image:expr, $first:ident, $second:ident) => {
        variant!(
            $arch,
            program(
                $image,
                &$first,
                &[
                    launch("add_first", 1, 1, &[KernelArg::Workspace(256)]),
                    launch(
                        "add_second",
                        8,
                        128,
                        &[KernelArg::Param(0), KernelArg::Param(1), KernelArg::Param(2), KernelArg::Workspace(256)],
                    ),
                ],
                &[],
                512,
            ),
            &[v2::cuda::pack(1, 4000, program($image, &$second, &[launch("add_pack", 8, 128, BOTH)], &[], 0))]
        )
    };
}

static ADD_90A: Slot = Slot::new();
static ADD_90A_PACK: Slot = Slot::new();
static ADD_80: Slot = Slot::new();
static ADD_80_PACK: Slot = Slot::new();

/// `y = 2 w + x`.
pub(crate) static ADD: Entry = entry!(
    "add",
    &[param("x", &[1000], Access::Read), param("w", &[1000], Access::Read), param("y", &[1000], Access::Write)],
    &[add!(SM_90A, image!("add.sm_90a"), ADD_90A, ADD_90A_PACK), add!(SM_80, image!("add.sm_80"), ADD_80, ADD_80_PACK)],
);

static INCREMENT_SLOT: Slot = Slot::new();

/// `y += x`.
pub(crate) static INCREMENT: Entry = entry!(
    "increment",
    X_AND_Y,
    &[variant!(
        SM_80,
        program(image!("increment.sm_80"), &INCREMENT_SLOT, &[launch("increment", 8, 128, BOTH)], &[], 0),
        &[]
    )],
);

static COLD_SLOT: Slot = Slot::new();

/// The same, never loaded before it is captured.
pub(crate) static COLD: Entry = entry!(
    "cold",
    X_AND_Y,
    &[variant!(
        SM_80,
        program(image!("increment.sm_80"), &COLD_SLOT, &[launch("increment", 8, 128, BOTH)], &[], 0),
        &[]
    )],
);

static BIG_SHARED_SLOT: Slot = Slot::new();

/// Reverses through 100 KiB of shared memory.
pub(crate) static BIG_SHARED: Entry = entry!(
    "big_shared",
    &[param("x", &[25600], Access::Read), param("y", &[25600], Access::Write)],
    &[variant!(
        SM_80,
        program(
            image!("big_shared.sm_80"),
            &BIG_SHARED_SLOT,
            &[Launch { shared_bytes: 102_400, ..launch("big_shared", 1, 256, BOTH) }],
            &[],
            0,
        ),
        &[]
    )],
);

static CLUSTER_SLOT: Slot = Slot::new();

/// Adds each block's rank in its cluster of 4.
pub(crate) static CLUSTER: Entry = entry!(
    "cluster",
    X_AND_Y,
    &[variant!(
        SM_90,
        program(
            image!("cluster.sm_90"),
            &CLUSTER_SLOT,
            &[Launch { cluster: [4, 1, 1], ..launch("cluster", 8, 125, BOTH) }],
            &[],
            0,
        ),
        &[]
    )],
);

static TENSOR_MAP_SLOT: Slot = Slot::new();

/// Copies a box that reaches out of a matrix.
pub(crate) static TENSOR_MAP: Entry = entry!(
    "tensor_map",
    &[param("x", &[32, 64], Access::Read), param("y", &[8, 32], Access::Write)],
    &[variant!(
        SM_90,
        program(
            image!("tensor_map.sm_90"),
            &TENSOR_MAP_SLOT,
            &[launch("tensor_map", 1, 32, &[KernelArg::Map(0), KernelArg::Param(1)])],
            &[TensorMapSpec {
                base: KernelArg::Param(0),
                // CU_TENSOR_MAP_DATA_TYPE_FLOAT32.
                data_type: 7,
                rank: 2,
                dims: [64, 32, 1, 1, 1],
                rows: 0,
                strides: [256, 0, 0, 0],
                box_dims: [32, 8, 1, 1, 1],
                steps: [1; 5],
                swizzle: 0,
            }],
            0,
        ),
        &[]
    )],
);

static PROGRAMMATIC_SLOT: Slot = Slot::new();

/// Halves and reverses, in two launches that overlap.
pub(crate) static PROGRAMMATIC: Entry = entry!(
    "programmatic",
    X_AND_Y,
    &[variant!(
        SM_90,
        program(
            image!("programmatic.sm_90"),
            &PROGRAMMATIC_SLOT,
            &[
                launch("programmatic_first", 8, 128, &[KernelArg::Param(0), KernelArg::Workspace(0)]),
                Launch {
                    overlap: Some(&[]),
                    early_units: 1,
                    first: None,
                    ..launch("programmatic_second", 8, 128, &[KernelArg::Param(1), KernelArg::Workspace(0)])
                },
            ],
            &[],
            4096,
        ),
        &[]
    )],
);

static FOREIGN_SLOT: Slot = Slot::new();

/// A table that says that the code runs everywhere, which it does not: the bundle holds code for 9.0 only.
pub(crate) static WRONG_IMAGE: Entry = entry!(
    "wrong_image",
    &[param("x", &[32], Access::Read), param("y", &[32], Access::Write)],
    &[variant!(
        SM_80,
        // The kernel has another name than the launch says, so nothing is ever launched.
        program(image!("shrink.sm_90a"), &FOREIGN_SLOT, &[launch("not_shrink", 1, 32, BOTH)], &[], 0),
        &[]
    )],
);

/// A function of one input and one output, as the generator writes it.
pub(crate) fn map<Dev: Device, X, Y>(entry: &'static Entry, dev: &Dev, x: &X, y: &mut Y) -> Result<()>
where
    X: Input<Dev, Elem = f32>,
    Y: Output<Dev, Elem = f32>,
{
    entry.launch(dev, &[x.arg(dev), y.arg_mut(dev)])
}

/// The typed function of [`INCREMENT`].
pub(crate) fn increment<Dev: Device>(
    dev: &Dev,
    x: &impl Input<Dev, Elem = f32, Shape = D1<1000>>,
    y: &mut impl Output<Dev, Elem = f32, Shape = D1<1000>>,
) -> Result<()> {
    INCREMENT.launch(dev, &[x.arg(dev), y.arg_mut(dev)])
}

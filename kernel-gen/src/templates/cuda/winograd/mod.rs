//! 3x3 convolutions of many images by Winograd's minimal filtering, in three launches: `F(2x2)` has 2.25 times and `F(4x4)`
//! four times fewer multiplications than the definition.
//!
//! ```text
//! data[k, ci, tile]      = B^T d B                                    k: place in the tile     (transforms.rs)
//! products[k, co, tile]  = sum over ci of w[k, ci, co] * data[k, ci, tile]                     (products.rs)
//! y                      = epilogue(A^T products A)                                            (transforms.rs)
//! ```
//! `data` and `products` are a workspace. Tiles of all images stand side by side in it, so that neighbouring threads touch
//! neighbouring elements in all three launches and both operands of the products lie as shared memory wants them. What the
//! transforms move is `2 (m + 2)^2 / m^2` times the input and the output, from and to memory where it does not fit into the
//! L2 cache: `rounds` cuts the images into groups that pass through the launches one after the other.
//!
//! | knob | values | what it chooses |
//! |---|---|---|
//! | `m` | 2, 4 | outputs of a tile along each dimension, as far as the precision class allows |
//! | `rounds` | 1, 2, 4 | groups of images |
//! | `block_channels`, `block_tiles` | 32 to 128; 32 to 256 | output channels and tiles of a block of the products |
//! | `own_channels`, `own_tiles` | 4, 8 | those of a thread |
//! | `step` | 8, 16 | input channels that a block waits for at a time |
//! | `stages` | 2 to 4 | slots of the ring |
//!
//! # Precision
//! The matrices are those of the CPU's template, and so are the classes: `F(2x2)` and `F(4x4)` are of the class `fp32`. Neither is
//! local, so the classes `strict` and `local` have none.

pub mod fused;
mod model;
mod products;
mod tiling;
mod transforms;

use crate::ir::DType;
use crate::ir::builder::KernelBuilder;
use crate::ir::{Kernel, Scope};
use crate::space::{Config, Value};
use crate::target::{Cuda, Target};
use crate::templates::cuda::family::{self, Case, Family, Needs, built, knobs, numbers};
use crate::templates::cuda::model::ceil_div;
use crate::templates::cuda::outer::{LANES, VECTOR};
use crate::templates::cuda::requires::{convolution, device, needs_cp_async, needs_f32};
use crate::templates::winograd::filter::{Filter, NOT_LOCAL, reach, tile_sizes};
use crate::templates::{Scheduled, TemplateError};
use crate::workload::operands::Operands;
use crate::workload::special::Reach;
use crate::workload::{Conv2d, ConvLayout, Param, Role, Workload};
use tiling::Tiling;
use transforms::Packed;

/// See the module's text.
pub struct WinogradConv2d;

/// Rows and columns of the filter.
const TAPS: i64 = 3;
/// Largest tile that is offered.
const MOST_OUTPUTS: i64 = 4;
/// Registers of a thread of the products beside sums and operands.
const OTHER_REGISTERS: i64 = 30;
/// Most threads of a block of the transforms.
const TRANSFORM_THREADS: i64 = 128;

knobs! {
    /// A config with a type.
    struct Sizes {
        /// Outputs of a tile along each dimension.
        m: i64 = "m" in [2, 4];
        /// Groups of images. Each is code of its own, and has a last wave of blocks in each of its launches.
        rounds: i64 = "rounds" in [1, 2, 4];
        /// Output channels and tiles of a block of the products.
        block: [i64; 2] = "block_channels" in BLOCK_CHANNELS, "block_tiles" in BLOCK_TILES;
        /// Output channels and tiles of a thread of it.
        own: [i64; 2] = "own_channels" in [4, 8], "own_tiles" in [4, 8];
        /// Input channels of a step.
        step: i64 = "step" in STEPS;
        /// Slots of the ring.
        stages: i64 = "stages" in STAGES;
    }
}

impl Sizes {
    /// Products of a tile for each pair of channels.
    fn places(&self) -> i64 {
        (self.m + TAPS - 1) * (self.m + TAPS - 1)
    }

    /// Warps of a block of the products along output channels (0) and tiles (1).
    fn warps(&self, dim: usize) -> i64 {
        self.block[dim] / self.own[dim] / LANES[dim]
    }

    /// Threads of a block of the products.
    fn threads(&self) -> i64 {
        Cuda::WARP * self.warps(0) * self.warps(1)
    }

    /// Bytes of shared memory of a block of the products.
    fn shared_bytes(&self) -> i64 {
        4 * self.stages * self.step * (self.block[0] + self.block[1])
    }

    /// Registers of a thread of the products, as far as they can be told beforehand: operands are loaded one term ahead.
    fn registers(&self) -> i64 {
        self.own[0] * self.own[1] + 2 * (self.own[0] + self.own[1]) + OTHER_REGISTERS
    }
}

/// A convolution cut up as a config says.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    c: Conv2d,
    sizes: Sizes,
}

impl Plan {
    /// How outputs are cut into tiles.
    fn tiling(&self) -> Tiling {
        Tiling { c: self.c, m: self.sizes.m }
    }

    /// Images of a round.
    fn images(&self) -> i64 {
        self.c.n / self.sizes.rounds
    }

    /// Tiles of an image.
    fn image_tiles(&self) -> i64 {
        self.tiling().image_tiles()
    }

    /// Tiles of a round, and those that fill up its last block.
    fn padded_tiles(&self) -> i64 {
        ceil_div(self.images() * self.image_tiles(), self.sizes.block[1]) * self.sizes.block[1]
    }

    /// Output channels, and those that fill up the last block.
    fn padded_channels(&self) -> i64 {
        ceil_div(self.c.co, self.sizes.block[0]) * self.sizes.block[0]
    }

    /// Steps of a block of the products.
    fn steps(&self) -> i64 {
        ceil_div(self.c.ci, self.sizes.step)
    }

    /// Threads of a block of the transforms.
    fn transform_threads(&self) -> i64 {
        self.sizes.block[1].min(TRANSFORM_THREADS)
    }

    /// Shape of the transformed input of a round.
    fn data_shape(&self) -> [i64; 3] {
        [self.sizes.places(), self.c.ci, self.padded_tiles()]
    }

    /// Shape of the transformed weights.
    fn weight_shape(&self) -> [i64; 3] {
        [self.sizes.places(), self.steps() * self.sizes.step, self.padded_channels()]
    }

    /// Shape of the products of a round.
    fn product_shape(&self) -> [i64; 3] {
        [self.sizes.places(), self.padded_channels(), self.padded_tiles()]
    }

    /// Blocks of the products of a round.
    fn blocks(&self) -> i64 {
        let [channels, tiles] = self.sizes.block;
        self.sizes.places() * (self.padded_channels() / channels) * (self.padded_tiles() / tiles)
    }
}

impl family::Plan for Plan {
    fn needs(&self) -> Needs {
        Needs {
            threads: self.sizes.threads(),
            registers: self.sizes.registers(),
            shared_bytes: self.sizes.shared_bytes(),
        }
    }

    fn suits(&self, gpu: &Cuda) -> bool {
        let Sizes { rounds, block, own, step, stages, .. } = self.sizes;
        let cut = (0..2).all(|dim| block[dim] % (own[dim] * LANES[dim]) == 0);
        if !cut || self.c.n % rounds != 0 {
            return false;
        }
        let threads = self.sizes.threads();
        // Each thread copies equally many vectors of both operands.
        let even = block.iter().all(|size| size * step / VECTOR % threads == 0);
        // A block half as large would do, and steps that do not exist need no slots.
        let sizes = [self.c.co, self.images() * self.image_tiles()];
        let useful = block.iter().zip(sizes).zip([BLOCK_CHANNELS[0], BLOCK_TILES[0]]);
        let useful = useful.into_iter().all(|((size, all), least)| *size == least || size / 2 < all);
        let useful =
            useful && (stages == STAGES[0] || stages <= self.steps()) && (step == STEPS[0] || step / 2 < self.c.ci);
        let limits = [gpu.grid_dim[1], gpu.grid_dim[2]];
        even && useful && self.c.ci.max(self.c.co) <= limits[0] && self.sizes.places() <= limits[1]
    }

    fn us(&self, w: &Workload, gpu: &Cuda) -> f64 {
        model::us(self, w, gpu)
    }
}

const BLOCK_CHANNELS: [i64; 3] = [32, 64, 128];
const BLOCK_TILES: [i64; 4] = [32, 64, 128, 256];
const STEPS: [i64; 2] = [8, 16];
const STAGES: [i64; 3] = [2, 3, 4];
/// Output tiles that keep the precision class.
fn methods(w: &Workload) -> Vec<i64> {
    tile_sizes([TAPS; 2], [1, 1], w.math).into_iter().filter(|m| *m <= MOST_OUTPUTS).collect()
}

/// The convolution, or why it is none for these templates.
fn problem(w: &Workload, t: &Target) -> Result<Conv2d, String> {
    let gpu = device(t)?;
    let c = convolution(w)?;
    if w.math.is_local() {
        return Err(NOT_LOCAL.into());
    }
    if [c.kh, c.kw] != [TAPS; 2] || c.stride != [1, 1] {
        return Err("for 3x3 filters with stride 1".into());
    }
    if c.dilation != [1, 1] {
        return Err("dilated taps do not overlap as minimal filtering needs them to".into());
    }
    if c.groups != 1 {
        return Err("for one group: with several there are too few channels to add up".into());
    }
    if c.layout != ConvLayout::Nchw {
        return Err(format!("for NCHW, not {}", c.layout.name()));
    }
    // Farther out an output sees nothing but padding and is exactly zero, which sums and differences are not.
    if c.padding.iter().any(|p| *p >= TAPS) {
        return Err("for less padding than taps".into());
    }
    needs_f32(w)?;
    needs_cp_async(gpu)?;
    if c.ci.max(c.co) > gpu.grid_dim[1] {
        return Err(format!("for at most {} channels", gpu.grid_dim[1]));
    }
    Ok(c)
}

/// The matrices of a plan, or the reason why its class has none.
fn filter(w: &Workload, m: i64) -> Result<Filter, TemplateError> {
    let class = methods(w);
    Filter::of(TAPS, 1, m).filter(|_| class.contains(&m)).ok_or_else(|| {
        let math = w.math.name();
        TemplateError::Limit(format!("F({m}x{m}, 3x3) is not of the class `{math}`; there are m = {class:?}"))
    })
}

impl Family for WinogradConv2d {
    const NAME: &'static str = "winograd_conv2d";
    const LIMITS: &'static str = "threads share the copies evenly; registers and shared memory suffice";
    type Problem = Conv2d;
    type Knobs = Sizes;
    type Plan<'a> = Plan;

    fn problem(w: &Workload, t: &Target) -> Result<Conv2d, String> {
        problem(w, t)
    }

    fn narrow(case: &Case<'_, Conv2d>, knob: &str, values: &mut Vec<Value>) {
        match knob {
            "m" => *values = numbers(methods(case.w)),
            "rounds" => values.retain(|rounds| matches!(rounds, Value::Int(n) if case.problem.n % n == 0)),
            _ => {}
        }
    }

    fn plan(case: &Case<'_, Conv2d>, sizes: Sizes) -> Result<Plan, TemplateError> {
        Ok(Plan { c: case.problem, sizes })
    }

    fn beside(w: &Workload, config: &Config) -> Reach {
        reach(w, config.int("m").unwrap_or(1))
    }

    fn kernel(case: &Case<'_, Conv2d>, plan: &Plan) -> Result<Scheduled, TemplateError> {
        let filter = filter(case.w, plan.sizes.m)?;
        let [_, inputs, outputs] = plan.weight_shape();
        let packed = Packed { shape: plan.weight_shape().to_vec(), padded: [inputs, outputs] };
        let index = |k: i64, ci, co| vec![k.into(), ci, co];
        let pack = transforms::pack(&plan.tiling(), &filter, packed, |co| co, index);
        built(kernel(plan, case.w, &filter), [pack])
    }
}

/// The kernel of a workload: three launches a round.
fn kernel(plan: &Plan, w: &Workload, filter: &Filter) -> Kernel {
    let mut b = KernelBuilder::new(w.kernel_name());
    let weights = |p: &Param| if p.role == Role::Weight { plan.weight_shape().to_vec() } else { p.shape.clone() };
    let params = Operands::shaped(&mut b, w, weights);
    let data = b.alloc("data", DType::F32, &plan.data_shape(), Scope::Global);
    let products = b.alloc("products", DType::F32, &plan.product_shape(), Scope::Global);
    for round in 0..plan.sizes.rounds {
        let first = round * plan.images();
        transforms::input(&mut b, plan, filter, first, params.get("x"), data);
        products::multiply(&mut b, plan, [params.get("w"), data, products]);
        transforms::output(&mut b, plan, filter, first, w, &params, products);
    }
    b.finish()
}

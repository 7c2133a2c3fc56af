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
mod plan;
mod products;
mod tiling;
mod transforms;

use crate::ir::builder::KernelBuilder;
use crate::ir::{DType, Kernel, Scope};
use crate::space::{Config, Value};
use crate::target::Target;
use crate::templates::cuda::family::{Case, Family, built, numbers};
use crate::templates::winograd::filter::{Filter, reach};
use crate::templates::{Scheduled, TemplateError};
use crate::workload::operands::Operands;
use crate::workload::special::Reach;
use crate::workload::{Conv2d, Param, Role, Workload};
use plan::{Plan, Sizes, filter, methods, problem};
use transforms::Packed;

/// See the module's text.
pub struct WinogradConv2d;

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

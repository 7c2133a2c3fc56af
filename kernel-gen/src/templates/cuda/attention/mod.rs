//! Attention as one kernel: scores and weights never leave registers.
//!
//! A block has `16 * rows * warps` queries of one head, and goes through the keys in steps of `keys`. `cp.async` brings the step's keys
//! and values into a ring of `stages` slots. A warp multiplies its queries by the keys on tensor cores (`mma.sync`), makes weights of the
//! scores, rounds these to the inputs' type where they lie, and multiplies them by the values. Each row keeps the largest score so
//! far and the sum of its weights; where a step has a larger score, sums so far are scaled down. *(Milakov and Gimelshein,
//! arXiv:1805.02867; Dao et al., FlashAttention, arXiv:2205.14135.)*
//!
//! Sums of products and of weights are in `f32`. Elements beyond the last query, key or element of a head are zeros in shared memory,
//! and scores of keys that a query may not see are minus infinity.
//!
//! | knob | values | what it chooses |
//! |---|---|---|
//! | `warps` | 1, 2, 4, 8 | warps of a block |
//! | `rows` | 1, 2 | times 16 queries of a warp |
//! | `keys` | 16 to 128 | keys of a step |
//! | `stages` | 1 to 4 | slots of the ring |

mod kernel;
mod model;
mod rows;
mod wgmma;

pub use wgmma::AttentionWgmma;

use super::family::{self, Case, Family, Needs, Search, built, knobs};
use super::model::ceil_div;
use super::product::widest;
use super::requires;
use crate::target::{Cuda, Target};
use crate::templates::{Scheduled, TemplateError};
use crate::workload::{Attention, Op, Workload};

/// See the module's text.
pub struct AttentionMma;

/// Rows, columns and depth of a product of a warp.
const TILE: i64 = 16;
/// Elements of 16 bytes, by which rows in shared memory are longer than they need be, so that neighbours lie in different banks.
const PAD: i64 = 8;
/// Parts of a product whose right operands are in registers at the same time.
const PAIR: i64 = 2;
/// Registers of a thread beside operands and sums.
const OTHER_REGISTERS: i64 = 40;
/// Most elements of a key or of a value: sums of a warp's rows have to fit its registers.
const WIDEST: i64 = 256;

/// Why no config fits, as half a sentence.
fn too_large(of: &Attention) -> String {
    format!("{} heads of {} queries are too many for a grid", of.b * of.heads, of.m)
}

/// Whether a grid holds `tiles` blocks of each head.
fn fits_grid(of: &Attention, tiles: i64, gpu: &Cuda) -> bool {
    of.b * of.heads <= gpu.grid_dim[1] && tiles <= gpu.grid_dim[0]
}

knobs! {
    /// A config with a type.
    struct Sizes {
        /// Warps of a block.
        warps: i64 = "warps" in [1, 2, 4, 8];
        /// Times 16 queries of a warp.
        rows: i64 = "rows" in [1, 2];
        /// Keys of a step.
        keys: i64 = "keys" in [16, 32, 64, 128];
        /// Slots of the ring.
        stages: i64 = "stages" in [1, 2, 3, 4];
    }
}

/// Attention cut up as a config says.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    of: Attention,
    sizes: Sizes,
}

impl Plan {
    /// Elements of a key and of a value in shared memory, with the zeros that fill up a product.
    fn widths(&self) -> [i64; 2] {
        [self.of.d, self.of.dv].map(|n| ceil_div(n, TILE) * TILE)
    }

    /// Queries of a block.
    fn block_rows(&self) -> i64 {
        TILE * self.sizes.rows * self.sizes.warps
    }

    /// Blocks of a head.
    fn tiles(&self) -> i64 {
        ceil_div(self.of.m, self.block_rows())
    }

    /// Steps through all keys.
    fn steps(&self) -> i64 {
        ceil_div(self.of.n, self.sizes.keys)
    }

    fn threads(&self) -> i64 {
        self.sizes.warps * Cuda::WARP
    }

    fn registers(&self) -> i64 {
        let Sizes { rows, keys, .. } = self.sizes;
        let [d, dv] = self.widths();
        let queries = rows * d / 4;
        let (scores, weights, sums) = (rows * keys / 2, rows * keys / 4, rows * dv / 2);
        queries + scores.max(weights + PAIR * dv / 4) + weights + sums + PAIR * keys / 4 + OTHER_REGISTERS
    }

    /// Registers that all arrays of a thread take, the most that it may have of them.
    fn arrays(&self) -> i64 {
        let Sizes { rows, keys, .. } = self.sizes;
        let [d, dv] = self.widths();
        let operands = rows * d / 4 + PAIR * keys / 4 + rows * keys / 4 + PAIR * dv / 4;
        operands + rows * (keys + dv) / 2 + rows::State::registers(rows)
    }

    fn shared_bytes(&self) -> i64 {
        let Sizes { keys, stages, .. } = self.sizes;
        let [d, dv] = self.widths().map(|n| n + PAD);
        2 * (self.block_rows() * d + stages * keys * (d + dv))
    }
}

impl family::Plan for Plan {
    fn needs(&self) -> Needs {
        Needs { threads: self.threads(), registers: self.registers(), shared_bytes: self.shared_bytes() }
    }

    fn suits(&self, gpu: &Cuda) -> bool {
        let Sizes { warps, rows, keys, stages } = self.sizes;
        let Attention { m, n, .. } = self.of;
        (warps * rows == 1 || self.block_rows() < 2 * m.max(TILE))
            && (keys == TILE || keys < 2 * n)
            && stages <= self.steps().max(2)
            && self.arrays() <= gpu.registers_per_thread
            && fits_grid(&self.of, self.tiles(), gpu)
    }

    fn us(&self, w: &Workload, gpu: &Cuda) -> f64 {
        let Sizes { warps, rows, keys, .. } = self.sizes;
        let work = model::Work {
            blocks: self.of.b * self.of.heads * self.tiles(),
            resident: self.needs().resident(gpu),
            steps: self.steps(),
            rows: self.block_rows() as f64,
            keys: keys as f64,
            width: self.widths().iter().sum::<i64>() as f64,
            rate: 0.5,
            warps: warps as f64,
            operand_rows: (TILE * rows) as f64,
            copies: true,
        };
        work.us(&self.of, w, gpu)
    }
}

impl Family for AttentionMma {
    const NAME: &'static str = "attention_mma";
    const LIMITS: &'static str = "registers and shared memory suffice, and all have something to do";
    const SMALLEST: Option<Sizes> = Some(Sizes { warps: 1, rows: 1, keys: 16, stages: 1 });
    type Problem = Attention;
    type Knobs = Sizes;
    type Plan<'a> = Plan;

    fn problem(w: &Workload, t: &Target) -> Result<Attention, String> {
        let gpu = requires::device(t)?;
        let Op::Attention(of) = w.op else { return Err("for attention".into()) };
        requires::needs_16_bits(w)?;
        requires::needs_cp_async(gpu)?;
        for (what, n) in [("key", of.d), ("value", of.dv)] {
            if n % 2 != 0 {
                return Err(format!("copies whole words, and a {what} has {n} elements"));
            }
            if n > WIDEST {
                return Err(format!("registers hold up to {WIDEST} elements of a {what}, not {n}"));
            }
        }
        Ok(of)
    }

    fn too_large(case: &Case<'_, Attention>) -> String {
        too_large(&case.problem)
    }

    fn plan(case: &Case<'_, Attention>, sizes: Sizes) -> Result<Plan, TemplateError> {
        Ok(Plan { of: case.problem, sizes })
    }

    fn search(_: &Case<'_, Attention>) -> Search<Sizes> {
        Search::All
    }

    fn kernel(case: &Case<'_, Attention>, plan: &Plan) -> Result<Scheduled, TemplateError> {
        let units = [case.problem.d, case.problem.dv].map(|n| widest(n, 2));
        built(kernel::build(case.w, plan, units), [])
    }
}

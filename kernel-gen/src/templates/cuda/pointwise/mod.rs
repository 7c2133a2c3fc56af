//! Products with few columns in 16 bits, 1x1 convolutions in NHWC above all: rows go straight to the registers.
//!
//! With up to a hundred outputs for each pixel there is little to multiply and nothing to share: what counts is how fast
//! pixels come from the L2 cache or from memory. A ring in shared memory brings them there first and reads them again. Here
//! a warp loads sixteen rows with 16 bytes a lane and multiplies what each lane holds as it is (`mma.sync`): the order of the
//! terms of a sum is free, so weights are packed in the order that loads give ([`lane_order`](crate::ir::lane_order)). The
//! weights of a block's columns are in shared memory, whole.
//!
//! Blocks stay: each of their warps goes through every so many-th tile of sixteen rows. With `ahead`, the next tile's rows
//! are asked for as soon as those in the same registers have been multiplied.
//!
//! | knob | values | what it chooses |
//! |---|---|---|
//! | `bn` | 16 to 96 | output columns of a block |
//! | `warps` | 1 to 16 | warps of a block |
//! | `resident` | 1 to 16 | blocks of a multiprocessor |
//! | `ahead` | 0, 1 | tiles whose rows are under way while one is multiplied |
//! | `store` | `direct`, `rows` | pairs from registers, or rows by way of shared memory, 16 bytes at a time where they divide |

mod kernel;
mod model;

use super::family::{self, Case, Family, Needs, Store, built, knobs};
use super::model::ceil_div;
use super::product::widest;
use super::requires::{device, needs_16_bits, needs_cp_async, weights};
use super::source::Source;
use crate::target::{Cuda, Target};
use crate::templates::{Scheduled, TemplateError};
use crate::workload::{ConvLayout, Workload};

/// See the module's text.
pub struct PointwiseRows;

/// Rows of a tile.
const ROWS: i64 = 16;
/// Terms of the reduction that a load of four lanes brings, and of one product.
const CHUNK: i64 = crate::ir::LANE_COLUMNS;
const DEPTH: i64 = 16;
/// Elements of 16 bytes.
const VECTOR: i64 = 8;
/// Most terms of a reduction: a lane holds a quarter of them for each of two rows, two in a register.
const MOST_DEPTH: i64 = 512;
/// Most columns: with more, pixels are read too often.
const MOST_COLUMNS: i64 = 192;
/// The widths of tiles.
const BN: [i64; 6] = [16, 32, 48, 64, 80, 96];
/// Warps of a block.
const WARPS: [i64; 7] = [1, 2, 4, 6, 8, 12, 16];
/// Registers of a thread beside sums, rows and weights.
const OTHER_REGISTERS: i64 = 32;

knobs! {
    /// A config with a type.
    struct Sizes {
        /// Output columns of a block.
        bn: i64 = "bn" in BN;
        /// Warps of a block.
        warps: i64 = "warps" in WARPS;
        /// Blocks of a multiprocessor.
        resident: i64 = "resident" in [1, 2, 3, 4, 5, 6, 8, 10, 12, 16];
        /// Whether the next tile's rows come while this one's are multiplied.
        ahead: bool = "ahead" in [0, 1];
        store: Store = "store" in Store::ALL;
    }
}

impl Sizes {
    /// Whether sums pass shared memory on their way.
    fn staged(&self) -> bool {
        self.store == Store::Rows
    }

    fn threads(&self) -> i64 {
        self.warps * Cuda::WARP
    }
}

/// A product cut up as a config says.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    source: Source,
    out_bytes: i64,
    /// Multiprocessors.
    units: i64,
    sizes: Sizes,
}

impl Plan {
    /// Loads of a row: the last one may reach beyond the row, where it brings zeros.
    fn chunks(&self) -> i64 {
        ceil_div(self.source.depth(), CHUNK)
    }

    /// Tiles of sixteen rows.
    fn tiles(&self) -> i64 {
        ceil_div(self.source.rows(), ROWS)
    }

    fn column_tiles(&self) -> i64 {
        ceil_div(self.source.columns(), self.sizes.bn)
    }

    /// Blocks of a tile of columns.
    fn blocks(&self) -> i64 {
        self.tiles().min(self.units * self.sizes.resident)
    }

    /// Tiles that a warp goes through, one after the other.
    fn turns(&self) -> i64 {
        ceil_div(self.tiles(), self.blocks() * self.sizes.warps)
    }

    /// Elements between rows of weights in shared memory: eight more than there are, so that the eight rows that a matrix
    /// of `ldmatrix` has lie in different banks.
    fn weight_pitch(&self) -> i64 {
        self.chunks() * CHUNK + VECTOR
    }

    /// The shape of the packed weights.
    fn packed_shape(&self) -> [i64; 3] {
        [self.column_tiles(), self.sizes.bn, self.weight_pitch()]
    }

    /// Elements of the output that a lane stores at a time by way of shared memory: 16 bytes, or as many as divide a row.
    fn piece(&self) -> i64 {
        widest(self.source.columns(), self.out_bytes)
    }

    /// Elements between rows of sums in shared memory: 16 bytes more than there are.
    fn sum_pitch(&self) -> i64 {
        self.sizes.bn + 16 / self.out_bytes
    }

    fn shared_bytes(&self) -> i64 {
        let Sizes { bn, warps, .. } = self.sizes;
        let sums = if self.sizes.staged() { warps * ROWS * self.sum_pitch() * self.out_bytes } else { 0 };
        2 * bn * self.weight_pitch() + sums + 64
    }

    /// Registers of a thread, as far as they can be told beforehand.
    fn registers(&self) -> i64 {
        let Sizes { bn, .. } = self.sizes;
        self.chunks() * CHUNK / 4 + bn / 2 + bn / 4 + OTHER_REGISTERS
    }
}

impl family::Plan for Plan {
    fn needs(&self) -> Needs {
        Needs { threads: self.sizes.threads(), registers: self.registers(), shared_bytes: self.shared_bytes() }
    }

    fn suits(&self, gpu: &Cuda) -> bool {
        let Sizes { bn, resident, ahead, .. } = self.sizes;
        let fewer = WARPS.into_iter().rev().find(|n| *n < self.sizes.warps).unwrap_or(0);
        let useful = (bn == BN[0] || bn - BN[0] < self.source.columns())
            && (resident == 1 || self.units * (resident - 1) < self.tiles())
            && self.blocks() * fewer < self.tiles()
            && (!ahead || self.turns() > 1);
        useful
            && (self.sizes.staged() || self.source.columns() % 2 == 0)
            && self.needs().resident(gpu) >= resident
            && self.column_tiles() <= gpu.grid_dim[1]
    }

    fn us(&self, w: &Workload, gpu: &Cuda) -> f64 {
        model::us(self, w, gpu)
    }
}

impl Family for PointwiseRows {
    const NAME: &'static str = "pointwise_rows";
    const LIMITS: &'static str = "registers and shared memory suffice, and all have something to do";
    type Problem = Source;
    type Knobs = Sizes;
    type Plan<'a> = Plan;

    fn problem(w: &Workload, t: &Target) -> Result<Source, String> {
        let gpu = device(t)?;
        needs_cp_async(gpu)?;
        needs_16_bits(w)?;
        let source = Source::of(w)?;
        match source {
            Source::Conv(c) => {
                let pointwise = (c.kh, c.kw, c.stride, c.padding) == (1, 1, [1, 1], [0; 4]);
                if !pointwise || c.layout != ConvLayout::Nhwc {
                    return Err("for 1x1 convolutions in NHWC, without stride and padding".into());
                }
            }
            Source::Matmul(m) if m.trans_a => return Err("for products with rows along the reduction".into()),
            Source::Matmul(_) => {}
        }
        let (columns, depth) = (source.columns(), source.depth());
        if depth % VECTOR != 0 || depth > MOST_DEPTH {
            return Err(format!(
                "rows of {depth} elements are no whole pieces of 16 bytes, at most {MOST_DEPTH} elements"
            ));
        }
        if columns > MOST_COLUMNS {
            return Err(format!("for at most {MOST_COLUMNS} columns"));
        }
        Ok(source)
    }

    fn plan(case: &Case<'_, Source>, sizes: Sizes) -> Result<Plan, TemplateError> {
        let out_bytes = case.w.out_dtype.bytes() as i64;
        Ok(Plan { source: case.problem, out_bytes, units: case.gpu.sm_count, sizes })
    }

    fn kernel(case: &Case<'_, Source>, plan: &Plan) -> Result<Scheduled, TemplateError> {
        let pack = kernel::pack(plan, case.w, &weights(case.w)?);
        built(kernel::kernel(plan, case.w), [pack])
    }
}

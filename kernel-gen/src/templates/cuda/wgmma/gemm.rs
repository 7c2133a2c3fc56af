//! Matrix products, and convolutions that are some: 1 x 1 in NHWC.

use super::apart::StepScales;
use super::block::{Block, Box, Element, Feed, Product};
use super::kernel::kernel;
use super::model::Shape;
use super::parts::Reduction;
use super::plan::{BUFFERS, Depth, Sizes, Store, depth, device, each_step, multiplied, takes_any_order, unit};
use super::ring::{Layout, Part, Ring, Steps};
use super::{model, plan, ring};
use crate::ir::builder::KernelBuilder;
use crate::ir::{Expr, VarId};
use crate::space::Value;
use crate::target::{Cuda, Target};
use crate::templates::cuda::family::{Case, Family, Needs, Plan, Search, built, up_to};
use crate::templates::cuda::model::ceil_div;
use crate::templates::cuda::turned;
use crate::templates::{Scheduled, TemplateError};
use crate::workload::operands::Operands;
use crate::workload::{ConvLayout, Matmul, Op, Param, Role, ScaledMatmul, Workload};

/// Matrix products of f16 and bf16, batched or not, in all four orders of storage; of f32 in the class tf32, of i8 and u8 without
/// zero points, and of e4m3 and e5m2, those whose left operand is not transposed. A pointwise convolution in NHWC is the product of its pixels, as many
/// of them in a tile as there is room for, wherever images and rows of pixels end. See the module's text for the form and for the
/// knobs.
pub struct WgmmaGemm;

/// The product that a workload is. Of a pointwise convolution pixels are its rows, channels its columns.
fn product_of(w: &Workload) -> Option<Matmul> {
    match &w.op {
        Op::Matmul(m) => Some(*m),
        Op::ScaledMatmul(s) => Some(s.product()),
        Op::Conv2d(c) => {
            let alone = [c.kh, c.kw] == [1, 1] && c.stride == [1, 1] && c.padding == [0; 4];
            (alone && c.groups == 1 && c.layout == ConvLayout::Nhwc).then(|| Matmul::new(c.n * c.h * c.w, c.co, c.ci))
        }
        _ => None,
    }
}

/// A product whose blocks have scales, if a workload is one.
fn scaled(w: &Workload) -> Option<ScaledMatmul> {
    if let Op::ScaledMatmul(scaled) = w.op { Some(scaled) } else { None }
}

/// Most consumers of a block. The pixels of many images cut into tiles of 192 make even rounds more often.
fn most_consumers(w: &Workload) -> i64 {
    if w.conv2d().is_some() { 3 } else { 2 }
}

/// A parameter's shape as a matrix: all pixels are rows.
fn flat(shape: Vec<i64>) -> Vec<i64> {
    match &shape[..] {
        [outer @ .., columns] if outer.len() > 2 => vec![outer.iter().product(), *columns],
        _ => shape,
    }
}

/// Whether the right operand is turned around when it is packed, for tiles of so many columns.
fn turns(w: &Workload, m: &Matmul, columns: i64) -> bool {
    !m.trans_b && m.k % unit(w) == 0 && plan::turns(w, columns, m.n)
}

/// Whether the copy engine can bring so many columns of the right operand: without turning, only whole blocks of them.
fn can_load(w: &Workload, m: &Matmul, columns: i64) -> bool {
    m.trans_b || turns(w, m, columns) || ring::is_whole(columns)
}

/// Whether so many columns, from a multiple of their number on, have one scale.
fn have_one_scale(w: &Workload, columns: i64) -> bool {
    scaled(w).is_none_or(|scaled| scaled.block % columns == 0)
}

/// Whether the copy engine can store the output.
fn can_store(w: &Workload, m: &Matmul) -> bool {
    m.n * w.out_dtype.bytes() as i64 % 16 == 0
}

/// What the model needs to know.
fn shape(w: &Workload, m: &Matmul, sizes: Sizes) -> Shape {
    let tiles = m.batch * ceil_div(m.m, sizes.bm()) * ceil_div(m.n, sizes.bn);
    let out_bytes = w.out_dtype.bytes() as i64;
    let steps = match sizes.split {
        1 => multiplied(w, m.k) as f64 / depth(w) as f64,
        _ => part_steps(w, m, sizes) as f64,
    };
    Shape { tiles, steps, bytes: w.bytes(), out_bytes }
}

/// Steps of the reduction.
fn all_steps(w: &Workload, m: &Matmul) -> i64 {
    ceil_div(m.k, depth(w))
}

/// Steps of a block's part of the reduction.
fn part_steps(w: &Workload, m: &Matmul, sizes: Sizes) -> i64 {
    ceil_div(all_steps(w, m), sizes.split)
}

/// The reduction as those see it who cut it.
fn reduction(w: &Workload, m: &Matmul, cuda: &Cuda) -> Reduction {
    Reduction::new(all_steps(w, m), [m.batch, m.m, m.n], cuda)
}

impl Family for WgmmaGemm {
    const NAME: &'static str = "wgmma_gemm";
    const TAKES_INTEGERS: bool = true;
    const TAKES_F8: bool = true;
    const VERSION: u32 = 3;
    const LIMITS: &'static str = super::plan::LIMITS;
    const LONGEST_EARLY_US: f64 = super::plan::LONGEST_EARLY_US;
    type Problem = Matmul;
    type Knobs = Sizes;
    type Plan<'a> = Gemm<'a>;

    fn problem(w: &Workload, t: &Target) -> Result<Matmul, String> {
        device(w, t)?;
        let m = product_of(w).ok_or("for matrix products and for pointwise convolutions in NHWC with one group")?;
        if !takes_any_order(w.dtype) && m.trans_a {
            return Err(format!("the reduction of a left operand in {} must be its fast dimension", w.dtype));
        }
        if let Some(scaled) = scaled(w).filter(|scaled| scaled.block % depth(w) != 0) {
            return Err(format!("blocks of {}: those of scales must be whole steps of {}", scaled.block, depth(w)));
        }
        // The copy engine wants rows of whole 16-byte units.
        let right = if m.trans_b || !takes_any_order(w.dtype) { m.k } else { m.n };
        let (rows, unit) = ([if m.trans_a { m.m } else { m.k }, right], unit(w));
        match rows.iter().find(|n| *n % unit != 0) {
            Some(n) => Err(format!("rows of {n} elements in memory: their number must divide by {unit}")),
            None => Ok(m),
        }
    }

    fn narrow(case: &Case<'_, Matmul>, knob: &str, values: &mut Vec<Value>) {
        let Case { w, gpu, problem: m } = *case;
        reduction(w, &m, gpu).narrow(knob, values);
        match knob {
            "consumers" => up_to(values, most_consumers(w)),
            "bn" => values.retain(|bn| matches!(bn, Value::Int(n) if can_load(w, &m, *n) && (have_one_scale(w, *n) || have_one_scale(w, n / 2)))),
            _ => {}
        }
    }

    fn plan<'a>(case: &Case<'a, Matmul>, sizes: Sizes) -> Result<Gemm<'a>, TemplateError> {
        Ok(Gemm { workload: case.w, m: case.problem, scaled: scaled(case.w), sizes: sizes.with_levels(case.w) })
    }

    fn search(case: &Case<'_, Matmul>) -> Search<Sizes> {
        let Case { w, gpu, problem: m } = *case;
        let store = if can_store(w, &m) { Store::Tma } else { Store::Registers };
        let all = Sizes::sensible(gpu, most_consumers(w), m.n, store, 0).chain(reduction(w, &m, gpu).sensible(gpu));
        let all = all.map(|sizes| sizes.sensible_for(w));
        Search::Among(
            all.filter(|sizes| can_load(w, &m, sizes.bn) && have_one_scale(w, sizes.columns_apart())).collect(),
        )
    }

    fn kernel<'a>(case: &Case<'a, Matmul>, plan: &Gemm<'a>) -> Result<Scheduled, TemplateError> {
        let dimensions = if plan.m.batch > 1 { 3 } else { 2 };
        let pack = if plan.turns() { Some(turned::pack(case.w, dimensions)?) } else { None };
        built(kernel(plan, plan.sizes, case.gpu), pack)
    }
}

impl Plan for Gemm<'_> {
    fn needs(&self) -> Needs {
        Needs { threads: self.sizes.threads(), registers: 0, shared_bytes: self.sizes.shared_bytes(BUFFERS) }
    }

    fn suits(&self, gpu: &Cuda) -> bool {
        let Gemm { workload: w, m, sizes, .. } = self;
        sizes.fits(gpu)
            && self.clusters_fit()
            && have_one_scale(w, sizes.columns_apart())
            && reduction(w, m, gpu).fits(*sizes)
            && (sizes.store == Store::Registers || can_store(w, m))
    }

    fn us(&self, w: &Workload, gpu: &Cuda) -> f64 {
        model::us(shape(w, &self.m, self.sizes), self.sizes, gpu)
    }
}

/// A product in tiles.
pub struct Gemm<'w> {
    workload: &'w Workload,
    m: Matmul,
    /// The scales of blocks, if there are some.
    scaled: Option<ScaledMatmul>,
    sizes: Sizes,
}

impl Gemm<'_> {
    fn turns(&self) -> bool {
        turns(self.workload, &self.m, self.sizes.bn)
    }

    fn row_tiles(&self) -> i64 {
        ceil_div(self.m.m, self.sizes.bm())
    }

    fn column_tiles(&self) -> i64 {
        ceil_div(self.m.n, self.sizes.bn)
    }

    /// The index of a matrix element, or the origin or extents of a box, with that of the batch before it.
    fn batched<T>(&self, batch: T, index: [T; 2]) -> Vec<T> {
        (self.m.batch > 1).then_some(batch).into_iter().chain(index).collect()
    }

    /// Whether clusters divide the tiles.
    fn clusters_fit(&self) -> bool {
        let [rows, columns] = self.sizes.cluster.tiles();
        self.row_tiles() % rows == 0 && self.column_tiles() % columns == 0
    }

    /// A part of an operand, for the tile that starts at `outer`.
    fn operand(&self, layout: Layout, batch: &Expr, outer: &Expr, k: &Expr, part: &Part) -> Box {
        let (outer, k) = (outer.clone() + part.first.clone(), k.clone() + part.deep.clone());
        let (origin, extents) = match layout {
            Layout::ReductionFast => ([outer, k], [part.along, part.depth]),
            Layout::ReductionSlow => ([k, outer], [part.depth, part.along]),
        };
        Box { origin: self.batched(batch.clone(), origin), extents: self.batched(1, extents), steps: vec![] }
    }
}

impl Product for Gemm<'_> {
    fn workload(&self) -> &Workload {
        self.workload
    }

    fn shape(&self, param: &Param) -> Vec<i64> {
        flat(match param.role {
            Role::Weight if self.turns() => turned::shape(&param.shape),
            _ => param.shape.clone(),
        })
    }

    fn tiles(&self) -> i64 {
        self.m.batch * self.row_tiles() * self.column_tiles()
    }

    /// Batch, first row, first column, first step. Tiles go down `group` rows of tiles before they go to the next column, so that
    /// the blocks that run at the same time read few rows and few columns.
    fn place(&self, b: &mut KernelBuilder, item: VarId, rank: &Expr) -> Vec<Expr> {
        let [high, wide] = self.sizes.cluster.tiles();
        let (rows, columns) = (self.row_tiles() / high, self.column_tiles() / wide);
        let group = (self.sizes.group / high).clamp(1, rows);
        // Whole groups only, so that indices stay plain arithmetic; the rows that are left make narrower groups.
        let group = (1..=group).rev().find(|g| rows % g == 0).unwrap_or(1);
        let batch = b.let_("batch", Expr::from(item).floor_div(rows * columns));
        let within = b.let_("within", Expr::from(item).floor_mod(rows * columns));
        let strip = Expr::from(within).floor_div(group * columns);
        let in_strip = Expr::from(within).floor_mod(group * columns);
        let of_rank = |index: Expr, tiles: i64| if tiles == 1 { index } else { index * tiles + rank.clone() };
        // The factors stay visible: they say how stores are aligned.
        let row = b.let_("row_tile", of_rank(strip * group + in_strip.clone().floor_mod(group), high));
        let column = b.let_("column_tile", of_rank(in_strip.floor_div(group), wide));
        let steps = part_steps(self.workload, &self.m, self.sizes);
        let first = if self.sizes.split > 1 { rank.clone() * steps } else { Expr::Int(0) };
        vec![batch.into(), row * self.sizes.bm(), column * self.sizes.bn, first]
    }

    fn piece(&self, place: &[Expr], row: Expr, column: Expr, rows: i64, columns: i64) -> Box {
        let origin = [place[1].clone() + row, place[2].clone() + column];
        let (origin, extents) = (self.batched(place[0].clone(), origin), self.batched(1, [rows, columns]));
        Box { origin, extents, steps: vec![] }
    }

    fn feed<'f>(&'f self, b: &mut KernelBuilder, block: &Block<'_>) -> std::boxed::Box<dyn Feed + 'f> {
        std::boxed::Box::new(Ring::make(b, block, self))
    }

    fn element(&self, place: &[Expr], row: Expr, column: Expr) -> Element {
        let [row, column] = [place[1].clone() + row, place[2].clone() + column];
        let index = self.batched(place[0].clone(), [row.clone(), column.clone()]);
        Element { index, ..Element::new([(row, self.m.m, self.sizes.bm()), (column, self.m.n, self.sizes.bn)]) }
    }
}

impl StepScales for ScaledMatmul {
    fn of_row(&self, params: &Operands, place: &[Expr], step: &[Expr], row: Expr) -> Expr {
        // Rows and steps beyond the last are of zeros, whatever they are multiplied by.
        let row = (place[1].clone() + row).min(self.m - 1);
        Expr::load(params.get("a_scale"), vec![row, self.block_of(&step[0])])
    }

    fn of_columns(&self, params: &Operands, place: &[Expr], step: &[Expr], first: i64) -> Expr {
        // Columns beyond the last are not stored.
        let columns = (place[2].clone() + first).floor_div(self.block).min(self.scales()[1][0] - 1);
        Expr::load(params.get("b_scale"), vec![columns, self.block_of(&step[0])])
    }
}

impl ScaledMatmul {
    /// The block of the reduction that a step belongs to; the last block, for steps beyond the reduction.
    fn block_of(&self, step: &Expr) -> Expr {
        step.clone().floor_div(self.block).min(self.scales()[0][1] - 1)
    }
}

impl Steps for Gemm<'_> {
    fn layouts(&self) -> [Layout; 2] {
        let layout = |fast| if fast { Layout::ReductionFast } else { Layout::ReductionSlow };
        [layout(!self.m.trans_a), layout(self.m.trans_b || self.turns())]
    }

    fn steps(&self, b: &mut KernelBuilder, place: &[Expr], body: &mut dyn FnMut(&mut KernelBuilder, &[Expr], Depth)) {
        if self.sizes.split == 1 {
            return each_step(b, "k", self.workload, (self.m.k, 0), &mut |b, k, deep| body(b, &[k], deep));
        }
        // Parts are alike, so the last one's steps may go beyond the reduction, into zeros.
        let depth = depth(self.workload);
        b.for_("k", part_steps(self.workload, &self.m, self.sizes), |b, k| {
            body(b, &[(place[3].clone() + k) * depth], Depth { whole: depth, tail: 0 });
        });
    }

    fn scales(&self) -> Option<&dyn StepScales> {
        self.scaled.as_ref().map(|scaled| scaled as &dyn StepScales)
    }

    fn left(&self, place: &[Expr], step: &[Expr], part: &Part) -> Box {
        self.operand(self.layouts()[0], &place[0], &place[1], &step[0], part)
    }

    fn right(&self, place: &[Expr], step: &[Expr], part: &Part) -> Box {
        self.operand(self.layouts()[1], &place[0], &place[2], &step[0], part)
    }
}

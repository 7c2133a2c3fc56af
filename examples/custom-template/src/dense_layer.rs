//! Dense layers of 16 bits for GPUs, `c[m, n] = sum a[m, k] * b[n, k]`: the library's blocks bring the ring of `cp.async`, the registers
//! of warps and the way of the sums to the output; this file says what may be chosen, and where operands and outputs lie.

use kernel_gen::ir::{Expr, builder::KernelBuilder};
use kernel_gen::target::Target;
use kernel_gen::templates::cuda::blocks::{
    Case, Column, Cut, Element, Family, Layout, Piece, Product, TensorCoreSizes, TensorCores, Whole, built, inside,
    with_tensor_cores,
};
use kernel_gen::templates::{Scheduled, TemplateError};
use kernel_gen::workload::{Matmul, Workload};

/// Elements that a thread copies at a time: 16 bytes.
const PIECE: i64 = 8;

kernel_gen::knobs! {
    /// What may be chosen.
    struct Knobs {
        /// Rows and columns of a block's tile.
        tile: [i64; 2] = "rows" in [32, 64, 128, 256], "columns" in [32, 64, 128, 256];
        /// Warps of a block, down and across.
        warps: [i64; 2] = "warps_down" in [1, 2, 4], "warps_across" in [1, 2, 4];
        /// Terms of the reduction in a step.
        step: i64 = "step" in [32, 64];
        /// Slots of the ring.
        slots: i64 = "slots" in [2, 3, 4, 5];
    }
}

pub(crate) struct DenseLayer;

impl Family for DenseLayer {
    const NAME: &'static str = "dense_layer";
    const SMALLEST: Option<Knobs> = Some(Knobs { tile: [32, 32], warps: [1, 1], step: 32, slots: 2 });
    type Problem = Matmul;
    type Knobs = Knobs;
    type Plan<'a> = TensorCores;

    fn problem(w: &Workload, t: &Target) -> Result<Matmul, String> {
        with_tensor_cores(w, t)?;
        let m = w.matmul().filter(|m| m.batch == 1 && !m.trans_a && m.trans_b && m.k % PIECE == 0);
        m.copied().ok_or("for products of rows with rows, whose length divides by eight".into())
    }

    fn plan(case: &Case<'_, Matmul>, Knobs { tile, warps, step, slots }: Knobs) -> Result<TensorCores, TemplateError> {
        let Matmul { m, n, k, .. } = case.problem;
        let whole = Whole { batch: 1, size: [m, n], k, layouts: [Layout::ReductionFast; 2] };
        let sizes = TensorCoreSizes { tile, warps, tile_k: step, stages: slots, ..TensorCoreSizes::SMALLEST };
        Ok(TensorCores::new(case.w, whole, 1, PIECE, sizes))
    }

    fn kernel(case: &Case<'_, Matmul>, cores: &TensorCores) -> Result<Scheduled, TemplateError> {
        built(cores.kernel(&Layer { workload: case.w, cut: cores.cut() }), [])
    }
}

struct Layer<'w> {
    workload: &'w Workload,
    cut: Cut,
}

impl Layer<'_> {
    /// A piece of the left (0) or right (1) operand: of a row, from a term on.
    fn piece(&self, side: usize, row: Expr, term: Expr) -> Piece {
        let at = [row, term];
        let exists =
            inside(&at, [self.cut.whole.size[side], self.cut.whole.k], [self.cut.tile[side], self.cut.padded_k()]);
        Piece { index: at.into(), exists }
    }
}

impl Product for Layer<'_> {
    fn workload(&self) -> &Workload {
        self.workload
    }

    fn units(&self) -> [i64; 2] {
        [PIECE; 2]
    }

    fn left_row(&self, b: &mut KernelBuilder, row: Expr) -> Vec<Expr> {
        vec![b.let_("row", row).into()]
    }

    fn step(&self, _: &mut KernelBuilder, _: &[Expr], first: &Expr) -> Vec<Expr> {
        vec![first.clone()]
    }

    fn left(&self, _: &Expr, row: &[Expr], step: &[Expr], term: Expr) -> Piece {
        self.piece(0, row[0].clone(), step[0].clone() + term)
    }

    fn right(&self, _: &Expr, column: &Column<'_>, step: &[Expr], term: Expr) -> Piece {
        self.piece(1, column.tile.clone() * self.cut.tile[1] + column.within.clone(), step[0].clone() + term)
    }

    fn element(&self, _: &Expr, row: Expr, column: Expr) -> Element {
        Element { index: vec![row, column.clone()], channel: column }
    }
}

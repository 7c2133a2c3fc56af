//! Products as kernels with a ring of `cp.async` see them: where the pieces of both operands lie, and where outputs go.

use super::cut::{Cut, Layout, Whole};
use super::guards::{below, inside};
use super::launch::launch;
use super::model::ceil_div;
use super::outer::VECTOR;
use super::outputs::{each_element, finish};
use super::turned;
use crate::ir::builder::KernelBuilder;
use crate::ir::{BufferId, DType, Expr, VarId};
use crate::workload::operands::Operands;
use crate::workload::{Matmul, Param, Role, Workload};

/// Threads of a block that adds up what the parts of the reduction have.
const ADDERS: i64 = 128;

/// A piece of an operand that a thread copies at a time: its first element in memory, and whether there is one.
pub struct Piece {
    /// Its index in the shape that [`Product::shape`] gives the operand.
    pub index: Vec<Expr>,
    /// Absent where the piece always exists; without one zeros are multiplied.
    pub exists: Option<Expr>,
}

/// The first column of a piece of the right operand.
pub struct Column<'a> {
    /// The tile of columns that it is in.
    pub tile: &'a Expr,
    /// Its number in the tile.
    pub within: Expr,
    /// What [`Product::right_column`] named of it.
    pub named: &'a [Expr],
}

/// Where an output is.
pub struct Element {
    /// Its index in the output.
    pub index: Vec<Expr>,
    /// Its output channel.
    pub channel: Expr,
}

/// What products differ in.
pub trait Product {
    /// What is computed.
    fn workload(&self) -> &Workload;

    /// The shape in which the kernel takes a parameter.
    fn shape(&self, param: &Param) -> Vec<i64> {
        param.shape.clone()
    }

    /// The type in which the kernel takes a parameter.
    fn dtype(&self, param: &Param) -> DType {
        param.dtype
    }

    /// The types of both operands as they are multiplied. Words of four bytes are multiplied as such.
    fn operand_types(&self) -> [DType; 2] {
        self.workload().operand_types()
    }

    /// The type of sums.
    fn sums(&self) -> DType {
        self.workload().sums()
    }

    /// Places of the left and the right operand among the workload's parameters.
    fn operands(&self) -> [usize; 2] {
        [0, 1]
    }

    /// Elements of an operand that a thread copies at a time: a divisor of its rows.
    fn units(&self) -> [i64; 2];

    /// Names what all threads have to know of the block's product of the batch.
    fn block(&self, b: &mut KernelBuilder, batch: &Expr) -> Vec<Expr> {
        let _ = b;
        vec![batch.clone()]
    }

    /// Steps of the reduction that the block has to go through; all of them, if absent.
    fn steps(&self, block: &[Expr]) -> Option<Expr> {
        let _ = block;
        None
    }

    /// Names what a thread has to know of row `row` of the left operand's tile (of the whole product) before the
    /// reduction begins.
    fn left_row(&self, b: &mut KernelBuilder, row: Expr) -> Vec<Expr>;

    /// Names what all threads have to know of the step whose reduction begins at `k`.
    fn step(&self, b: &mut KernelBuilder, block: &[Expr], k: &Expr) -> Vec<Expr>;

    /// A piece of the left operand, `within` elements behind the step's first: of the row that
    /// [`left_row`](Product::left_row) told of or, in [`Layout::ReductionSlow`], of this and the next rows.
    fn left(&self, batch: &Expr, row: &[Expr], step: &[Expr], within: Expr) -> Piece;

    /// Names what a thread has to know of column `column` of the right operand's tile (of the whole product) before the reduction
    /// begins.
    fn right_column(&self, b: &mut KernelBuilder, column: Expr) -> Vec<Expr> {
        let _ = (b, column);
        vec![]
    }

    /// A piece of the right operand for a column, `within` elements behind the step's first.
    fn right(&self, batch: &Expr, column: &Column<'_>, step: &[Expr], within: Expr) -> Piece;

    /// Where the output of a row and a column of the product is; both exist.
    fn element(&self, batch: &Expr, row: Expr, column: Expr) -> Element;

    /// Neighbouring rows whose outputs alternate: behind the output of a row and a column stands that of the next row, and behind
    /// the last of them that of the first row and the next column. Numbers of rows and columns that begin with a multiple of
    /// this, and of four, begin such outputs.
    fn woven(&self) -> i64 {
        1
    }

    /// The condition that a row and a column of the product, which exist, have an output; none where they always have.
    fn has_output(&self, batch: &Expr, row: &Expr, column: &Expr) -> Option<Expr> {
        let _ = (batch, row, column);
        None
    }
}

/// A matrix product.
pub struct Gemm<'w> {
    /// What is computed.
    pub workload: &'w Workload,
    /// Its sizes.
    pub m: Matmul,
    /// How it is cut up.
    pub cut: Cut,
    /// Elements of each operand that are copied at a time.
    pub units: [i64; 2],
    /// Whether the weights are turned around when they are packed; `m` is the product of what that gives.
    pub turned: bool,
}

impl Gemm<'_> {
    /// The product as a whole.
    pub fn whole(m: &Matmul) -> Whole {
        Whole { batch: m.batch, size: [m.m, m.n], k: m.k, layouts: Gemm::layouts_of(m) }
    }

    /// How the operands of a product lie.
    pub fn layouts_of(m: &Matmul) -> [Layout; 2] {
        let layout = |fast| if fast { Layout::ReductionFast } else { Layout::ReductionSlow };
        [layout(!m.trans_a), layout(m.trans_b)]
    }

    /// Elements of a row of each operand in memory.
    pub fn rows_of(m: &Matmul) -> [i64; 2] {
        [if m.trans_a { m.m } else { m.k }, if m.trans_b { m.k } else { m.n }]
    }

    /// An index with that of the batch before it.
    fn batched(&self, batch: &Expr, index: [Expr; 2]) -> Vec<Expr> {
        (self.m.batch > 1).then(|| batch.clone()).into_iter().chain(index).collect()
    }

    /// An element of an operand: `outer` along the output, of `size`, and `k` along the reduction.
    fn operand(&self, side: usize, batch: &Expr, [outer, k]: [Expr; 2]) -> Piece {
        let Cut { whole, tile, .. } = self.cut;
        let at = [outer, k];
        let exists = inside(&at, [whole.size[side], whole.k], [tile[side], self.cut.padded_k()]);
        let [outer, k] = at;
        let index = match whole.layouts[side] {
            Layout::ReductionFast => [outer, k],
            Layout::ReductionSlow => [k, outer],
        };
        Piece { index: self.batched(batch, index), exists }
    }
}

impl Product for Gemm<'_> {
    fn workload(&self) -> &Workload {
        self.workload
    }

    fn shape(&self, param: &Param) -> Vec<i64> {
        match param.role {
            Role::Weight if self.turned => turned::shape(&param.shape),
            _ => param.shape.clone(),
        }
    }

    fn units(&self) -> [i64; 2] {
        self.units
    }

    fn left_row(&self, b: &mut KernelBuilder, row: Expr) -> Vec<Expr> {
        vec![b.let_("left_row", row).into()]
    }

    fn step(&self, _: &mut KernelBuilder, _: &[Expr], k: &Expr) -> Vec<Expr> {
        vec![k.clone()]
    }

    fn left(&self, batch: &Expr, row: &[Expr], step: &[Expr], within: Expr) -> Piece {
        self.operand(0, batch, [row[0].clone(), step[0].clone() + within])
    }

    fn right(&self, batch: &Expr, column: &Column<'_>, step: &[Expr], within: Expr) -> Piece {
        let column = column.tile.clone() * self.cut.tile[1] + column.within.clone();
        self.operand(1, batch, [column, step[0].clone() + within])
    }

    fn element(&self, batch: &Expr, row: Expr, column: Expr) -> Element {
        Element { channel: column.clone(), index: self.batched(batch, [row, column]) }
    }
}

/// The widest vector of elements of `bytes` bytes, at most 16 bytes, that divides the row length.
pub fn widest(row: i64, bytes: i64) -> i64 {
    (0..=3).map(|e| (16 / bytes) >> e).find(|n| *n >= 1 && row % n == 0).unwrap_or(1)
}

/// The row and the column of tiles that a block has: `group` rows of tiles, or the next fewer that divide them, go down
/// before the next column.
pub(super) fn place(b: &mut KernelBuilder, number: VarId, [down, across]: [i64; 2], group: i64) -> [VarId; 2] {
    let group = (1..=group.min(down)).rev().find(|g| down % g == 0).unwrap_or(1);
    let strip = Expr::from(number).floor_div(group * across);
    let within = Expr::from(number).floor_mod(group * across);
    let row = b.let_("row_tile", strip * group + within.clone().floor_mod(group));
    [row, b.let_("column_tile", within.floor_div(group))]
}

/// What becomes of a product's sums.
pub(super) struct Outputs<'a> {
    pub(super) product: &'a dyn Product,
    pub(super) params: &'a Operands,
    pub(super) cut: Cut,
}

impl Outputs<'_> {
    /// Writes neighbours of a row: `count` sums that `value` gives, by their distance from the first.
    pub(super) fn write(
        &self,
        b: &mut KernelBuilder,
        batch: &Expr,
        place: [VarId; 2],
        [row, column]: [Expr; 2],
        count: i64,
        value: &dyn Fn(&Expr) -> Expr,
    ) {
        let (tile, size) = (self.cut.tile, self.cut.whole.size);
        let at = [place[0] * tile[0] + row, place[1] * tile[1] + column];
        let exists = inside(&at, size, tile);
        let [row, column] = at;
        let one = |b: &mut KernelBuilder, element: Expr| {
            let sum = value(&element);
            self.put(b, batch, row.clone(), column.clone() + element, sum);
        };
        let all = |b: &mut KernelBuilder| each_element(b, count, one);
        b.when(exists, all);
    }

    /// Writes four neighbouring outputs of rows that are [`woven`](Product::woven): from the `first` on of those that begin with a row
    /// and a column of the tile. `value` gives their sums, by their distance from the first that is written.
    pub(super) fn write_woven(
        &self,
        b: &mut KernelBuilder,
        batch: &Expr,
        place: [VarId; 2],
        [row, column]: [Expr; 2],
        first: i64,
        value: &dyn Fn(&Expr) -> Expr,
    ) {
        let (tile, size) = (self.cut.tile, self.cut.whole.size);
        let at = [place[0] * tile[0] + row, place[1] * tile[1] + column];
        let exists = inside(&at, size, tile);
        let [row, column] = at;
        let all = |b: &mut KernelBuilder| {
            each_element(b, VECTOR, |b, element| {
                let Element { mut index, channel } = self.product.element(batch, row.clone(), column.clone());
                let last = index.pop().expect("outputs have an index");
                index.push(last + element.clone() + first);
                finish(b, (self.product.workload(), self.params), &channel, index, value(&element));
            });
        };
        b.when(exists, all);
    }

    /// Stores one output.
    fn put(&self, b: &mut KernelBuilder, batch: &Expr, row: Expr, column: Expr, sum: Expr) {
        let exists = self.product.has_output(batch, &row, &column);
        let Element { index, channel } = self.product.element(batch, row, column);
        b.when(exists, |b| finish(b, (self.product.workload(), self.params), &channel, index, sum));
    }

    /// The launch that adds up what the parts of the reduction have, in their order: `partial[part, batch, row, column]`,
    /// as many neighbours at a time as the cut says.
    pub(super) fn add_parts(&self, b: &mut KernelBuilder, partial: BufferId) {
        let Cut { split, stored: piece, .. } = self.cut;
        let Whole { batch: batches, size: [m, n], .. } = self.cut.whole;
        let count = m * n / piece;
        let blocks = [("sum_batch", batches), ("sum_block", ceil_div(count, ADDERS))];
        launch(b, blocks, [("adder", ADDERS)], |b, [batch, block], [adder]| {
            let batch = if batches > 1 { batch.into() } else { Expr::Int(0) };
            let at = block * ADDERS + adder;
            let add = |b: &mut KernelBuilder| {
                let row = b.let_("sum_row", (at.clone() * piece).floor_div(n));
                let column = b.let_("sum_column", at.clone().floor_mod(n / piece) * piece);
                each_element(b, piece, |b, element| {
                    let column = column + element;
                    let of =
                        |part: i64| Expr::load(partial, vec![part.into(), batch.clone(), row.into(), column.clone()]);
                    let sum = (1..split).fold(of(0), |sum, part| sum + of(part));
                    self.put(b, &batch, row.into(), column.clone(), sum);
                });
            };
            b.when(below(at.clone(), count, ADDERS), add);
        });
    }
}

//! Products of integers of eight bits, four terms at a time.
//!
//! Rows along the reduction are rows of words of four bytes: a product of words is the product of a quarter as many terms, each of
//! which `dp4a` multiplies and adds as an `i32`.

use super::plan::{MultiplyAdds, Sizes};
use crate::ir::builder::KernelBuilder;
use crate::ir::{DType, Expr};
use crate::target::Target;
use crate::templates::cuda::family::{Case, Family, built};
use crate::templates::cuda::product::{Column, Element, Gemm, Piece, Product};
use crate::templates::cuda::requires;
use crate::templates::{Scheduled, TemplateError};
use crate::workload::{Matmul, Op, Param, Role, Workload};

/// Products of `i8` and `u8` without zero points, batched or not, whose operands both have rows along the reduction. See the module's text
/// of [`super`] for the form and for the knobs; terms are words.
pub struct SimtIntegers;

/// A product of words.
struct Words<'w>(Gemm<'w>);

impl Words<'_> {
    fn is_operand(param: &Param) -> bool {
        matches!(param.role, Role::Input | Role::Weight)
    }
}

impl Product for Words<'_> {
    fn workload(&self) -> &Workload {
        self.0.workload()
    }

    fn shape(&self, param: &Param) -> Vec<i64> {
        let mut shape = param.shape.clone();
        if let (true, Some(terms)) = (Words::is_operand(param), shape.last_mut()) {
            *terms /= 4;
        }
        shape
    }

    fn dtype(&self, param: &Param) -> DType {
        param.dtype.word().filter(|_| Words::is_operand(param)).unwrap_or(param.dtype)
    }

    fn operand_types(&self) -> [DType; 2] {
        self.workload().operand_types().map(|dtype| dtype.word().unwrap_or(dtype))
    }

    fn units(&self) -> [i64; 2] {
        self.0.units()
    }

    fn left_row(&self, b: &mut KernelBuilder, row: Expr) -> Vec<Expr> {
        self.0.left_row(b, row)
    }

    fn step(&self, b: &mut KernelBuilder, block: &[Expr], k: &Expr) -> Vec<Expr> {
        self.0.step(b, block, k)
    }

    fn left(&self, batch: &Expr, row: &[Expr], step: &[Expr], within: Expr) -> Piece {
        self.0.left(batch, row, step, within)
    }

    fn right(&self, batch: &Expr, column: &Column<'_>, step: &[Expr], within: Expr) -> Piece {
        self.0.right(batch, column, step, within)
    }

    fn element(&self, batch: &Expr, row: Expr, column: Expr) -> Element {
        self.0.element(batch, row, column)
    }
}

impl Family for SimtIntegers {
    const NAME: &'static str = "simt_integers";
    const TAKES_INTEGERS: bool = true;
    const SMALLEST: Option<Sizes> = Some(Sizes::SMALLEST);
    type Problem = Matmul;
    type Knobs = Sizes;
    type Plan<'a> = MultiplyAdds;

    fn problem(w: &Workload, t: &Target) -> Result<Matmul, String> {
        requires::needs_cp_async(requires::device(t)?)?;
        let Op::Matmul(m) = w.op else { return Err("for matrix products".into()) };
        if !w.is_quantised() {
            return Err("for integers of eight bits".into());
        }
        requires::no_zero_points(w)?;
        if m.trans_a || !m.trans_b || m.k % 4 != 0 {
            return Err("for rows of whole words along the reduction".into());
        }
        Ok(Matmul { k: m.k / 4, ..m })
    }

    fn too_large(case: &Case<'_, Matmul>) -> String {
        format!("a batch of {} is too large", case.problem.batch)
    }

    fn plan(case: &Case<'_, Matmul>, sizes: Sizes) -> Result<MultiplyAdds, TemplateError> {
        // Words are turned around one by one.
        Ok(MultiplyAdds::new(Gemm::whole(&case.problem), [1, 1], sizes))
    }

    fn kernel(case: &Case<'_, Matmul>, plan: &MultiplyAdds) -> Result<Scheduled, TemplateError> {
        let gemm = Gemm { workload: case.w, m: case.problem, cut: plan.cut, units: plan.units, turned: false };
        built(plan.kernel(&Words(gemm)), [])
    }
}

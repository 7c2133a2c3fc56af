//! Matrix products.

use super::plan::{Right, Sizes, TensorCores, device_of_integers};
use crate::target::Target;
use crate::templates::cuda::broadcast::Products;
use crate::templates::cuda::cut::is_narrow;
use crate::templates::cuda::family::{Case, Family, built};
use crate::templates::cuda::product::{Gemm, widest};
use crate::templates::cuda::turned;
use crate::templates::{Scheduled, TemplateError};
use crate::workload::{Matmul, Workload};

/// Matrix products of f16 and bf16, batched or not, in all four orders of storage, and batches whose operands repeat; of i8 and u8 those
/// whose left operand is not transposed. See the module's text for the form and for the knobs.
pub struct MmaGemm;

/// Clocks in which a scheduler issues the instructions of an element that goes through registers.
const ELEMENT_CLOCKS: f64 = 10.0;

/// Elements of each operand that are copied at a time: of 16 bytes at most.
fn units(w: &Workload, m: &Matmul) -> [i64; 2] {
    Gemm::rows_of(m).map(|row| widest(row, w.dtype.bytes() as i64))
}

/// The product as its packed operands have it: tensor cores want integers along the reduction.
fn packed(w: &Workload, m: Matmul) -> Matmul {
    Matmul { trans_b: m.trans_b || w.is_quantised(), ..m }
}

impl Family for MmaGemm {
    const NAME: &'static str = "mma_gemm";
    const TAKES_INTEGERS: bool = true;
    const SMALLEST: Option<Sizes> = Some(Sizes::SMALLEST);
    type Problem = Products;
    type Knobs = Sizes;
    type Plan<'a> = TensorCores;

    fn problem(w: &Workload, t: &Target) -> Result<Products, String> {
        device_of_integers(w, t)?;
        let products = Products::of(w)?;
        if w.is_quantised() && (products.m.trans_a || products.m.k % 4 != 0) {
            return Err("for integers whose rows along the reduction are whole words of four bytes".into());
        }
        Ok(products)
    }

    fn too_large(case: &Case<'_, Products>) -> String {
        format!("a batch of {} is too large", case.problem.m.batch)
    }

    fn plan(case: &Case<'_, Products>, sizes: Sizes) -> Result<TensorCores, TemplateError> {
        let m = packed(case.w, case.problem.m);
        let [left, unit] = units(case.w, &m);
        let plan = TensorCores::new(case.w, Gemm::whole(&m), 1, left, sizes);
        let right = match is_narrow(unit * plan.bytes) {
            true => Right::Named { unit, clocks: ELEMENT_CLOCKS },
            false => Right::Loop,
        };
        Ok(TensorCores { right, ..plan })
    }

    fn kernel(case: &Case<'_, Products>, plan: &TensorCores) -> Result<Scheduled, TemplateError> {
        let m = packed(case.w, case.problem.m);
        let turned = m.trans_b != case.problem.m.trans_b;
        let pack = if turned { Some(turned::pack(case.w, if m.batch > 1 { 3 } else { 2 })?) } else { None };
        let gemm = Gemm { workload: case.w, m, cut: plan.cut, units: units(case.w, &m), turned };
        built(case.problem.with(gemm, |product| plan.kernel(product)), pack)
    }
}

//! Scaled dot-product attention.

use super::operator::{FLOATS, Fault, Kind, Operand, Operator, Size, SizeRole, SpecKey, check_sizes};
use super::products::Sums;
use super::stage::{Axis, AxisRole, Combine, Stage, axis, input, result};
use super::{Op, Role, Workload, WorkloadError, reference_attention};
use crate::ir::{BinOp, DType, Expr, UnOp};

/// Scaled dot-product attention of several heads *(Vaswani et al., arXiv:1706.03762; ONNX `Attention`)*:
///
/// ```text
/// s[b, h, i, j] = sum over t of q[b, h, i, t] * k[b, g, j, t] / sqrt(d) + mask[.., i, j]
/// y[b, h, i, c] = sum over j of softmax(s[b, h, i, ..])[j] * v[b, g, j, c]
/// ```
///
/// Queries are `[b, heads, m, d]`, keys `[b, kv_heads, n, d]`, values `[b, kv_heads, n, dv]`, the output `[b, heads, m, dv]`.
/// Neighbouring query heads share a key and value head, `g = h / (heads / kv_heads)`.
///
/// The weights of the values may be rounded to the inputs' type. A row whose scores are all minus infinity sees no key and is 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Attention {
    /// Images or sequences.
    pub b: i64,
    /// Heads of queries.
    pub heads: i64,
    /// Heads of keys and values, which divide those of queries.
    pub kv_heads: i64,
    /// Queries.
    pub m: i64,
    /// Keys.
    pub n: i64,
    /// Elements of a query and of a key.
    pub d: i64,
    /// Elements of a value.
    pub dv: i64,
    /// Whether query `i` attends to the keys `j <= i` alone.
    pub causal: bool,
    /// What is added to the scores.
    pub mask: Mask,
}

/// What is added to the scores of an [`Attention`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Mask {
    /// Nothing.
    None,
    /// A matrix `[m, n]`, the same for all heads.
    Shared,
    /// A tensor `[b, heads, m, n]`.
    Each,
}

impl Mask {
    pub(super) const ALL: [Mask; 3] = [Mask::None, Mask::Shared, Mask::Each];
}

/// `attention` in specs and keys.
pub(crate) static ATTENTION: Kind = Kind {
    name: "attention",
    pattern: "b{}h{}m{}n{}d{}v{}-g{}-{full|causal}{|.mask|.masks}",
    sizes: &[
        Size::new("b", "b (the batch)", SizeRole::Images),
        Size::new("heads", "the heads of `q`", SizeRole::Channels),
        Size::new("m", "m (the queries)", SizeRole::Extent),
        Size::new("n", "n (the keys)", SizeRole::Extent),
        Size::new("d", "d (the elements of a key)", SizeRole::Extent),
        Size::new("dv", "dv (the elements of a value)", SizeRole::Extent),
        Size::new("kv_heads", "the heads of `k`", SizeRole::Groups),
        Size::new("causal", "causal", SizeRole::Choice),
        Size::new("mask", "mask", SizeRole::Choice),
    ],
    outputs: FLOATS,
    layouts: &[],
    flags: &["causal"],
    between: &[],
    keys: |_| {
        vec![
            SpecKey::required("q", &[4], "[b, heads, m, d]"),
            SpecKey::required("k", &[4], "[b, kv_heads, n, d]"),
            SpecKey::required("v", &[4], "[b, kv_heads, n, dv]"),
            SpecKey::optional("mask", &[2, 4]),
        ]
    },
    read: |shared, values| {
        let ([b, heads, m, d], [kb, kv_heads, n, kd]) = (values.shape("q"), values.shape("k"));
        let [vb, v_heads, vn, dv] = values.shape("v");
        if [kb, kd] != [b, d] {
            let cause = format!("`q` has {b} images and {d} elements a query, `k` has {kb} images and {kd} a key");
            return Err(Fault::new("k", cause, format!("write k = [{b}, kv_heads, n, {d}]")));
        }
        if [vb, v_heads, vn] != [kb, kv_heads, n] {
            let cause = format!("`v` is [{vb}, {v_heads}, {vn}, {dv}], `k` has {kv_heads} heads of {n} keys");
            return Err(Fault::new("v", cause, format!("write v = [{b}, {kv_heads}, {n}, dv]")));
        }
        let mask = match values.get("mask") {
            None => Mask::None,
            Some(shape) if *shape == [m, n] => Mask::Shared,
            Some(shape) if *shape == [b, heads, m, n] => Mask::Each,
            Some(shape) => {
                let help = format!("write mask = [{m}, {n}] or mask = [{b}, {heads}, {m}, {n}]");
                return Err(Fault::new("mask", format!("a mask of {shape:?} fits no scores"), help));
            }
        };
        Ok(Op::Attention(Attention { b, heads, kv_heads, m, n, d, dv, causal: shared.flags[0], mask }))
    },
    of_sizes: |_, sizes| {
        let [b, heads, m, n, d, dv, kv_heads, causal, mask] = *sizes else { return None };
        let mask = *Mask::ALL.get(usize::try_from(mask).ok()?)?;
        Some(Op::Attention(Attention { b, heads, kv_heads, m, n, d, dv, causal: causal == 1, mask }))
    },
    guilty: |error| match error {
        WorkloadError::NotPositive { size: "n" | "kv_heads", .. } | WorkloadError::Sizes { .. } => "k",
        WorkloadError::NotPositive { size: "dv", .. } => "v",
        _ => "q",
    },
};

impl Attention {
    /// The factor of the products of queries and keys.
    pub(crate) fn scale(&self) -> f64 {
        1.0 / (self.d as f64).sqrt()
    }

    /// Heads of queries that share a head of keys.
    pub(crate) fn sharing(&self) -> i64 {
        self.heads / self.kv_heads
    }

    /// The shape of the mask, if there is one.
    fn mask_shape(&self) -> Option<Vec<i64>> {
        match self.mask {
            Mask::None => None,
            Mask::Shared => Some(vec![self.m, self.n]),
            Mask::Each => Some(vec![self.b, self.heads, self.m, self.n]),
        }
    }

    /// A stage with an element for each head, query and one of `extent` others, whose terms run over `over`.
    fn stage(
        &self,
        name: &'static str,
        last: (&'static str, i64),
        over: Option<(&'static str, i64)>,
        dtype: DType,
        (combine, value): (Combine, Expr),
    ) -> Stage {
        let loops = [("b", self.b), ("h", self.heads), ("i", self.m), last];
        Stage {
            name,
            dtype,
            shape: loops.iter().map(|(_, extent)| *extent).collect(),
            reduce: usize::from(over.is_some()),
            loops: loops.into_iter().chain(over).collect(),
            combine,
            index: (0..4).map(|i| axis(i).into()).collect(),
            value,
        }
    }
}

impl Operator for Attention {
    fn kind(&self) -> &'static Kind {
        &ATTENTION
    }

    fn sizes(&self) -> Vec<i64> {
        let Attention { b, heads, kv_heads, m, n, d, dv, causal, mask } = *self;
        let mask = Mask::ALL.iter().position(|one| *one == mask).expect("it is one of all");
        vec![b, heads, m, n, d, dv, kv_heads, i64::from(causal), mask as i64]
    }

    fn validate(&self) -> Result<(), WorkloadError> {
        check_sizes(self)?;
        if self.heads % self.kv_heads != 0 {
            let cause = format!("{} heads of keys do not divide {} heads of queries", self.kv_heads, self.heads);
            let help = "as many neighbouring query heads share each key head: let their number be a multiple";
            return Err(WorkloadError::Sizes { cause, help });
        }
        Ok(())
    }

    fn inputs(&self) -> Vec<Operand> {
        let keys = |name, width| Operand::new(name, Role::Input, vec![self.b, self.kv_heads, self.n, width]);
        let queries = Operand::new("q", Role::Input, vec![self.b, self.heads, self.m, self.d]);
        let mask = self.mask_shape().map(|shape| Operand::new("mask", Role::Input, shape));
        [queries, keys("k", self.d), keys("v", self.dv)].into_iter().chain(mask).collect()
    }

    fn output(&self) -> (&'static str, Vec<Axis>) {
        use AxisRole::{Batch, Channel, Space};
        let axes = [("b", self.b, Batch), ("h", self.heads, Batch), ("i", self.m, Space), ("c", self.dv, Channel)];
        ("y", axes.map(|(name, extent, role)| Axis::new(name, extent, role)).to_vec())
    }

    fn inner_tensors(&self) -> Vec<(&'static str, Vec<i64>)> {
        vec![("the scores", vec![self.b, self.heads, self.m, self.n])]
    }

    fn terms(&self) -> i64 {
        self.n
    }

    fn flops(&self) -> Option<i64> {
        // Two products; a score is scaled, compared, subtracted, and its exponential is added up.
        let scores = [self.heads, self.m, self.n].iter().fold(self.b, |product, n| product.saturating_mul(*n));
        let flops = scores.saturating_mul(2 * (self.d.saturating_add(self.dv)) + 5);
        // Half of the scores count where keys behind a query do not.
        Some(if self.causal { flops / 2 } else { flops })
    }

    fn stages(&self, _: DType, sums: DType) -> Vec<Stage> {
        let (keys, one) = (("j", self.n), ("one", 1));
        let at = |axes: [usize; 3], last: Expr| -> Vec<Expr> {
            axes.map(|i| axis(i).into()).into_iter().chain([last]).collect()
        };
        let own = || Expr::from(axis(1)).floor_div(self.sharing());
        let f = |value: f64| Expr::Float(value, sums);
        // An element of an earlier stage of this head and query.
        let of = |stage: usize, last: Expr| Expr::load(result(stage), at([0, 1, 2], last));
        let attends = |key: usize, then: Expr, otherwise: Expr| match self.causal {
            true => Expr::from(axis(key)).le(axis(2)).select(then, otherwise),
            false => then,
        };
        let query = Expr::load(input(0), at([0, 1, 2], axis(4).into()));
        let key = Expr::load(input(1), vec![axis(0).into(), own(), axis(3).into(), axis(4).into()]);
        let value = Expr::load(input(2), vec![axis(0).into(), own(), axis(4).into(), axis(3).into()]);
        let scaled = of(0, axis(3).into()) * f(self.scale());
        let masked = match self.mask {
            Mask::None => scaled,
            Mask::Shared => scaled + Expr::load(input(3), vec![axis(2).into(), axis(3).into()]),
            Mask::Each => scaled + Expr::load(input(3), at([0, 1, 2], axis(3).into())),
        };
        // Nothing is subtracted from scores of minus infinity, so that they weigh nothing.
        let largest = of(2, 0.into()).eq(f(f64::NEG_INFINITY)).select(f(0.0), of(2, 0.into()));
        let weight = Expr::un(UnOp::Exp, of(1, axis(3).into()) - largest);
        let total = of(4, 0.into());
        let mean = Expr::bin(BinOp::Div, of(5, axis(3).into()), total.clone());
        vec![
            self.stage("products", keys, Some(("t", self.d)), sums, (Combine::Sum, query * key)),
            self.stage("scores", keys, None, sums, (Combine::One, attends(3, masked, f(f64::NEG_INFINITY)))),
            self.stage("largest", one, Some(keys), sums, (Combine::Max, of(1, axis(4).into()))),
            self.stage("weights", keys, None, sums, (Combine::One, weight)),
            self.stage("total", one, Some(keys), sums, (Combine::Sum, of(3, axis(4).into()))),
            self.stage(
                "mixed",
                ("c", self.dv),
                Some(keys),
                sums,
                // A value that no query may see does not count, whatever it is.
                (Combine::Sum, attends(4, of(3, axis(4).into()) * value, f(0.0))),
            ),
            self.stage("acc", ("c", self.dv), None, sums, (Combine::One, total.eq(f(0.0)).select(f(0.0), mean))),
        ]
    }

    fn reference(&self, workload: &Workload, inputs: &[&[f64]]) -> Sums {
        reference_attention::attend(self, workload, inputs)
    }
}

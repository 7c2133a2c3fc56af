//! Scaled dot-product attention.

use super::operator::{
    FLOATS, Fault, Kind, Likeness, Operand, Operator, Shared, Size, SizeRole, SpecKey, Values, check_sizes, likeness,
};
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
/// Queries are `[b, heads, m, d]`, keys `[b, kv_heads, n, d]`, values `[b, kv_heads, n, dv]`, the output `[b, heads, m, dv]`, unless
/// [`HeadOrder`] says otherwise. Neighbouring query heads share a key and value head, `g = h / (heads / kv_heads)`.
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
    /// In which order the tensors' dimensions lie.
    pub order: HeadOrder,
}

/// What is added to the scores of an [`Attention`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Mask {
    /// Nothing.
    None,
    /// A matrix `[m, n]`, the same for all heads.
    Shared,
    /// A matrix for each head, `[heads, m, n]`, the same for all images.
    Heads,
    /// A tensor `[b, heads, m, n]`.
    Each,
}

impl Mask {
    /// In the order of the key's pattern.
    pub(super) const ALL: [Mask; 4] = [Mask::None, Mask::Shared, Mask::Each, Mask::Heads];
}

/// In which order the dimensions of an [`Attention`]'s tensors lie; masks have one order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum HeadOrder {
    /// Each head by itself: `[b, heads, m, d]`. Libraries call it `bhsd`.
    HeadsFirst,
    /// Each query or key with all of its heads, as a product of matrices leaves them: `[b, m, heads, d]`, `bshd`.
    RowsFirst,
    /// The same with queries, keys and values in one tensor `qkv`, as one product makes them: `[b, m, heads + 2 * kv_heads, d]`, `bs3hd`. The
    /// output is `[b, m, heads, d]`.
    Packed,
}

impl HeadOrder {
    /// In the order of the key's pattern.
    pub(super) const ALL: [HeadOrder; 3] = [HeadOrder::HeadsFirst, HeadOrder::RowsFirst, HeadOrder::Packed];

    /// What is of an image, a head, a row and a column, as tensors of this order have it; of what these have, what the former is.
    fn arrange<T>(self, [image, second, third, column]: [T; 4]) -> [T; 4] {
        match self {
            HeadOrder::HeadsFirst => [image, second, third, column],
            HeadOrder::RowsFirst | HeadOrder::Packed => [image, third, second, column],
        }
    }
}

/// The tensors of an [`Attention`] that have heads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OfHeads {
    /// Queries.
    Queries,
    /// Keys.
    Keys,
    /// Values.
    Values,
    /// What the queries get.
    Outputs,
}

/// Most elements of a mask that a network writes out.
#[cfg(feature = "networks")]
pub(crate) const MOST_MASK: i64 = 1 << 24;

/// `attention` in specs and keys.
pub(crate) static ATTENTION: Kind = Kind {
    name: "attention",
    pattern: "b{}h{}m{}n{}d{}v{}-g{}-{full|causal}{|.mask|.masks|.headmasks}{|.rows|.packed}",
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
        Size::new("order", "order", SizeRole::Choice),
    ],
    outputs: FLOATS,
    layouts: &[],
    flags: &["causal", "rows_first", "packed"],
    between: &[],
    keys: |shared| {
        let mask = SpecKey::optional("mask", &[2, 3, 4]);
        match order(shared) {
            HeadOrder::Packed => {
                let qkv = SpecKey::required("qkv", &[4], "[b, m, heads + 2 * kv_heads, d]");
                vec![qkv, SpecKey::optional("kv_heads", &[]), mask]
            }
            order => {
                let key = |name, [heads, rows, width]: [&str; 3]| {
                    let shape = order.arrange(["b", heads, rows, width]).join(", ");
                    SpecKey::required(name, &[4], &format!("[{shape}]"))
                };
                let (q, k) = (key("q", ["heads", "m", "d"]), key("k", ["kv_heads", "n", "d"]));
                vec![q, k, key("v", ["kv_heads", "n", "dv"]), mask]
            }
        }
    },
    read: |shared, values| {
        if shared.has("packed") && shared.has("rows_first") {
            return Err(Fault::new("packed", "both `packed` and `rows_first` are set", "leave `rows_first` out"));
        }
        let order = order(shared);
        let of = match order {
            HeadOrder::Packed => packed(values)?,
            _ => apart(order, values)?,
        };
        let Attention { b, heads, m, n, .. } = of;
        let mask = match values.get("mask") {
            None => Mask::None,
            Some(shape) if *shape == [m, n] => Mask::Shared,
            Some(shape) if *shape == [heads, m, n] => Mask::Heads,
            Some(shape) if *shape == [b, heads, m, n] => Mask::Each,
            Some(shape) => {
                let help = format!("write mask = [{m}, {n}], [{heads}, {m}, {n}] or [{b}, {heads}, {m}, {n}]");
                return Err(Fault::new("mask", format!("a mask of {shape:?} fits no scores"), help));
            }
        };
        Ok(Op::Attention(Attention { causal: shared.has("causal"), mask, order, ..of }))
    },
    of_sizes: |_, sizes| {
        let [b, heads, m, n, d, dv, kv_heads, causal, mask, order] = *sizes else { return None };
        let mask = *Mask::ALL.get(usize::try_from(mask).ok()?)?;
        let order = *HeadOrder::ALL.get(usize::try_from(order).ok()?)?;
        Some(Op::Attention(Attention { b, heads, kv_heads, m, n, d, dv, causal: causal == 1, mask, order }))
    },
    guilty: |error| match error {
        WorkloadError::NotPositive { size: "n" | "kv_heads", .. } | WorkloadError::Sizes { .. } => "k",
        WorkloadError::NotPositive { size: "dv", .. } => "v",
        _ => "q",
    },
};

/// The order that a `[[kernel]]` asks for.
fn order(shared: &Shared) -> HeadOrder {
    match (shared.has("packed"), shared.has("rows_first")) {
        (true, _) => HeadOrder::Packed,
        (_, true) => HeadOrder::RowsFirst,
        _ => HeadOrder::HeadsFirst,
    }
}

/// Attention of queries, keys and values that are tensors by themselves.
fn apart(order: HeadOrder, values: &Values) -> Result<Attention, Fault> {
    let [q, k, v] = ["q", "k", "v"].map(|key| order.arrange(values.shape(key)));
    let ([b, heads, m, d], [kb, kv_heads, n, kd], [vb, v_heads, vn, dv]) = (q, k, v);
    if [kb, kd] != [b, d] {
        let cause = format!("`q` has {b} images and {d} elements a query, `k` has {kb} images and {kd} a key");
        let shape = order.arrange([b.to_string(), "kv_heads".into(), "n".into(), d.to_string()]).join(", ");
        return Err(Fault::new("k", cause, format!("write k = [{shape}]")));
    }
    if [vb, v_heads, vn] != [kb, kv_heads, n] {
        let cause = format!("`v` is {:?}, `k` has {kv_heads} heads of {n} keys", order.arrange(v));
        let shape = order.arrange([kb.to_string(), kv_heads.to_string(), n.to_string(), "dv".into()]).join(", ");
        return Err(Fault::new("v", cause, format!("write v = [{shape}]")));
    }
    Ok(Attention { b, heads, kv_heads, m, n, d, dv, causal: false, mask: Mask::None, order })
}

/// Attention of queries, keys and values that are one tensor.
fn packed(values: &Values) -> Result<Attention, Fault> {
    let [b, m, all, d] = values.shape("qkv");
    if all < 3 {
        let cause = format!("`qkv` has {all} heads");
        return Err(Fault::new("qkv", cause, "write at least one of queries, one of keys and one of values"));
    }
    let kv_heads = match values.get("kv_heads") {
        Some(given) => given[0],
        None if all % 3 == 0 => all / 3,
        None => {
            let cause = format!("{all} heads are not as many of queries as of keys and of values");
            return Err(Fault::new("qkv", cause, "write kv_heads, the number of heads of keys, beside it"));
        }
    };
    let heads = all.saturating_sub(kv_heads.saturating_mul(2));
    if kv_heads < 1 || heads < 1 {
        let cause = format!("of {all} heads of `qkv`, {kv_heads} of keys and as many of values leave none of queries");
        return Err(Fault::new("kv_heads", cause, "write a number of heads whose double leaves some for queries"));
    }
    if heads % kv_heads != 0 {
        let cause = format!("{kv_heads} heads of keys do not divide the {heads} of queries that they leave of {all}");
        return Err(Fault::new("kv_heads", cause, "as many neighbouring query heads share each key head"));
    }
    let (dv, n, order) = (d, m, HeadOrder::Packed);
    Ok(Attention { b, heads, kv_heads, m, n, d, dv, causal: false, mask: Mask::None, order })
}

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
    pub(crate) fn mask_shape(&self) -> Option<Vec<i64>> {
        match self.mask {
            Mask::None => None,
            Mask::Shared => Some(vec![self.m, self.n]),
            Mask::Heads => Some(vec![self.heads, self.m, self.n]),
            Mask::Each => Some(vec![self.b, self.heads, self.m, self.n]),
        }
    }

    /// The index in the mask of what is added to a score, if there is a mask.
    pub(crate) fn mask_index(&self, [image, head, query, key]: [Expr; 4]) -> Option<Vec<Expr>> {
        match self.mask {
            Mask::None => None,
            Mask::Shared => Some(vec![query, key]),
            Mask::Heads => Some(vec![head, query, key]),
            Mask::Each => Some(vec![image, head, query, key]),
        }
    }

    /// The operand that has heads of a kind, by its name.
    pub(crate) fn operand(&self, of: OfHeads) -> &'static str {
        match (of, self.order) {
            (OfHeads::Outputs, _) => "y",
            (_, HeadOrder::Packed) => "qkv",
            (OfHeads::Queries, _) => "q",
            (OfHeads::Keys, _) => "k",
            (OfHeads::Values, _) => "v",
        }
    }

    /// The index of an element there, or the origin of a box of rows and columns: its image, its head among those of its kind, its row
    /// and its column.
    pub(crate) fn index(&self, of: OfHeads, [image, head, row, column]: [Expr; 4]) -> Vec<Expr> {
        let head = match (self.order, of) {
            (HeadOrder::Packed, OfHeads::Keys) => head + self.heads,
            (HeadOrder::Packed, OfHeads::Values) => head + (self.heads + self.kv_heads),
            _ => head,
        };
        self.in_order([image, head, row, column]).into()
    }

    /// What is of an image, a head, a row and a column, in the order of the tensors.
    pub(crate) fn in_order<T>(&self, of: [T; 4]) -> [T; 4] {
        self.order.arrange(of)
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
        let Attention { b, heads, kv_heads, m, n, d, dv, causal, mask, order } = *self;
        let mask = Mask::ALL.iter().position(|one| *one == mask).expect("it is one of all");
        let order = HeadOrder::ALL.iter().position(|one| *one == order).expect("it is one of all");
        vec![b, heads, m, n, d, dv, kv_heads, i64::from(causal), mask as i64, order as i64]
    }

    fn validate(&self) -> Result<(), WorkloadError> {
        check_sizes(self)?;
        if self.heads % self.kv_heads != 0 {
            let cause = format!("{} heads of keys do not divide {} heads of queries", self.kv_heads, self.heads);
            let help = "as many neighbouring query heads share each key head: let their number be a multiple";
            return Err(WorkloadError::Sizes { cause, help });
        }
        if self.order == HeadOrder::Packed && (self.n, self.dv) != (self.m, self.d) {
            let cause = format!(
                "{} queries of {} elements, {} keys and values of {}, in one tensor",
                self.m, self.d, self.n, self.dv
            );
            let help = "queries, keys and values that differ in number or in size are tensors by themselves";
            return Err(WorkloadError::Sizes { cause, help });
        }
        Ok(())
    }

    /// Records of one order say what they say of all: a block's work is the same.
    fn likeness(&self) -> Likeness {
        likeness(self.kind(), &Attention { order: HeadOrder::HeadsFirst, ..*self }.sizes())
    }

    fn inputs(&self) -> Vec<Operand> {
        let own = |name, heads, rows, width| {
            Operand::new(name, Role::Input, self.in_order([self.b, heads, rows, width]).into())
        };
        let keys = |name, width| own(name, self.kv_heads, self.n, width);
        let heads = match self.order {
            HeadOrder::Packed => {
                vec![own("qkv", self.kv_heads.saturating_mul(2).saturating_add(self.heads), self.m, self.d)]
            }
            _ => vec![own("q", self.heads, self.m, self.d), keys("k", self.d), keys("v", self.dv)],
        };
        let mask = self.mask_shape().map(|shape| Operand::new("mask", Role::Input, shape));
        heads.into_iter().chain(mask).collect()
    }

    fn output(&self) -> (&'static str, Vec<Axis>) {
        use AxisRole::{Batch, Channel, Space};
        let axes = [("b", self.b, Batch), ("h", self.heads, Batch), ("i", self.m, Space), ("c", self.dv, Channel)];
        ("y", self.in_order(axes).map(|(name, extent, role)| Axis::new(name, extent, role)).to_vec())
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
        let load = |of, head: Expr, [row, column]: [usize; 2]| {
            let position = self.inputs().iter().position(|operand| operand.name == self.operand(of));
            let index = self.index(of, [axis(0).into(), head, axis(row).into(), axis(column).into()]);
            Expr::load(input(position.expect("an operand")), index)
        };
        let query = load(OfHeads::Queries, axis(1).into(), [2, 4]);
        let key = load(OfHeads::Keys, own(), [3, 4]);
        let value = load(OfHeads::Values, own(), [4, 3]);
        let mask = input(self.inputs().len() - 1);
        let scaled = of(0, axis(3).into()) * f(self.scale());
        let masked = match self.mask_index([0, 1, 2, 3].map(|i| axis(i).into())) {
            None => scaled,
            Some(index) => scaled + Expr::load(mask, index),
        };
        // Nothing is subtracted from scores of minus infinity, so that they weigh nothing.
        let largest = of(2, 0.into()).eq(f(f64::NEG_INFINITY)).select(f(0.0), of(2, 0.into()));
        let weight = Expr::un(UnOp::Exp, of(1, axis(3).into()) - largest);
        let total = of(4, 0.into());
        let mean = Expr::bin(BinOp::Div, of(5, axis(3).into()), total.clone());
        let acc = self.stage("acc", ("c", self.dv), None, sums, (Combine::One, total.eq(f(0.0)).select(f(0.0), mean)));
        let [b, h, i, c] = [0, 1, 2, 3].map(|at| axis(at).into());
        let acc = Stage {
            shape: self.in_order([self.b, self.heads, self.m, self.dv]).into(),
            index: self.index(OfHeads::Outputs, [b, h, i, c]),
            ..acc
        };
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
            acc,
        ]
    }

    fn reference(&self, workload: &Workload, inputs: &[&[f64]]) -> Sums {
        reference_attention::attend(self, workload, inputs)
    }
}

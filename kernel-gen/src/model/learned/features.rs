//! What a config looks like in numbers.
//!
//! Most columns come from the knobs alone and so are there for every template, a user's own included: logarithms of
//! split sizes and of the tiles that the inner ones make, products of the same part of several splits (blocks of a grid,
//! threads of a block, elements of a thread), products of pairs of numbers, positions of reordered loops, and one column
//! a word of a choice. To them come the logarithm of the template's own prediction and what the template adds itself
//! ([`Template::features`]).
//!
//! AutoTVM reads such numbers off the lowered program, which costs more than all the rest of its search; these need the
//! config only, a microsecond each.

use super::trees::Matrix;
use crate::space::{Annotation, Config, Knob, Space, Value};
use crate::target::Target;
use crate::templates::Template;
use crate::workload::Workload;

/// Makes rows of numbers of the configs of one space.
pub struct Features<'t> {
    workload: &'t Workload,
    target: &'t Target,
    template: &'t dyn Template,
    space: &'t Space,
    names: Vec<String>,
    column_groups: Vec<usize>,
    predicted: usize,
    /// Knobs that are splits into equally many parts, where there is more than one.
    groups: Vec<Vec<usize>>,
    /// Pairs of knobs that are numbers.
    pairs: Vec<(usize, usize)>,
}

/// Numbers above which pairs of them are not columns any more.
const PAIRED: usize = 9;

impl<'t> Features<'t> {
    /// For a space of a template, or a part of it.
    pub fn new(
        workload: &'t Workload,
        target: &'t Target,
        template: &'t dyn Template,
        space: &'t Space,
    ) -> Features<'t> {
        let (mut names, mut column_groups) = (vec![], vec![]);
        let mut groups: Vec<(usize, Vec<usize>)> = vec![];
        let mut numbers = vec![];
        let knobs: Vec<(&str, &Knob)> = space.knobs().map(|(name, knob)| (name, whole(knob))).collect();
        for (k, (name, knob)) in knobs.iter().enumerate() {
            match (knob, knob.get(0)) {
                (Knob::Split(_), Value::Split(sizes)) => {
                    names.extend((0..sizes.len()).map(|part| format!("{name}[{part}]")));
                    names.extend((1..sizes.len().max(2) - 1).map(|part| format!("{name}[{part}..]")));
                    match groups.iter_mut().find(|(parts, _)| *parts == sizes.len()) {
                        Some((_, group)) => group.push(k),
                        None => groups.push((sizes.len(), vec![k])),
                    }
                }
                (_, Value::Perm(order)) => names.extend((0..order.len()).map(|axis| format!("{name} position {axis}"))),
                (_, Value::Annotate(list)) => {
                    for axis in 0..list.len() {
                        names.push(format!("{name} unroll {axis}"));
                        names.push(format!("{name} vec {axis}"));
                    }
                }
                (Knob::Choice(values), Value::Str(_)) => names.extend(values.iter().map(|v| format!("{name}={v}"))),
                (_, first) => {
                    if matches!(first, Value::Int(_)) {
                        numbers.push(k);
                    }
                    names.push(name.to_string());
                }
            }
            column_groups.resize(names.len(), k);
        }
        groups.retain(|(_, group)| group.len() > 1);
        for (parts, _) in &groups {
            names.extend((0..*parts).map(|part| format!("splits in {parts}, product of [{part}]")));
            names.extend((1..parts.max(&2) - 1).map(|part| format!("splits in {parts}, product of [{part}..]")));
        }
        let mut pairs = vec![];
        if numbers.len() <= PAIRED {
            for (i, a) in numbers.iter().enumerate() {
                for b in &numbers[..i] {
                    names.push(format!("{} * {}", knobs[*b].0, knobs[*a].0));
                    pairs.push((*b, *a));
                }
            }
        }
        column_groups.resize(names.len(), knobs.len());
        let predicted = names.len();
        names.push("predicted".to_string());
        column_groups.push(knobs.len() + 1);
        let groups = groups.into_iter().map(|(_, group)| group).collect();
        let mut all = Features { workload, target, template, space, names, column_groups, predicted, groups, pairs };
        let known = all.names.len();
        let any = space.knobs().fold(Config::new(), |config, (name, knob)| config.with(name, knob.get(0)));
        let extra = all.row(&any).map_or(known, |row| row.len());
        all.column_groups.resize(extra, knobs.len() + 2);
        all.names.extend((known..extra).map(|i| format!("{}'s {}", template.name(), i - known)));
        all
    }

    /// What each column is.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// For each column the number of its group: the columns of a knob belong together, the products, and what the template
    /// adds; the prediction is alone.
    pub fn groups(&self) -> &[usize] {
        &self.column_groups
    }

    /// The column that holds the prediction.
    pub fn predicted(&self) -> usize {
        self.predicted
    }

    /// A matrix for the rows of this space.
    pub fn matrix(&self) -> Matrix {
        Matrix::new(self.names.len())
    }

    /// Logarithm of the time that the template predicts; a large number where it predicts none.
    pub fn log_predicted(&self, config: &Config) -> f64 {
        let predicted = self.template.cost(self.workload, self.target, config);
        if predicted.is_finite() && predicted > 0.0 { predicted.ln() } else { HOPELESS }
    }

    /// The row of a config; none if the config is not of this space.
    pub fn row(&self, config: &Config) -> Option<Vec<f32>> {
        let mut row = Vec::with_capacity(self.names.len());
        // Logarithms of the sizes of each split and of each number, by knob.
        let mut logs: Vec<Vec<f32>> = vec![];
        for (name, knob) in self.space.knobs() {
            let value = config.find(name)?;
            let from = row.len();
            match (whole(knob), value) {
                (Knob::Split(split), Value::Split(sizes)) => {
                    let inner: i64 = sizes.iter().skip(1).product();
                    let first = (split.extent() - 1) / inner.max(1) + 1;
                    row.push((first as f32).log2());
                    row.extend(sizes.iter().skip(1).map(|s| (*s as f32).log2()));
                    logs.push(row[from..].to_vec());
                    for part in 1..sizes.len().max(2) - 1 {
                        row.push(row[from + part..from + sizes.len()].iter().sum());
                    }
                }
                (_, Value::Perm(order)) => {
                    row.resize(from + order.len(), 0.0);
                    for (position, axis) in order.iter().enumerate() {
                        *row.get_mut(from + axis)? = position as f32;
                    }
                    logs.push(vec![]);
                }
                (_, Value::Annotate(list)) => {
                    for annotation in list {
                        row.push(f32::from(*annotation == Annotation::Unroll));
                        row.push(f32::from(*annotation == Annotation::Vec));
                    }
                    logs.push(vec![]);
                }
                (Knob::Choice(values), Value::Str(_)) => {
                    row.extend(values.iter().map(|v| f32::from(v == value)));
                    logs.push(vec![]);
                }
                (_, Value::Int(number)) => {
                    row.push((1.0 + number.unsigned_abs() as f32).log2() * number.signum() as f32);
                    logs.push(vec![(number.unsigned_abs().max(1) as f32).log2()]);
                }
                (_, Value::Bool(yes)) => {
                    row.push(f32::from(*yes));
                    logs.push(vec![]);
                }
                _ => return None,
            }
        }
        for group in &self.groups {
            let parts = logs[group[0]].len();
            let part_sum = |part: usize| group.iter().map(|k| logs[*k][part]).sum::<f32>();
            let sums: Vec<f32> = (0..parts).map(part_sum).collect();
            row.extend(&sums);
            row.extend((1..parts.max(2) - 1).map(|part| sums[part..].iter().sum::<f32>()));
        }
        row.extend(self.pairs.iter().map(|(a, b)| logs[*a][0] + logs[*b][0]));
        row.push(self.log_predicted(config) as f32);
        row.extend(self.template.features(self.workload, self.target, config).into_iter().map(|f| f as f32));
        Some(row)
    }

    /// What tells workloads apart: sizes of operands, operations and the longest chain of additions. The same for all
    /// rows, so it matters only where rows of several workloads come together.
    pub fn of_workload(&self) -> Vec<f32> {
        let log = |n: i64| (n.max(1) as f32).log2();
        let w = self.workload;
        let mut row = vec![log(w.flops()), log(w.bytes()), log(w.reduction_length()), log(w.channels())];
        // Input, weights and output: at most six dimensions each, so that all operators have as many columns.
        let params = w.params();
        for shape in [params.first().map(|p| &p.shape), params.get(1).map(|p| &p.shape), Some(&w.output_shape())] {
            let shape = shape.map_or(&[][..], |s| s.as_slice());
            row.extend((0..6).map(|axis| shape.get(axis).map_or(0.0, |n| log(*n))));
        }
        row
    }
}

/// The knob that a part of a space restricts: a part's columns are those of the whole.
fn whole(mut knob: &Knob) -> &Knob {
    while let Knob::Part(inner, _) = knob {
        knob = inner;
    }
    knob
}

/// Logarithm of a time in microseconds that no kernel takes: 35 years.
const HOPELESS: f64 = 34.6;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::{Annotate, Reorder, Rng, Split};
    use crate::templates::testing::Rows;
    use crate::workload::Matmul;

    #[test]
    fn every_kind_of_knob_has_columns_and_a_part_has_those_of_the_whole() {
        let axes = ["a", "b", "c"];
        let space = Space::builder()
            .split("rows", Split::factors(64, 3))
            .split("columns", Split::factors(32, 3))
            .reorder("order", &axes, Reorder::All)
            .annotate("ann", &axes, Annotate::TryUnrollVec)
            .knob("algorithm", ["direct", "gemm"])
            .knob("warps", [1, 2, 4])
            .knob("stages", [2, 3])
            .knob("pack", [false, true])
            .build()
            .unwrap();
        let workload = Workload::f32(Matmul::new(64, 32, 16));
        let target = Target::find("x86-64-v3").unwrap();
        let template = Rows { name: "rows", version: 1, cost: 20.0 };
        let features = Features::new(&workload, target, &template, &space);
        assert_eq!(features.groups().len(), features.names().len());
        let config = Config::parse(
            "rows=[-1,8,4] columns=[-1,2,1] order=(2,0,1) ann=<unroll,none,vec> algorithm=gemm warps=4 stages=3 pack=true",
        )
        .unwrap();
        let row = features.row(&config).unwrap();
        let value = |name: &str| {
            let column = features.names().iter().position(|n| n == name);
            row[column.unwrap_or_else(|| panic!("{name} is not among {:?}", features.names()))]
        };
        assert_eq!([value("rows[0]"), value("rows[1]"), value("rows[2]"), value("rows[1..]")], [1.0, 3.0, 2.0, 5.0]);
        assert_eq!([value("columns[0]"), value("splits in 3, product of [0]")], [4.0, 5.0]);
        assert_eq!([value("order position 2"), value("ann unroll 0"), value("ann vec 2")], [0.0, 1.0, 1.0]);
        assert_eq!([value("algorithm=gemm"), value("algorithm=direct"), value("pack")], [1.0, 0.0, 1.0]);
        assert_eq!([value("warps * stages"), value("predicted")], [2.0 + 3f32.log2(), 20f32.ln()]);
        let mut rng = Rng::new(1);
        for _ in 0..50 {
            let config = space.get(rng.below(space.range_len())).unwrap();
            assert_eq!(features.row(&config).unwrap().len(), features.names().len());
        }
        let part = space.part(&[("rows", vec![Value::Split(vec![-1, 8, 4])])]).unwrap();
        let of_part = Features::new(&workload, target, &template, &part);
        assert_eq!((of_part.names(), of_part.row(&config)), (features.names(), Some(row)));
        assert_eq!(features.row(&Config::new()), None);
    }
}

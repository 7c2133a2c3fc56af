//! Gradient-boosted regression trees on histograms.
//!
//! The method is that of Friedman, "Greedy function approximation: a gradient boosting machine" (2001), with the split
//! gain and leaf weights of XGBoost (Chen and Guestrin, 2016, equations 5 to 7) and columns that are cut into at most 64
//! bins once, before the first tree, as LightGBM does (Ke et al., 2017). Trees fit either the targets themselves or only
//! their order: the pairwise logistic loss of RankNet (Burges et al., 2005), where a pair weighs more the nearer its
//! better half is to the best, which is the idea of LambdaMART (Burges, 2010) and what a search for one winner wants.
//!
//! Sums run in the order of the rows and ties go to the first column and bin, so a fit is the same on every machine.

use crate::stable::Rng;

/// Rows of numbers, one after the other.
#[derive(Clone, Default, Debug)]
pub struct Matrix {
    columns: usize,
    values: Vec<f32>,
}

impl Matrix {
    /// No rows of so many columns.
    pub fn new(columns: usize) -> Matrix {
        Matrix { columns, values: vec![] }
    }

    /// Adds a row, which must have as many numbers as there are columns.
    pub fn push(&mut self, row: &[f32]) {
        assert_eq!(row.len(), self.columns, "a row has one number a column");
        self.values.extend_from_slice(row);
    }

    /// The row of that number.
    pub fn row(&self, row: usize) -> &[f32] {
        &self.values[row * self.columns..(row + 1) * self.columns]
    }

    /// Numbers of a row.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.values.len().checked_div(self.columns).unwrap_or(0)
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
}

/// What the trees are to bring down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Loss {
    /// Squared distance to the targets.
    Squared,
    /// Pairs of one group in the wrong order; predictions say nothing but an order, the smallest target first.
    Rank,
}

/// How to fit.
#[derive(Clone, PartialEq, Debug)]
pub struct Parameters {
    /// What is brought down.
    pub loss: Loss,
    /// Number of trees.
    pub rounds: usize,
    /// Questions between the root of a tree and a leaf.
    pub depth: usize,
    /// How much of each tree counts.
    pub learning_rate: f64,
    /// Pull of leaves towards nothing: XGBoost's lambda.
    pub l2: f64,
    /// Fewest rows of a leaf.
    pub min_rows: usize,
    /// Share of the rows that a fit sees, drawn without replacement.
    pub row_share: f64,
    /// Share of the columns that a tree sees.
    pub column_share: f64,
    /// For what is drawn.
    pub seed: u64,
}

impl Default for Parameters {
    fn default() -> Parameters {
        Parameters {
            loss: Loss::Squared,
            rounds: 60,
            depth: 4,
            learning_rate: 0.15,
            l2: 1.0,
            min_rows: 2,
            row_share: 1.0,
            column_share: 1.0,
            seed: 0,
        }
    }
}

/// What is known of the rows.
#[derive(Clone, Copy, Debug)]
pub struct Labels<'a> {
    /// What each row should come to; less is better.
    pub targets: &'a [f64],
    /// What is predicted of each row before the first tree; empty for nothing.
    pub margins: &'a [f64],
    /// Rows are compared with rows of their own group only; empty if all are of one.
    pub groups: &'a [usize],
}

/// A place in a tree; small, because scoring a space walks through millions of them.
#[derive(Clone, Copy, Debug)]
struct Node {
    /// Rows whose value of this column is at most `value` go to the node `left`, the others to the one after it.
    column: u32,
    /// The threshold; of a leaf, its weight.
    value: f32,
    /// Counted from the root; 0 for a leaf.
    left: u32,
}

impl Node {
    fn leaf(weight: f64) -> Node {
        Node { column: 0, value: weight as f32, left: 0 }
    }
}

/// Boosted trees: what [`Trees::fit`] found.
#[derive(Clone, Debug, Default)]
pub struct Trees {
    base: f64,
    /// All trees, one after the other.
    nodes: Vec<Node>,
    roots: Vec<usize>,
    /// The most steps from a root to a leaf.
    depth: usize,
}

/// Most bins of a column.
const BINS: usize = 64;

/// The columns that tell rows apart, as numbers of bins.
struct Binned {
    /// The column of the matrix, the upper bound of each bin but the last, and the bin of each row.
    columns: Vec<(usize, Vec<f32>, Vec<u8>)>,
}

impl Binned {
    fn new(rows: &Matrix) -> Binned {
        let mut columns = vec![];
        for column in 0..rows.columns() {
            let mut values: Vec<f32> = (0..rows.len()).map(|r| rows.row(r)[column]).collect();
            values.sort_by(f32::total_cmp);
            let total = values.len();
            let distinct = values.windows(2).filter(|w| w[0] < w[1]).count() + 1;
            let mut cuts: Vec<f32> = vec![];
            let mut next = 1;
            for (i, pair) in values.windows(2).enumerate() {
                // Every change of the value where there are few, and otherwise those nearest to equal shares.
                if pair[0] < pair[1] && (distinct <= BINS || (i + 1) * BINS >= next * total) {
                    cuts.push(pair[0] + (pair[1] - pair[0]) / 2.0);
                    next = (i + 1) * BINS / total + 1;
                }
            }
            if !cuts.is_empty() {
                let bin = |r| cuts.partition_point(|cut| *cut < rows.row(r)[column]) as u8;
                let bins = (0..rows.len()).map(bin).collect();
                columns.push((column, cuts, bins));
            }
        }
        Binned { columns }
    }
}

/// First and second derivatives of the loss, summed.
#[derive(Clone, Copy, Default)]
struct Sums {
    gradient: f64,
    hessian: f64,
    rows: usize,
}

impl Sums {
    fn add(&mut self, gradient: f64, hessian: f64) {
        self.gradient += gradient;
        self.hessian += hessian;
        self.rows += 1;
    }

    fn minus(self, other: Sums) -> Sums {
        Sums {
            gradient: self.gradient - other.gradient,
            hessian: self.hessian - other.hessian,
            rows: self.rows - other.rows,
        }
    }

    fn gain(self, l2: f64) -> f64 {
        self.gradient * self.gradient / (self.hessian + l2)
    }
}

impl Trees {
    /// Fits trees to labelled rows. Without rows they predict nothing: 0 everywhere.
    pub fn fit(rows: &Matrix, labels: Labels<'_>, with: &Parameters) -> Trees {
        let total = rows.len();
        assert_eq!(labels.targets.len(), total, "one target a row");
        let mut rng = Rng::new(with.seed);
        let kept = shuffled(total, share(total, with.row_share), &mut rng);
        let margin = |r: usize| labels.margins.get(r).copied().unwrap_or(0.0);
        let mut base = 0.0;
        if with.loss == Loss::Squared && !kept.is_empty() {
            base = kept.iter().map(|r| labels.targets[*r] - margin(*r)).sum::<f64>() / kept.len() as f64;
        }
        let mut scores: Vec<f64> = (0..total).map(|r| base + margin(r)).collect();
        let binned = Binned::new(rows);
        let (mut nodes, mut roots) = (vec![], vec![]);
        for _ in 0..with.rounds {
            let derivatives = match with.loss {
                Loss::Squared => scores.iter().zip(labels.targets).map(|(s, t)| (s - t, 1.0)).collect(),
                Loss::Rank => rank_derivatives(&kept, &scores, labels, &mut rng),
            };
            let columns = shuffled(binned.columns.len(), share(binned.columns.len(), with.column_share), &mut rng);
            let tree = grow(&binned, &columns, &kept, &derivatives, with);
            if tree.len() == 1 {
                // Other columns may still tell rows apart; without a draw nothing will change.
                if with.column_share >= 1.0 && with.loss == Loss::Squared {
                    break;
                }
                continue;
            }
            for (r, score) in scores.iter_mut().enumerate() {
                *score += leaf(&tree, rows.row(r));
            }
            roots.push(nodes.len());
            nodes.extend(tree);
        }
        Trees { base, nodes, roots, depth: with.depth }
    }

    /// The prediction of a row, to be added to its margin.
    pub fn predict(&self, row: &[f32]) -> f64 {
        // Several trees at a time: each step of one waits for the step before it, those of several do not.
        let mut sum = 0.0;
        for roots in self.roots.chunks(8) {
            let mut places = [0; 8];
            places[..roots.len()].copy_from_slice(roots);
            for _ in 0..self.depth {
                for (at, root) in places.iter_mut().zip(roots) {
                    let Node { column, value, left } = self.nodes[*at];
                    let next = root + left as usize + usize::from(row[column as usize] > value);
                    *at = if left == 0 { *at } else { next };
                }
            }
            sum += places[..roots.len()].iter().map(|at| f64::from(self.nodes[*at].value)).sum::<f64>();
        }
        self.base + sum
    }
}

/// At least one of `total`, if there is one.
fn share(total: usize, share: f64) -> usize {
    ((total as f64 * share).ceil() as usize).clamp(total.min(1), total)
}

/// So many of the numbers below `total`, ascending.
fn shuffled(total: usize, count: usize, rng: &mut Rng) -> Vec<usize> {
    let mut all: Vec<usize> = (0..total).collect();
    if count < total {
        for i in 0..count {
            let j = i + rng.below((total - i) as u64) as usize;
            all.swap(i, j);
        }
        all.truncate(count);
        all.sort_unstable();
    }
    all
}

fn leaf(tree: &[Node], row: &[f32]) -> f64 {
    let mut at = 0;
    loop {
        let node = tree[at];
        if node.left == 0 {
            return f64::from(node.value);
        }
        at = node.left as usize + usize::from(row[node.column as usize] > node.value);
    }
}

/// Rows that each row is compared with; all of its group where there are no more.
const PARTNERS: usize = 128;

fn rank_derivatives(kept: &[usize], scores: &[f64], labels: Labels<'_>, rng: &mut Rng) -> Vec<(f64, f64)> {
    let mut out = vec![(0.0, 0.0); scores.len()];
    let group = |r: usize| labels.groups.get(r).copied().unwrap_or(0);
    let groups = kept.iter().map(|r| group(*r)).max().map_or(0, |g| g + 1);
    let mut members: Vec<Vec<usize>> = vec![vec![]; groups];
    for r in kept {
        members[group(*r)].push(*r);
    }
    for members in members {
        let best = members.iter().map(|r| labels.targets[*r]).fold(f64::INFINITY, f64::min);
        // Targets are logarithms of times: this is the speed, relative to the best.
        let speed = |r: usize| (best - labels.targets[r]).exp();
        let mut pair = |a: usize, b: usize| {
            let (better, worse) = if labels.targets[a] < labels.targets[b] { (a, b) } else { (b, a) };
            let weight = speed(better) - speed(worse);
            if weight > 0.0 {
                // The probability that the model gives to the wrong order.
                let wrong = 1.0 / (1.0 + (scores[worse] - scores[better]).exp());
                let (gradient, hessian) = (weight * wrong, weight * wrong * (1.0 - wrong));
                out[better].0 += gradient;
                out[worse].0 -= gradient;
                out[better].1 += hessian;
                out[worse].1 += hessian;
            }
        };
        for (i, a) in members.iter().enumerate() {
            if members.len() <= PARTNERS {
                members[..i].iter().for_each(|b| pair(*a, *b));
            } else {
                (0..PARTNERS / 2).for_each(|_| pair(*a, *rng.pick(&members)));
            }
        }
    }
    out
}

/// One tree, whole levels at a time.
fn grow(
    binned: &Binned,
    columns: &[usize],
    kept: &[usize],
    derivatives: &[(f64, f64)],
    with: &Parameters,
) -> Vec<Node> {
    let mut nodes = vec![Node::leaf(0.0)];
    let mut open = vec![(0, kept.to_vec())];
    for level in 0..=with.depth {
        let mut below = vec![];
        for (node, rows) in open {
            let mut total = Sums::default();
            for r in &rows {
                total.add(derivatives[*r].0, derivatives[*r].1);
            }
            let best =
                if level == with.depth { None } else { best_split(binned, columns, &rows, total, derivatives, with) };
            let Some((column, bin)) = best else {
                nodes[node] = Node::leaf(-with.learning_rate * total.gradient / (total.hessian + with.l2));
                continue;
            };
            let (number, cuts, bins) = &binned.columns[column];
            let left = nodes.len();
            nodes[node] = Node { column: *number as u32, value: cuts[bin], left: left as u32 };
            nodes.extend([Node::leaf(0.0); 2]);
            let (low, high) = rows.into_iter().partition(|r| usize::from(bins[*r]) <= bin);
            below.push((left, low));
            below.push((left + 1, high));
        }
        open = below;
    }
    nodes
}

/// The column of `binned` and the last bin of the left side that bring the loss down most.
fn best_split(
    binned: &Binned,
    columns: &[usize],
    rows: &[usize],
    total: Sums,
    derivatives: &[(f64, f64)],
    with: &Parameters,
) -> Option<(usize, usize)> {
    if rows.len() < 2 * with.min_rows.max(1) {
        return None;
    }
    let mut best = None;
    // A gain that rounding could have made is none.
    let mut most = total.gain(with.l2) + 1e-9;
    for column in columns {
        let (_, cuts, bins) = &binned.columns[*column];
        let mut sums = [Sums::default(); BINS + 1];
        for r in rows {
            sums[usize::from(bins[*r])].add(derivatives[*r].0, derivatives[*r].1);
        }
        let mut left = Sums::default();
        for (bin, sum) in sums.iter().enumerate().take(cuts.len()) {
            left = Sums {
                gradient: left.gradient + sum.gradient,
                hessian: left.hessian + sum.hessian,
                rows: left.rows + sum.rows,
            };
            let right = total.minus(left);
            if left.rows < with.min_rows || right.rows < with.min_rows {
                continue;
            }
            let gain = left.gain(with.l2) + right.gain(with.l2);
            if gain > most {
                most = gain;
                best = Some((*column, bin));
            }
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(count: usize, seed: u64) -> (Matrix, Vec<f64>) {
        let mut rng = Rng::new(seed);
        let mut rows = Matrix::new(4);
        let mut targets = vec![];
        for _ in 0..count {
            let row: Vec<f32> = (0..4).map(|_| rng.unit() as f32).collect();
            let (a, b, c) = (f64::from(row[0]), f64::from(row[1]), f64::from(row[2]));
            rows.push(&row);
            // A step, a product and a column that means nothing.
            targets.push(if a > 0.5 { 2.0 } else { 0.0 } + 3.0 * b * c);
        }
        (rows, targets)
    }

    fn error(trees: &Trees, rows: &Matrix, targets: &[f64]) -> f64 {
        let squares: f64 = (0..rows.len()).map(|r| (trees.predict(rows.row(r)) - targets[r]).powi(2)).sum();
        (squares / rows.len() as f64).sqrt()
    }

    /// Share of pairs that are predicted in the right order.
    fn order(trees: &Trees, rows: &Matrix, targets: &[f64]) -> f64 {
        let (mut right, mut all) = (0, 0);
        for i in 0..rows.len() {
            for j in 0..i {
                let predicted = trees.predict(rows.row(i)) - trees.predict(rows.row(j));
                right += usize::from(predicted * (targets[i] - targets[j]) > 0.0);
                all += 1;
            }
        }
        f64::from(right as u32) / f64::from(all)
    }

    #[test]
    fn a_fit_foretells_rows_that_it_did_not_see() {
        let (rows, targets) = data(400, 1);
        let (unseen, truth) = data(200, 2);
        let labels = Labels { targets: &targets, margins: &[], groups: &[] };
        let trees = Trees::fit(&rows, labels, &Parameters { rounds: 100, ..Parameters::default() });
        let mean = truth.iter().sum::<f64>() / truth.len() as f64;
        let spread = (truth.iter().map(|t| (t - mean).powi(2)).sum::<f64>() / truth.len() as f64).sqrt();
        let found = error(&trees, &unseen, &truth);
        assert!(found < 0.2 * spread, "{found} of {spread}");
    }

    #[test]
    fn ranks_are_learnt_within_groups_whatever_their_offsets() {
        let (rows, mut targets) = data(240, 3);
        let groups: Vec<usize> = (0..240).map(|r| r % 3).collect();
        let (unseen, truth) = data(100, 4);
        for (target, group) in targets.iter_mut().zip(&groups) {
            *target += 50.0 * *group as f64;
        }
        let labels = Labels { targets: &targets, margins: &[], groups: &groups };
        let trees = Trees::fit(&rows, labels, &Parameters { loss: Loss::Rank, ..Parameters::default() });
        assert!(order(&trees, &unseen, &truth) > 0.85, "{}", order(&trees, &unseen, &truth));
    }

    #[test]
    fn margins_are_what_trees_need_not_say() {
        let (rows, targets) = data(100, 5);
        let labels = Labels { targets: &targets, margins: &targets, groups: &[] };
        let trees = Trees::fit(&rows, labels, &Parameters::default());
        assert!((0..100).all(|r| trees.predict(rows.row(r)).abs() < 1e-9));
    }

    #[test]
    fn few_or_equal_rows_are_no_trouble() {
        let none = Labels { targets: &[], margins: &[], groups: &[] };
        assert_eq!(Trees::fit(&Matrix::new(2), none, &Parameters::default()).predict(&[0.0, 0.0]), 0.0);
        let mut rows = Matrix::new(2);
        (0..3).for_each(|_| rows.push(&[1.0, 2.0]));
        for loss in [Loss::Squared, Loss::Rank] {
            let labels = Labels { targets: &[1.0, 2.0, 3.0], margins: &[], groups: &[] };
            let trees = Trees::fit(&rows, labels, &Parameters { loss, ..Parameters::default() });
            assert_eq!(trees.predict(&[1.0, 2.0]), if loss == Loss::Squared { 2.0 } else { 0.0 });
        }
    }

    #[test]
    fn many_distinct_values_share_bins() {
        let mut rows = Matrix::new(1);
        (0..1000).for_each(|i| rows.push(&[i as f32]));
        let binned = Binned::new(&rows);
        let (_, cuts, bins) = &binned.columns[0];
        assert!((BINS / 2..=BINS).contains(&(cuts.len() + 1)), "{}", cuts.len());
        assert!(bins.iter().all(|b| usize::from(*b) <= cuts.len()));
    }
}

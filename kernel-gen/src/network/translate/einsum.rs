//! `Einsum`: sums of products by the letters of their dimensions, as products of matrices.

use super::builder::{Builder, Call};
use super::movement::permuted;
use super::row::reduced;
use crate::network::model::Node;
use crate::network::problem::Fault;
use crate::network::program::ValueId;

/// A tensor and a letter for each of its dimensions.
struct Labelled {
    id: ValueId,
    letters: Vec<char>,
}

/// Letters for what an ellipsis stands for: none that an equation may have.
const ELLIPSIS: [char; 6] = ['0', '1', '2', '3', '4', '5'];

/// `Einsum` of one operand or more, which are combined from the left.
pub(super) fn einsum(b: &mut Builder, node: &Node, x: &[Option<ValueId>]) -> Result<ValueId, Fault> {
    let equation: String = node.text("equation", "").chars().filter(|c| !c.is_whitespace()).collect();
    let wrong = |why: &str| Fault::new(format!("`{equation}`: {why}"), "write it with other operators");
    let (terms, result) = match equation.split_once("->") {
        Some((terms, result)) => (terms, Some(result)),
        None => (&equation[..], None),
    };
    let operands: Vec<ValueId> = x.iter().copied().flatten().collect();
    let terms: Vec<&str> = terms.split(',').collect();
    if terms.len() != operands.len() || operands.is_empty() {
        return Err(wrong(&format!("{} terms and {} operands", terms.len(), operands.len())));
    }
    let mut all = vec![];
    for (term, id) in terms.iter().zip(operands) {
        let rank = b.shape(id).len();
        let hidden = rank.saturating_sub(term.replace("...", "").chars().count());
        let dots: String = ELLIPSIS[ELLIPSIS.len() - hidden.min(ELLIPSIS.len())..].iter().collect();
        let letters: Vec<char> = term.replace("...", &dots).chars().collect();
        if letters.len() != rank {
            return Err(wrong(&format!("`{term}` for a tensor of {:?}", b.shape(id))));
        }
        if letters.iter().enumerate().any(|(i, c)| letters[..i].contains(c)) {
            return Err(wrong("a letter twice in one term"));
        }
        all.push(Labelled { id, letters });
    }
    let times = |c: char| all.iter().filter(|of| of.letters.contains(&c)).count();
    let widest: Vec<char> = ELLIPSIS.into_iter().filter(|c| times(*c) > 0).collect();
    let result: Vec<char> = match result {
        Some(result) => result.replace("...", &widest.iter().collect::<String>()).chars().collect(),
        None => {
            // What occurs once, in alphabetical order, behind the ellipsis.
            let mut once: Vec<char> = all.iter().flat_map(|of| of.letters.iter().copied()).collect();
            once.retain(|c| times(*c) == 1 && !ELLIPSIS.contains(c));
            once.sort_unstable();
            [widest, once].concat()
        }
    };
    if result.iter().enumerate().any(|(i, c)| times(*c) == 0 || result[..i].contains(c)) {
        return Err(wrong("its result has a letter twice, or one that no term has"));
    }
    let mut rest = all.into_iter();
    let mut sum = rest.next().expect("there is an operand");
    let rest: Vec<Labelled> = rest.collect();
    for (number, next) in rest.iter().enumerate() {
        let later = |c: &char| result.contains(c) || rest[number + 1..].iter().any(|of| of.letters.contains(c));
        sum = product(b, &sum, next, &later).map_err(|fault| wrong(&fault.cause))?;
    }
    let sum = summed(b, sum, &|c| result.contains(c))?;
    let place = |c: &char| sum.letters.iter().position(|other| other == c);
    let order = result.iter().map(place).collect::<Option<Vec<usize>>>();
    permuted(b, sum.id, &order.ok_or_else(|| wrong("its result has a letter that no term has"))?)
}

/// The sum over all dimensions but those whose letters stay.
fn summed(b: &mut Builder, of: Labelled, stays: &dyn Fn(&char) -> bool) -> Result<Labelled, Fault> {
    let axes: Vec<usize> = (0..of.letters.len()).filter(|i| !stays(&of.letters[*i])).collect();
    if axes.is_empty() {
        return Ok(of);
    }
    let id = reduced(b, "reduce_sum", of.id, &axes, false)?;
    Ok(Labelled { id, letters: of.letters.into_iter().filter(|c| stays(c)).collect() })
}

/// The product of two tensors, summed over the letters that nothing needs later.
fn product(
    b: &mut Builder,
    left: &Labelled,
    right: &Labelled,
    later: &dyn Fn(&char) -> bool,
) -> Result<Labelled, Fault> {
    let copy = |of: &Labelled| Labelled { id: of.id, letters: of.letters.clone() };
    let left = summed(b, copy(left), &|c| later(c) || right.letters.contains(c))?;
    let right = summed(b, copy(right), &|c| later(c) || left.letters.contains(c))?;
    let extent = |b: &Builder, of: &Labelled, c: char| {
        of.letters.iter().position(|other| *other == c).map_or(1, |i| b.shape(of.id)[i])
    };
    let (mut batch, mut depth) = (vec![], vec![]);
    for c in left.letters.iter().copied().filter(|c| right.letters.contains(c)) {
        if extent(b, &left, c) != extent(b, &right, c) {
            return Err(Fault::new(format!("`{c}` is {} and {}", extent(b, &left, c), extent(b, &right, c)), ""));
        }
        if later(&c) { batch.push(c) } else { depth.push(c) }
    }
    let own = |of: &Labelled, other: &Labelled| -> Vec<char> {
        of.letters.iter().copied().filter(|c| !other.letters.contains(c)).collect()
    };
    let (rows, columns) = (own(&left, &right), own(&right, &left));
    let size = |letters: &[char]| -> i64 {
        let of = |c: &char| extent(b, &left, *c).max(extent(b, &right, *c));
        letters.iter().map(of).product()
    };
    let [batches, m, k, n] = [size(&batch), size(&rows), size(&depth), size(&columns)];
    let shape: Vec<i64> = [&batch[..], &rows, &columns]
        .concat()
        .iter()
        .map(|c| extent(b, &left, *c).max(extent(b, &right, *c)))
        .collect();
    // A factor that lies transposed is taken so.
    let trans_a = !rows.is_empty() && !depth.is_empty() && left.letters == [&batch[..], &depth, &rows].concat();
    let trans_b = !columns.is_empty() && !depth.is_empty() && right.letters == [&batch[..], &columns, &depth].concat();
    let a =
        in_order(b, &left, &if trans_a { [&batch[..], &depth, &rows] } else { [&batch[..], &rows, &depth] }.concat())?;
    let w = in_order(
        b,
        &right,
        &if trans_b { [&batch[..], &columns, &depth] } else { [&batch[..], &depth, &columns] }.concat(),
    )?;
    let sa = if trans_a { [batches, k, m] } else { [batches, m, k] };
    let sb = if trans_b { [batches, n, k] } else { [batches, k, n] };
    let flat = usize::from(batches == 1);
    let (a, w) = (b.view(a, &sa[flat..])?, b.view(w, &sb[flat..])?);
    let kind = if flat == 1 { "matmul" } else { "batch_matmul" };
    let call = Call::new(kind, &[a, w]).key("a", &sa[flat..]).key("b", &sb[flat..]);
    let y = b.compute(call.flag("trans_a", trans_a).flag("trans_b", trans_b))?;
    Ok(Labelled { id: b.view(y, &shape)?, letters: [&batch[..], &rows, &columns].concat() })
}

/// A tensor with its dimensions in another order.
fn in_order(b: &mut Builder, of: &Labelled, letters: &[char]) -> Result<ValueId, Fault> {
    let order = letters.iter().filter_map(|c| of.letters.iter().position(|other| other == c)).collect::<Vec<_>>();
    permuted(b, of.id, &order)
}

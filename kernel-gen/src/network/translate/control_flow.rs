//! Control flow: `If`, `Loop`, `Scan` and `SequenceMap`.
//!
//! What a branch or a round computes is put in the place of the node, as the nodes of the graph within it would stand there. A
//! branch is chosen, and the rounds are counted, when the model is compiled. Of a condition that is known only when the network
//! runs both branches are computed, and the results are chosen: no operator has an effect but its results.

use super::builder::Builder;
use super::movement::{along, parts, permuted};
use super::nodes::{results, walk};
use super::operands::{Bound, axis, missing, optional, tensor};
use crate::network::model::{Attribute, Graph, Node};
use crate::network::problem::{Fault, Problem};
use crate::network::program::ValueId;
use crate::network::tensor::Tensor;
use std::mem;
use std::ops::Range;

/// Most rounds of a loop: passes look through all steps for each.
const MOST_ROUNDS: i64 = 1024;

/// Most nodes that stand in the places of loops and branches: a few loops within each other may ask for billions.
const MOST_NODES: usize = 1 << 14;

/// Names within a graph that take as long as a node.
const NAMES_OF_NODE: usize = 16;

/// Most steps in front of a round: a node may become a thousand.
const MOST_STEPS: usize = 1 << 15;

/// Help where the data of an input decides.
const GIVE_IT: &str = "give the input that decides it a value, constants = { \"name\" = 1 } in the spec, or export the model \
                       without it";

/// Makes the results of a node with graphs.
type Flow = fn(&mut Builder, &Node, &[Option<Bound>]) -> Result<Vec<Bound>, Vec<Problem>>;

/// The operators with graphs.
const OPERATORS: [(&str, Flow); 4] = [("If", branch), ("Loop", rounds), ("Scan", scan), ("SequenceMap", each)];

/// Their names.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    OPERATORS.iter().map(|(name, _)| *name)
}

/// What makes the results of a node with graphs; none of other nodes.
pub(super) fn of(node: &Node) -> Option<Flow> {
    OPERATORS.iter().find(|(name, _)| *name == node.op).map(|(_, flow)| *flow)
}

/// A fault of the node itself.
fn own(b: &Builder, node: &Node) -> impl Fn(Fault) -> Vec<Problem> + use<> {
    let place = b.place(node);
    move |fault| vec![Problem::at(&place, fault)]
}

/// The graph of an attribute.
fn graph<'a>(node: &'a Node, name: &str) -> Result<&'a Graph, Fault> {
    match node.attributes.get(name) {
        Some(Attribute::Graph(graph)) => Ok(graph),
        _ => Err(Fault::new(format!("it has no graph `{name}`"), "export the model again")),
    }
}

/// Whether a truth value that must be known is not 0.
fn is_true(b: &Builder, what: &str, id: ValueId) -> Result<bool, Fault> {
    let cause = || Fault::new(format!("{what} is computed from the data of an input"), GIVE_IT);
    let value = b.constant(id).ok_or_else(cause)?;
    is_single(b, what, id)?;
    Ok(value.to_doubles().iter().any(|value| *value != 0.0))
}

/// Refuses what has not exactly one element.
fn is_single(b: &Builder, what: &str, id: ValueId) -> Result<(), Fault> {
    match b.program.elements(id) {
        1 => Ok(()),
        n => Err(Fault::new(format!("{what} has {n} elements"), "export the model again")),
    }
}

/// A graph that gives less than it takes.
fn too_few(graph: &Graph) -> Fault {
    let cause = format!("its graph takes {} values and gives {}", graph.inputs.len(), graph.outputs.len());
    Fault::new(cause, "export the model again")
}

/// `If`.
fn branch(b: &mut Builder, node: &Node, x: &[Option<Bound>]) -> Result<Vec<Bound>, Vec<Problem>> {
    let wrong = own(b, node);
    let condition = tensor(x, 0).map_err(&wrong)?;
    let branches = [graph(node, "then_branch").map_err(&wrong)?, graph(node, "else_branch").map_err(&wrong)?];
    if b.constant(condition).is_some() {
        let is_else = !is_true(b, "its condition", condition).map_err(&wrong)?;
        b.decide(node, is_else.into());
        return inside(b, node, "", branches[usize::from(is_else)], &[]);
    }
    is_single(b, "its condition", condition).map_err(&wrong)?;
    let both =
        || Fault::new("its condition is known only when the network runs, so both branches are computed", GIVE_IT);
    let of_branch = |b: &mut Builder, at: usize| {
        let scope = if at == 0 { "then" } else { "else" };
        inside(b, node, scope, branches[at], &[]).map_err(|problems| [wrong(both()), problems].concat())
    };
    let (yes, no) = (of_branch(b, 0)?, of_branch(b, 1)?);
    b.node = b.scoped(&node.name);
    let mut chosen = |yes: ValueId, no: ValueId| {
        let shapes = [b.shape(yes), b.shape(no)];
        if shapes[0] != shapes[1] {
            let cause = format!("its condition is known only when the network runs, and its branches give {shapes:?}");
            return Err(Fault::new(cause, GIVE_IT));
        }
        if yes == no {
            return Ok(yes);
        }
        let choice = Node { op: "Where".into(), outputs: vec!["y".into()], ..Node::default() };
        let y = results(b, &choice, &[Some(condition), Some(yes), Some(no)])?;
        b.view(y[0], &shapes[0])
    };
    let each = yes.iter().zip(&no).map(|pair| match pair {
        (Bound::Tensor(yes), Bound::Tensor(no)) => Ok(Bound::Tensor(chosen(*yes, *no)?)),
        (Bound::Sequence(yes), Bound::Sequence(no)) if yes.len() == no.len() => {
            let all = yes.iter().zip(no).map(|(yes, no)| chosen(*yes, *no));
            Ok(Bound::Sequence(all.collect::<Result<_, _>>()?))
        }
        _ => Err(Fault::new(
            "its condition is known only when the network runs, and its branches give sequences of other lengths",
            GIVE_IT,
        )),
    });
    each.collect::<Result<_, _>>().map_err(wrong)
}

/// `Loop`.
fn rounds(b: &mut Builder, node: &Node, x: &[Option<Bound>]) -> Result<Vec<Bound>, Vec<Problem>> {
    let wrong = own(b, node);
    let body = graph(node, "body").map_err(&wrong)?;
    let most = match optional(x, 0).map_err(&wrong)? {
        Some(id) => {
            is_single(b, "its number of rounds", id).map_err(&wrong)?;
            b.integers("rounds", id).map_err(|fault| wrong(Fault { help: GIVE_IT.into(), ..fault }))?[0]
        }
        None => i64::MAX,
    };
    let mut goes_on = match optional(x, 1).map_err(&wrong)? {
        Some(id) => is_true(b, "whether it begins", id).map_err(&wrong)?,
        None => true,
    };
    let mut carried = bounds(x, 2..body.inputs.len()).map_err(&wrong)?;
    let series = body.outputs.len().checked_sub(1 + carried.len()).ok_or_else(|| wrong(too_few(body)))?;
    let mut series: Vec<Vec<ValueId>> = vec![vec![]; series];
    let mut round = 0;
    while goes_on && round < most {
        if round == MOST_ROUNDS {
            let help = "export the model with a shorter one";
            return Err(wrong(Fault::new(format!("it goes round more than {MOST_ROUNDS} times"), help)));
        }
        let number = [round, 1].map(|n| Bound::Tensor(b.add_constant(Tensor::integers(&[], [n]))));
        let of_round = [&number[..], &carried].concat();
        let results = inside(b, node, &round.to_string(), body, &of_round)?;
        // Behind the last round nobody asks for the condition.
        if round + 1 < most {
            goes_on = results[0].tensor().and_then(|id| is_true(b, "whether it goes on", id)).map_err(&wrong)?;
        }
        let (next, elements) = results[1..].split_at(carried.len());
        carried = next.to_vec();
        add(&mut series, elements).map_err(&wrong)?;
        round += 1;
    }
    b.decide(node, round);
    stacked(b, node, carried, series, &[]).map_err(wrong)
}

/// `Scan`.
fn scan(b: &mut Builder, node: &Node, x: &[Option<Bound>]) -> Result<Vec<Bound>, Vec<Problem>> {
    let wrong = own(b, node);
    let body = graph(node, "body").map_err(&wrong)?;
    let (mut states, series) = scanned(b, node, x, body).map_err(&wrong)?;
    let rounds = series.first().map_or(0, Vec::len);
    b.decide(node, rounds as i64);
    let results = body.outputs.len().checked_sub(states.len()).ok_or_else(|| wrong(too_few(body)))?;
    let mut results: Vec<Vec<ValueId>> = vec![vec![]; results];
    for round in 0..rounds {
        let elements = series.iter().map(|all| Bound::Tensor(all[round]));
        let of_round: Vec<Bound> = states.iter().cloned().chain(elements).collect();
        let all = inside(b, node, &round.to_string(), body, &of_round)?;
        let (next, elements) = all.split_at(states.len());
        states = next.to_vec();
        add(&mut results, elements).map_err(&wrong)?;
    }
    let backwards = node.integers("scan_output_directions").unwrap_or_default();
    for (all, _) in results.iter_mut().zip(&backwards).filter(|(_, backwards)| **backwards == 1) {
        all.reverse();
    }
    stacked(b, node, states, results, &node.integers("scan_output_axes").unwrap_or_default()).map_err(wrong)
}

/// The first states of a `Scan`, and for each series the elements in the order of its rounds.
fn scanned(
    b: &mut Builder,
    node: &Node,
    x: &[Option<Bound>],
    body: &Graph,
) -> Result<(Vec<Bound>, Vec<Vec<ValueId>>), Fault> {
    if b.opset < 9 {
        return Err(Fault::new("it is that of version 8 of the operators", "convert the model to version 9 or later"));
    }
    let count = node.integer("num_scan_inputs", 0);
    let states = usize::try_from(count).ok().filter(|n| *n > 0).and_then(|n| body.inputs.len().checked_sub(n));
    let states = states.ok_or_else(|| Fault::attribute("num_scan_inputs", count, "as many as its graph has inputs"))?;
    let axes = node.integers("scan_input_axes").unwrap_or_default();
    let backwards = node.integers("scan_input_directions").unwrap_or_default();
    let mut series: Vec<Vec<ValueId>> = vec![];
    for i in 0..count as usize {
        let input = tensor(x, states + i)?;
        let rank = b.shape(input).len();
        let at = axis(axes.get(i).copied().unwrap_or(0), rank)?;
        let order: Vec<usize> = [at].into_iter().chain((0..rank).filter(|d| *d != at)).collect();
        let first = if at == 0 { input } else { permuted(b, input, &order)? };
        let shape = b.shape(first);
        if shape[0] > MOST_ROUNDS {
            let cause = format!("it goes round {} times", shape[0]);
            return Err(Fault::new(cause, format!("use series of at most {MOST_ROUNDS} elements")));
        }
        let each = parts(b, first, 0, &vec![1; shape[0] as usize])?;
        let mut all = each.into_iter().map(|id| b.view(id, &shape[1..])).collect::<Result<Vec<_>, _>>()?;
        if backwards.get(i) == Some(&1) {
            all.reverse();
        }
        if series.first().is_some_and(|other| other.len() != all.len()) {
            return Err(Fault::new("its series are of several lengths", "give inputs shapes that belong together"));
        }
        series.push(all);
    }
    Ok((bounds(x, 0..states)?, series))
}

/// `SequenceMap`: the results of a graph for each element of a sequence, with those of other sequences in its place.
fn each(b: &mut Builder, node: &Node, x: &[Option<Bound>]) -> Result<Vec<Bound>, Vec<Problem>> {
    let wrong = own(b, node);
    let body = graph(node, "body").map_err(&wrong)?;
    let given = bounds(x, 0..body.inputs.len()).map_err(&wrong)?;
    let Some(Bound::Sequence(first)) = given.first() else {
        return Err(wrong(Fault::new("its first operand is no sequence of tensors", "export the model again")));
    };
    let mut results: Vec<Vec<ValueId>> = vec![vec![]; body.outputs.len()];
    for at in 0..first.len() {
        let element = |bound: &Bound| match bound {
            Bound::Sequence(all) => all.get(at).copied().map(Bound::Tensor),
            Bound::Tensor(_) => Some(bound.clone()),
        };
        let shorter = || wrong(Fault::new("its sequences are of several lengths", "export the model again"));
        let of_round = given.iter().map(element).collect::<Option<Vec<_>>>().ok_or_else(shorter)?;
        let all = inside(b, node, &at.to_string(), body, &of_round)?;
        add(&mut results, &all).map_err(&wrong)?;
    }
    Ok(results.into_iter().map(Bound::Sequence).collect())
}

/// Operands that must be there.
fn bounds(x: &[Option<Bound>], places: Range<usize>) -> Result<Vec<Bound>, Fault> {
    places.map(|at| x.get(at).cloned().flatten().ok_or_else(|| missing(at))).collect()
}

/// Adds what a round gives to the elements of each series.
fn add(series: &mut [Vec<ValueId>], elements: &[Bound]) -> Result<(), Fault> {
    for (all, element) in series.iter_mut().zip(elements) {
        all.push(element.tensor()?);
    }
    Ok(())
}

/// What a loop leaves: the values that it carried, and each series as one tensor, along its axis.
fn stacked(
    b: &mut Builder,
    node: &Node,
    mut carried: Vec<Bound>,
    series: Vec<Vec<ValueId>>,
    axes: &[i64],
) -> Result<Vec<Bound>, Fault> {
    b.node = b.scoped(&node.name);
    for (i, all) in series.into_iter().enumerate() {
        let Some(first) = all.first() else {
            if node.outputs.iter().skip(carried.len()).any(|name| !name.is_empty()) {
                return Err(Fault::new("it goes round no times, so a result has no elements", "leave it out"));
            }
            break;
        };
        let shape = b.shape(*first);
        let longer = [&[1], &shape[..]].concat();
        let all = all.iter().map(|id| b.view(*id, &longer)).collect::<Result<Vec<_>, _>>()?;
        let whole = along(b, all, 0)?;
        let at = axis(axes.get(i).copied().unwrap_or(0), longer.len())?;
        let order: Vec<usize> = (1..=at).chain([0]).chain(at + 1..longer.len()).collect();
        carried.push(Bound::Tensor(if at == 0 { whole } else { permuted(b, whole, &order)? }));
    }
    Ok(carried)
}

/// The results of a graph in the place of a node; `scope` tells it from others of the node, and its inputs are `given`.
fn inside(
    b: &mut Builder,
    node: &Node,
    scope: &str,
    graph: &Graph,
    given: &[Bound],
) -> Result<Vec<Bound>, Vec<Problem>> {
    let wrong = own(b, node);
    // A name costs less than a node, but a file may have many.
    let names = graph.constants.len() + graph.inputs.len() + graph.outputs.len();
    b.nodes += graph.nodes.len() + 1 + names / NAMES_OF_NODE;
    if b.nodes > MOST_NODES || b.program.steps.len() > MOST_STEPS {
        let cause = format!("with it, loops and branches are more than {MOST_NODES} nodes, or {MOST_STEPS} steps");
        return Err(wrong(Fault::new(cause, "export the model with shorter loops")));
    }
    // A name of the graph hides that of a value around it.
    let hidden: Vec<(&String, Option<Bound>)> = graph.own().map(|name| (name, b.names.get(name).cloned())).collect();
    let inner = b.scoped(&format!("{}{}{scope}", node.name, if scope.is_empty() { "" } else { ":" }));
    let before = mem::replace(&mut b.scope, format!("{inner}/"));
    for (name, tensor) in &graph.constants {
        let id = b.share_constant(tensor);
        b.names.insert(name.clone(), Bound::Tensor(id));
    }
    b.names.extend(graph.inputs.iter().cloned().zip(given.iter().cloned()));
    let problems = walk(b, &graph.nodes, &mut Default::default());
    let results =
        graph.outputs.iter().map(|name| b.names.get(name).cloned().ok_or(name)).collect::<Result<Vec<_>, _>>();
    b.scope = before;
    for (name, bound) in hidden {
        match bound {
            Some(bound) => b.names.insert(name.clone(), bound),
            None => b.names.remove(name),
        };
    }
    match results {
        _ if !problems.is_empty() => Err(problems),
        Ok(all) => Ok(all),
        Err(name) => Err(wrong(Fault::new(format!("nothing in its graph gives `{name}`"), "export the model again"))),
    }
}

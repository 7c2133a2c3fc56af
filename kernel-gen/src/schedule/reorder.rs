//! `reorder`: nested loops change places.
//!
//! ```text
//! reorder([j, i])
//! for i in 0..4 { for j in 0..8 { s } }   ->   for j in 0..8 { for i in 0..4 { s } }
//! ```
//! The loops must stand in one perfectly nested chain; loops of the chain that are not listed keep their places, and
//! conditionals between them move to the innermost body. Refuses when the loops are not such a chain, or when more than
//! one of the loops carries an order that must be kept: the steps of a reduction may happen in any order, so its own
//! loops do not count.

use super::depend::{Carried, carried};
use super::error::{Reason, ScheduleError, refuse_loop};
use super::nest::{replace_loop, the_loop, tidy};
use crate::ir::visit::find_loop;
use crate::ir::{Expr, For, Kernel, Stmt, VarId};

/// Puts the listed loops into the listed order, outermost first.
pub fn reorder(k: &Kernel, order: &[VarId]) -> Result<Kernel, ScheduleError> {
    const NAME: &str = "reorder";
    for (i, v) in order.iter().enumerate() {
        the_loop(k, NAME, *v)?;
        if order[..i].contains(v) {
            let (given, allowed) = ("the loop twice".to_string(), "each loop once".to_string());
            return Err(refuse_loop(k, NAME, *v, Reason::BadArgument { given, allowed }));
        }
    }
    // The outermost of the listed loops is the one that holds all the others.
    let holds_all = |v: VarId| {
        find_loop(&k.body, v).is_some_and(|l| order.iter().all(|u| *u == v || find_loop(&l.body, *u).is_some()))
    };
    let Some(top) = order.iter().copied().find(|v| holds_all(*v)) else {
        let Some(first) = order.first() else { return Ok(k.clone()) };
        let inner = order.iter().find(|v| *v != first).map_or(String::new(), |v| k.var(*v).name.clone());
        let because = "they are in different nests".to_string();
        return Err(refuse_loop(k, NAME, *first, Reason::NotNested { inner, because }));
    };
    let chain = chain(k, top, order)?;
    let vars: Vec<VarId> = chain.iter().map(|l| l.var).collect();
    let mut carrying = vec![];
    for l in &chain {
        if let Carried::Order(buffer) = carried(k, l, &vars) {
            carrying.push((l.var, buffer));
        }
    }
    let mut wanted = order.iter();
    let target: Vec<VarId> =
        vars.iter().map(|v| if order.contains(v) { wanted.next().copied().unwrap_or(*v) } else { *v }).collect();
    if carrying.len() > 1 && target != vars {
        let (var, buffer) = carrying[0];
        let buffer = k.buffer(buffer).name.clone();
        return Err(refuse_loop(k, NAME, var, Reason::Dependence { buffer }));
    }
    let frames: Vec<For> =
        target.iter().filter_map(|v| find_loop(&k.body, *v)).map(|l| For { body: vec![], ..l.clone() }).collect();
    let mut out = k.clone();
    replace_loop(&mut out, top, |l| {
        let (mut body, conditions) = innermost(Stmt::For(l), &vars);
        if let Some(cond) = Expr::all(conditions) {
            body = vec![Stmt::if_(cond, body)];
        }
        frames.into_iter().rev().fold(body, |body, frame| vec![Stmt::For(For { body, ..frame })])
    });
    tidy(&mut out);
    Ok(out)
}

/// The loops from `top` down to the last listed one.
fn chain<'a>(k: &'a Kernel, top: VarId, order: &[VarId]) -> Result<Vec<&'a For>, ScheduleError> {
    let mut found: Vec<&For> = vec![];
    let mut block = match find_loop(&k.body, top) {
        Some(l) => {
            found.push(l);
            &l.body
        }
        None => return Ok(found),
    };
    loop {
        let missing = order.iter().find(|v| !found.iter().any(|l| l.var == **v));
        let Some(missing) = missing else { return Ok(found) };
        let refuse = |because: String| {
            let inner = k.var(*missing).name.clone();
            let outer = found.last().map_or(top, |l| l.var);
            Err(refuse_loop(k, "reorder", outer, Reason::NotNested { inner, because }))
        };
        match &block[..] {
            [Stmt::For(l)] => {
                found.push(l);
                block = &l.body;
            }
            [Stmt::If { cond, then, otherwise }] if otherwise.is_empty() => {
                let mut loads = false;
                loads |= cond.reads_memory();
                if loads {
                    return refuse("a conditional between them reads memory".to_string());
                }
                block = then;
            }
            body => return refuse(format!("the body between them has {} statements", body.len())),
        }
    }
}

/// The body inside the loops `vars`, and the conditions on the way.
fn innermost(s: Stmt, vars: &[VarId]) -> (Vec<Stmt>, Vec<Expr>) {
    let (mut block, mut conditions, mut passed) = (vec![s], vec![], 0);
    while passed < vars.len() {
        match block.pop() {
            Some(Stmt::For(l)) => {
                passed += 1;
                block = l.body;
            }
            Some(Stmt::If { cond, then, .. }) => {
                conditions.push(cond);
                block = then;
            }
            Some(other) => {
                block.push(other);
                break;
            }
            None => break,
        }
    }
    (block, conditions)
}

//! Mutated kernels: nothing panics, what parses round-trips, and what the verifier passes the interpreter runs.
//!
//! `KERNEL_GEN_FUZZ_SECONDS=600 cargo test --release -p kernel-gen --test kernels fuzz_ir::` runs each test for that long; without
//! the variable a fixed number of mutations runs, the same on every machine.

use kernel_gen::analysis::verify::{Limits, check, verify};
use kernel_gen::interp::{self, Cause, Mode, Program};
use kernel_gen::ir::parse::parse;
use kernel_gen::ir::{
    Access, Barrier, BinOp, Buffer, DType, Expr, For, Kernel, LoopKind, Pragma, ReduceOp, Scope, Stmt, Tile, UnOp,
};
use kernel_gen::lower::{LowerOptions, lower};
use kernel_gen::stable::Rng;
use kernel_gen::target::Target;
use kernel_gen::templates::Registry;
use kernel_gen::workload::sample;
use std::path::Path;
use std::time::{Duration, Instant};

/// The kernels of the filetests, good and bad.
fn seeds() -> Vec<String> {
    let mut texts = vec![];
    for folder in ["good", "faults"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../specs/filetests").join(folder);
        let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
        paths.sort();
        texts.extend(paths.iter().map(|p| std::fs::read_to_string(p).unwrap()));
    }
    texts
}

/// Small kernels that the templates make, as scheduled and as lowered.
fn template_seeds() -> Vec<String> {
    let mut texts = vec![];
    for seed in 0..40 {
        let mut rng = sample::Rng::new(seed);
        let workload = sample::workload(&mut rng);
        if workload.macs() > 20_000 {
            continue;
        }
        let target = Target::find(["x86-64", "x86-64-v3"][seed as usize % 2]).expect("a built-in target");
        for template in Registry::builtin().applicable(&workload, target) {
            let config = template.default_config(&workload, target).expect("it applies");
            let Ok(made) = template.schedule(&workload, target, &config) else { continue };
            let kernel = made.schedule.kernel;
            texts.push(kernel.to_string());
            if let Ok(verified) = verify(kernel, &target.limits()) {
                texts.push(lower(verified, &LowerOptions::cpu()).expect("it lowers").kernel().to_string());
            }
        }
    }
    texts.retain(|t| t.len() < 20_000);
    assert!(texts.len() > 4, "only {} seeds", texts.len());
    texts
}

/// Runs `f` until the time is up, or `times` times where no time is given.
fn repeat(times: u64, mut f: impl FnMut(u64)) -> u64 {
    let seconds = std::env::var("KERNEL_GEN_FUZZ_SECONDS").ok().and_then(|s| s.parse().ok());
    let end = seconds.map(|s| Instant::now() + Duration::from_secs(s));
    let mut i = 0;
    while end.map_or(i < times, |end| Instant::now() < end) {
        f(i);
        i += 1;
    }
    i
}

/// Words and numbers that mean something somewhere, and some that break parsers.
const WORDS: &[&str] = &[
    "for",
    "in",
    "if",
    "else",
    "let",
    "alloc",
    "barrier",
    "block",
    "warp",
    "mma",
    "transpose",
    "param",
    "kernel",
    "init",
    "over",
    "strides",
    "read",
    "write",
    "readwrite",
    "global",
    "shared",
    "local",
    "register",
    "serial",
    "unrolled",
    "vectorized",
    "parallel",
    "grid.x",
    "grid.y",
    "thread.x",
    "thread.y",
    "vthread",
    "f32",
    "f16",
    "i64",
    "bool",
    "select",
    "min",
    "max",
    "ramp",
    "broadcast",
    "exp",
    "abs",
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    "+",
    "-",
    "*",
    "/",
    "%",
    "<",
    "<=",
    "==",
    "!=",
    "&&",
    "||",
    "!",
    "=",
    "+=",
    ",",
    ":",
    "..",
    ";",
    "0",
    "1",
    "2",
    "3",
    "8",
    "31",
    "65536",
    "-1",
    "9223372036854775807",
    "18446744073709551616",
    "1.5f32",
    "inff32",
    "NaNf32",
    "1e400f32",
    "0i64",
    "é",
    "\u{0}",
    "\t",
];

/// The text cut into words, numbers, signs and blanks.
fn tokens(text: &str) -> Vec<&str> {
    let class = |c: char| match c {
        c if c.is_alphanumeric() || c == '_' => 0,
        c if c.is_whitespace() => 1,
        _ => 2,
    };
    let mut out = vec![];
    let mut start = 0;
    let mut last = None;
    for (i, c) in text.char_indices() {
        if last.is_some_and(|l| l != class(c) || l == 2) {
            out.push(&text[start..i]);
            start = i;
        }
        last = Some(class(c));
    }
    out.push(&text[start..]);
    out
}

/// One small change.
fn mutate(text: &str, rng: &mut Rng) -> String {
    let mut tokens: Vec<String> = tokens(text).into_iter().map(String::from).collect();
    let at = rng.below(tokens.len() as u64) as usize;
    let numbers: Vec<usize> = (0..tokens.len()).filter(|i| tokens[*i].parse::<i64>().is_ok()).collect();
    let words: Vec<usize> = (0..tokens.len()).filter(|i| tokens[*i].starts_with(|c: char| c.is_alphabetic())).collect();
    match rng.below(8) {
        0 | 1 if !numbers.is_empty() => {
            let i = *rng.pick(&numbers);
            let old: i64 = tokens[i].parse().unwrap_or(0);
            let new = *rng.pick(&[old.wrapping_add(1), old.wrapping_sub(1), 0, 1, old.wrapping_mul(2), old / 2, 7]);
            tokens[i] = new.to_string();
        }
        2 | 3 if words.len() > 1 => {
            let (i, j) = (*rng.pick(&words), *rng.pick(&words));
            tokens[i] = tokens[j].clone();
        }
        4 => tokens[at] = rng.pick(WORDS).to_string(),
        5 => {
            let mut lines: Vec<&str> = text.lines().collect();
            let i = rng.below(lines.len() as u64) as usize;
            match rng.below(3) {
                0 => {
                    lines.remove(i);
                }
                1 => lines.insert(rng.below(lines.len() as u64) as usize, lines[i]),
                _ => {
                    let j = rng.below(lines.len() as u64) as usize;
                    lines.swap(i, j);
                }
            }
            return lines.join("\n");
        }
        6 => tokens.insert(at, format!(" {} ", rng.pick(WORDS))),
        _ => {
            tokens.remove(at);
        }
    }
    tokens.concat()
}

#[test]
fn mutated_texts_never_panic_and_round_trip() {
    let seeds = seeds();
    let mut rng = Rng::new(1);
    let mut parsed = 0;
    let count = repeat(6_000, |_| {
        let mut text = rng.pick(&seeds).clone();
        for _ in 0..rng.between(1, 4) {
            text = mutate(&text, &mut rng);
        }
        if rng.one_in(8) {
            let end = text.char_indices().map(|(i, _)| i).nth(rng.below(text.len() as u64) as usize).unwrap_or(0);
            text.truncate(end);
        }
        match parse(&text) {
            Ok(kernel) => {
                parsed += 1;
                let printed = kernel.to_string();
                assert_eq!(parse(&printed).as_ref().map(ToString::to_string), Ok(printed.clone()), "{text}");
                for limits in [Limits::cpu(), Limits::cuda()] {
                    for fault in check(&kernel, &limits) {
                        assert!(!fault.to_string().is_empty());
                    }
                }
            }
            Err(e) => {
                assert!((1..=text.lines().count().max(1) as u32).contains(&e.line) && e.col > 0, "{e}\n{text}");
            }
        }
    });
    println!("{count} mutations, {parsed} of them parsed");
}

/// Iterations after which a run is given up.
const STEPS: u64 = 300_000;

#[test]
fn what_the_verifier_passes_the_interpreter_runs() {
    let mut seeds = seeds();
    // Each source is drawn from as often as the other.
    let templates = template_seeds();
    seeds.extend(templates.iter().cycle().take(seeds.len().max(templates.len())).cloned().collect::<Vec<_>>());
    let mut rng = Rng::new(2);
    let (mut passed, mut refused, mut in_vain) = (0, 0, 0);
    let count = repeat(3_000, |_| {
        let mut text = rng.pick(&seeds).clone();
        for _ in 0..rng.between(1, 3) {
            text = mutate(&text, &mut rng);
        }
        let Ok(kernel) = parse(&text) else { return };
        // Large ones would only take time.
        if kernel.buffers.iter().map(|b| b.shape.iter().product::<i64>()).sum::<i64>() > 1 << 16 {
            return;
        }
        let inputs = interp::seeded_inputs(&kernel, 1);
        let ran = Program::compile(&kernel, Mode::Declared).and_then(|p| p.run(&inputs, STEPS));
        match (verify(kernel, &Limits::cuda()), ran) {
            (Ok(_), Ok(_)) => passed += 1,
            (Ok(_), Err(e)) if matches!(e.cause, Cause::StepLimit | Cause::TooLarge { .. }) => {}
            // The verifier looks for the first write of a buffer only, not for every element.
            (Ok(_), Err(e)) if matches!(e.cause, Cause::Unwritten { .. }) => {}
            (Ok(k), Err(e)) => panic!("the verifier passes this, but: {e}\n{k}"),
            (Err(_), Err(_)) => refused += 1,
            (Err(_), Ok(_)) => in_vain += 1,
        }
    });
    println!("{count} mutations: {passed} pass both, {refused} fail both, {in_vain} only the verifier refuses");
}

/// Kernels of every form that the IR has, well typed or not.
struct Random<'r> {
    rng: &'r mut Rng,
    kernel: Kernel,
}

impl Random<'_> {
    fn dtype(&mut self) -> DType {
        *self.rng.pick(&DType::ALL)
    }

    fn buffer(&mut self, param: bool) -> Buffer {
        let rank = self.rng.between(1, 3) as usize;
        let shape: Vec<i64> = (0..rank).map(|_| self.rng.between(0, 9)).collect();
        let scope = *self.rng.pick(&[Scope::Global, Scope::Shared, Scope::Local, Scope::Register]);
        let mut b = Buffer::new("b", self.dtype(), &shape, scope);
        if self.rng.one_in(4) {
            b.strides = (0..rank).map(|_| self.rng.between(0, 99)).collect();
        }
        if param {
            b.access = *self.rng.pick(&[Access::Read, Access::Write, Access::ReadWrite]);
        }
        b
    }

    fn expr(&mut self, depth: u32) -> Expr {
        let choice = if depth == 0 { self.rng.below(3) } else { self.rng.below(11) };
        let sub = |s: &mut Self| Box::new(s.expr(depth.saturating_sub(1)));
        match choice {
            0 => Expr::Int(*self.rng.pick(&[0, 1, -1, 7, -12, i64::MAX, i64::MIN])),
            1 => {
                let v = *self.rng.pick(&[0.0, -0.0, 1.5, -2.5e-7, 1e300, f64::INFINITY, f64::NEG_INFINITY, 0.1]);
                Expr::Float(v, self.dtype())
            }
            2 if !self.kernel.vars.is_empty() => {
                Expr::Var(kernel_gen::ir::VarId(self.rng.below(self.kernel.vars.len() as u64) as u32))
            }
            3 | 4 => {
                use BinOp::*;
                let op = *self.rng.pick(&[Add, Sub, Mul, Div, Mod, Min, Max, Pow, Fmod, Lt, Le, Eq, Ne, And, Or]);
                Expr::Binary(op, sub(self), sub(self))
            }
            5 => Expr::Unary(*self.rng.pick(&UnOp::ALL), sub(self)),
            6 => Expr::Select(sub(self), sub(self), sub(self)),
            7 => Expr::Cast(self.dtype(), sub(self)),
            8 => Expr::Ramp { base: sub(self), stride: self.rng.between(-4, 4), lanes: self.rng.between(1, 70) as u16 },
            9 => Expr::Broadcast(sub(self), self.rng.between(1, 70) as u16),
            10 if !self.kernel.buffers.is_empty() => {
                let (b, rank) = self.any_buffer();
                Expr::Load(b, (0..rank).map(|_| *sub(self)).collect())
            }
            _ => Expr::Int(3),
        }
    }

    fn any_buffer(&mut self) -> (kernel_gen::ir::BufferId, usize) {
        let b = self.rng.below(self.kernel.buffers.len() as u64) as usize;
        (kernel_gen::ir::BufferId(b as u32), self.kernel.buffers[b].shape.len())
    }

    fn tile(&mut self) -> Tile {
        let (buffer, rank) = self.any_buffer();
        Tile {
            buffer,
            origin: (0..rank).map(|_| self.expr(2)).collect(),
            extents: (0..rank).map(|_| self.rng.between(1, 9)).collect(),
        }
    }

    fn block(&mut self, depth: u32) -> Vec<Stmt> {
        (0..self.rng.between(0, 4)).map(|_| self.stmt(depth)).collect()
    }

    fn stmt(&mut self, depth: u32) -> Stmt {
        match self.rng.below(if depth == 0 { 7 } else { 10 }) {
            0 | 1 => {
                let (buffer, rank) = self.any_buffer();
                Stmt::store(buffer, (0..rank).map(|_| self.expr(3)).collect(), self.expr(4))
            }
            2 => {
                let (buffer, rank) = self.any_buffer();
                let vars = self.kernel.vars.len() as u64;
                let over = (0..self.rng.below(3))
                    .filter(|_| vars > 0)
                    .map(|_| kernel_gen::ir::VarId(self.rng.below(vars) as u32))
                    .collect();
                Stmt::Reduce {
                    buffer,
                    indices: (0..rank).map(|_| self.expr(2)).collect(),
                    op: *self.rng.pick(&[ReduceOp::Add, ReduceOp::Mul, ReduceOp::Max, ReduceOp::Min]),
                    init: self.expr(2),
                    value: self.expr(4),
                    over,
                }
            }
            3 => {
                let value = self.expr(3);
                let dtype = self.dtype();
                Stmt::Let { var: self.kernel.fresh_typed_var("v", dtype), value }
            }
            4 => {
                let b = self.buffer(false);
                Stmt::Alloc(self.kernel.add_buffer(b))
            }
            5 => Stmt::Barrier(*self.rng.pick(&[Barrier::Block, Barrier::Warp])),
            6 => Stmt::Transpose { dst: self.tile(), src: self.tile() },
            7 | 8 => {
                let var = self.kernel.fresh_var("i");
                let pragma = match self.rng.below(4) {
                    0 => Some(Pragma::AutoUnrollMaxStep(self.rng.between(-1, 99))),
                    1 => Some(Pragma::UnrollExplicit(self.rng.one_in(2))),
                    2 => Some(Pragma::FetchAhead(self.rng.between(-1, 99))),
                    _ => None,
                };
                Stmt::For(For {
                    var,
                    extent: self.rng.between(0, 40),
                    kind: *self.rng.pick(&LoopKind::ALL),
                    pragmas: pragma.into_iter().collect(),
                    body: self.block(depth - 1),
                })
            }
            _ => Stmt::If { cond: self.expr(3), then: self.block(depth - 1), otherwise: self.block(depth - 1) },
        }
    }
}

/// A kernel that uses everything, in scope or not.
fn random_kernel(rng: &mut Rng) -> Kernel {
    let mut r = Random { kernel: Kernel::new("k_1"), rng };
    for _ in 0..r.rng.between(1, 3) {
        let b = r.buffer(true);
        let id = r.kernel.add_buffer(b);
        r.kernel.params.push(id);
    }
    r.kernel.body = r.block(3);
    r.kernel
}

#[test]
fn random_kernels_round_trip_and_are_judged_without_panic() {
    let mut rng = Rng::new(3);
    let count = repeat(4_000, |_| {
        let kernel = random_kernel(&mut rng);
        let text = kernel.to_string();
        let parsed = parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        assert_eq!(parsed.to_string(), text);
        assert_eq!(parse(&parsed.to_string()).as_ref(), Ok(&parsed), "ids count in the order of the text");
        check(&kernel, &Limits::cuda());
        let _ =
            Program::compile(&kernel, Mode::F64).and_then(|p| p.run(&interp::seeded_inputs(&kernel, 1), STEPS / 10));
    });
    println!("{count} random kernels");
}

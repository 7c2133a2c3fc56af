//! Attention with queries along the lanes: scores of a block of queries stay in the second-level cache.
//!
//! ```text
//! for task (head, block of queries):
//!   queries[t, i]     the block, turned around, zeros beyond the last query
//!   scores[j, i]      products of key j with all queries of the block, keys broadcast
//!   largest[i]        found on the way
//!   scores[j, i]      = exp(scores[j, i] - largest[i]), whose sum is total[i]
//!   y[i, c]           = (sum over j of scores[j, i] * v[j, c]) / total[i], weights broadcast
//! ```
//! Neither maxima nor sums cross lanes, and neither keys nor values are copied.

use super::tile::{ceil_div, cycles_to_us};
use crate::ir::builder::KernelBuilder;
use crate::ir::{BinOp, BufferId, DType, Expr, Kernel, LoopKind, Scope, UnOp, VarId};
use crate::schedule::Schedule;
use crate::space::{Config, Space};
use crate::target::{Cpu, Target};
use crate::templates::{Scheduled, Template, TemplateError};
use crate::workload::attention::OfHeads;
use crate::workload::naive::epilogue;
use crate::workload::operands::Operands;
use crate::workload::{Attention, Op, Workload};

/// See the module's text. Knobs: `queries` vectors of queries of a task, `keys` whose scores are computed at a time; `rows` of queries and
/// `columns` vectors of values that are summed up at a time.
pub struct AttentionRows;

/// Most bytes of a task's scores: what a core's second-level cache holds.
const MOST_BYTES: i64 = 1 << 20;

fn problem<'a>(w: &Workload, t: &'a Target) -> Result<(Attention, &'a Cpu), String> {
    let cpu = t.cpu().ok_or("for CPUs")?;
    let Op::Attention(of) = w.op else { return Err("for attention".into()) };
    match 4 * of.n.saturating_mul(cpu.f32_lanes()) <= MOST_BYTES {
        true => Ok((of, cpu)),
        false => Err(format!("for scores that stay in a core's cache, and there are {} keys", of.n)),
    }
}

/// A config with a type.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    queries: i64,
    keys: i64,
    rows: i64,
    columns: i64,
}

impl Sizes {
    fn of(config: &Config) -> Result<Sizes, crate::space::ConfigError> {
        let [queries, keys, rows, columns] = ["queries", "keys", "rows", "columns"].map(|knob| config.int(knob));
        Ok(Sizes { queries: queries?, keys: keys?, rows: rows?, columns: columns? })
    }

    /// Whether sums and operands fit the vector registers, and scores the cache.
    fn fits(&self, of: &Attention, cpu: &Cpu) -> bool {
        let Sizes { queries, keys, rows, columns } = *self;
        keys * queries + queries < cpu.vector_registers
            && rows * columns + columns < cpu.vector_registers
            && 4 * of.n * queries * cpu.f32_lanes() <= MOST_BYTES
            && keys <= of.n
    }

    /// Cycles of all tasks on one core.
    fn cycles(&self, of: &Attention, cpu: &Cpu) -> f64 {
        let Sizes { queries, keys, rows, columns } = *self;
        let lanes = cpu.f32_lanes();
        let block = (queries * lanes) as f64;
        let tasks = (of.b * of.heads) as f64 * (of.m as f64 / block).ceil();
        // A step has a multiply-add for each sum, and loads for its operands; two of each a cycle.
        let step = |sums: i64, loads: i64, latency: i64| (sums.max(loads) as f64 / 2.0).max(latency as f64 / 2.0);
        let scores = of.n as f64 / keys as f64 * of.d as f64 * step(keys * queries, keys + queries, 8);
        let vectors = (of.dv as f64 / (lanes * columns) as f64).ceil();
        let mixed = block / rows as f64 * vectors * of.n as f64 * step(rows * columns, rows + columns, 8);
        let weights = of.n as f64 * queries as f64 * 14.0;
        tasks * if of.causal { 0.6 } else { 1.0 } * (scores + mixed + weights + block * of.d as f64 * 2.0)
    }
}

impl Template for AttentionRows {
    fn name(&self) -> &str {
        "attention_rows"
    }

    fn version(&self) -> u32 {
        1
    }

    fn applies(&self, w: &Workload, t: &Target) -> Result<(), String> {
        problem(w, t).map(drop)
    }

    fn space(&self, w: &Workload, t: &Target) -> Result<Space, TemplateError> {
        let (of, cpu) = problem(w, t).map_err(TemplateError::Limit)?;
        let cpu = cpu.clone();
        Ok(Space::builder()
            .knob("queries", [1, 2, 4])
            .knob("keys", [1, 2, 3, 4, 6, 8, 12])
            .knob("rows", [1, 2, 4])
            .knob("columns", [1, 2, 4, 6])
            .filter("sums and operands fit the registers, and scores the second-level cache", move |config| {
                Sizes::of(config).is_ok_and(|sizes| sizes.fits(&of, &cpu))
            })
            .build()?)
    }

    fn default_config(&self, w: &Workload, t: &Target) -> Result<Config, TemplateError> {
        let space = self.space(w, t)?;
        let all = (0..space.range_len()).filter_map(|index| space.get(index));
        let least = all.map(|config| (self.cost(w, t, &config), config)).min_by(|a, b| a.0.total_cmp(&b.0));
        least.map(|(_, config)| config).ok_or_else(|| TemplateError::Limit("no block fits".into()))
    }

    fn cost(&self, w: &Workload, t: &Target, config: &Config) -> f64 {
        match (problem(w, t), Sizes::of(config)) {
            (Ok((of, cpu)), Ok(sizes)) => cycles_to_us(sizes.cycles(&of, cpu), cpu),
            _ => f64::INFINITY,
        }
    }

    fn schedule(&self, w: &Workload, t: &Target, config: &Config) -> Result<Scheduled, TemplateError> {
        let (of, cpu) = problem(w, t).map_err(TemplateError::Limit)?;
        self.space(w, t)?.index_of(config)?;
        let kernel = build(w, of, Sizes::of(config)?, cpu.f32_lanes());
        Ok(Scheduled { schedule: Schedule::new(kernel), packs: vec![] })
    }
}

fn build(w: &Workload, of: Attention, sizes: Sizes, lanes: i64) -> Kernel {
    let mut b = KernelBuilder::new(w.kernel_name());
    let params = Operands::declare(&mut b, w);
    let block = sizes.queries * lanes;
    let tiles = ceil_div(of.m, block);
    b.loop_("task", of.b * of.heads * tiles, LoopKind::Parallel, |b, task| {
        let head = b.let_("head_of_batch", Expr::from(task).floor_div(tiles));
        let image = b.let_("image", Expr::from(head).floor_div(of.heads));
        let head = b.let_("query_head", Expr::from(head).floor_mod(of.heads));
        let own = b.let_("key_head", Expr::from(head).floor_div(of.sharing()));
        let first = b.let_("first_query", Expr::from(task).floor_mod(tiles) * block);
        let mut local = |name: &str, shape: &[i64]| b.alloc(name, DType::F32, shape, Scope::Local);
        let queries = local("queries", &[of.d, block]);
        let scores = local("scores", &[of.n, block]);
        let [largest, total] = ["largest", "total"].map(|name| local(name, &[block]));
        Task { w, of, sizes, lanes, block, params: &params, image, head, own, first, queries, scores, largest, total }
            .run(b);
    });
    b.finish()
}

/// A block of queries, and what is known of it.
struct Task<'a> {
    w: &'a Workload,
    of: Attention,
    sizes: Sizes,
    lanes: i64,
    /// Queries of the block.
    block: i64,
    params: &'a Operands,
    image: VarId,
    head: VarId,
    /// The head of keys and values.
    own: VarId,
    /// The block's first query.
    first: VarId,
    queries: BufferId,
    scores: BufferId,
    largest: BufferId,
    total: BufferId,
}

impl Task<'_> {
    fn run(&self, b: &mut KernelBuilder) {
        self.turn_queries(b);
        self.each_vector(b, self.block, |b, i| {
            b.store(self.largest, vec![i.clone()], Expr::f32(f64::NEG_INFINITY));
            b.store(self.total, vec![i], Expr::f32(0.0));
        });
        self.each_keys(b, |b, first, keys| self.score(b, first, keys));
        self.each_vector(b, self.block, |b, i| {
            // Nothing is subtracted where a query sees no key, whose scores weigh nothing.
            let largest = Expr::load(self.largest, vec![i.clone()]);
            let none = largest.clone().eq(Expr::f32(f64::NEG_INFINITY));
            b.store(self.largest, vec![i], none.select(Expr::f32(0.0), largest));
        });
        self.each_keys(b, |b, first, keys| {
            b.for_("key", keys, |b, key| {
                let key = b.let_("j", first + key);
                self.each_vector(b, self.block, |b, i| {
                    let at = vec![key.into(), i.clone()];
                    let apart = Expr::load(self.scores, at.clone()) - Expr::load(self.largest, vec![i.clone()]);
                    b.store(self.scores, at.clone(), Expr::un(UnOp::Exp, apart));
                    let weight = Expr::load(self.scores, at);
                    b.store(self.total, vec![i.clone()], Expr::load(self.total, vec![i]) + weight);
                });
            });
        });
        let width = self.sizes.columns * self.lanes;
        b.for_("row_block", self.block / self.sizes.rows, |b, rows| {
            let row = b.let_("first_row", rows * self.sizes.rows);
            if self.of.dv >= width {
                b.for_("column_block", self.of.dv / width, |b, at| self.mix(b, row, at * width, width));
            }
            if self.of.dv % width > 0 {
                self.mix(b, row, Expr::Int(self.of.dv / width * width), self.of.dv % width);
            }
        });
    }

    /// An element of queries, keys or values.
    fn load(&self, of_heads: OfHeads, head: VarId, row: Expr, column: Expr) -> Expr {
        let index = self.of.index(of_heads, [self.image.into(), head.into(), row, column]);
        Expr::load(self.params.get(self.of.operand(of_heads)), index)
    }

    /// Visits `count` neighbours in vectors, and one by one what is left.
    fn each_vector(&self, b: &mut KernelBuilder, count: i64, body: impl Fn(&mut KernelBuilder, Expr)) {
        let whole = count / self.lanes;
        if whole > 0 {
            b.loop_("vector", whole, LoopKind::Unrolled, |b, vector| {
                b.loop_("lane", self.lanes, LoopKind::Vectorized, |b, lane| body(b, vector * self.lanes + lane));
            });
        }
        if count % self.lanes > 0 {
            b.loop_("rest", count % self.lanes, LoopKind::Unrolled, |b, rest| body(b, rest + whole * self.lanes));
        }
    }

    /// Visits the keys that some query of the block sees, `keys` at a time and what is left: `body` gets the first of them and their number.
    fn each_keys(&self, b: &mut KernelBuilder, body: impl Fn(&mut KernelBuilder, Expr, i64)) {
        let keys = self.sizes.keys;
        let last = self.first + (self.block - 1);
        let seen = |b: &mut KernelBuilder, first: Expr, count: i64| match self.of.causal {
            true => b.if_(first.clone().le(last.clone()), |b| body(b, first, count)),
            false => body(b, first, count),
        };
        b.for_("key_block", self.of.n / keys, |b, block| seen(b, block * keys, keys));
        if self.of.n % keys > 0 {
            seen(b, Expr::Int(self.of.n / keys * keys), self.of.n % keys);
        }
    }

    /// The block's queries with their elements along the rows.
    fn turn_queries(&self, b: &mut KernelBuilder) {
        b.for_("query", self.block, |b, i| {
            let query = b.let_("row", self.first + i);
            b.for_("t", self.of.d, |b, t| {
                let nearest = Expr::from(query).min(self.of.m - 1);
                let element = self.load(OfHeads::Queries, self.head, nearest, t.into());
                let value = match self.of.m % self.block {
                    0 => element,
                    _ => Expr::from(query).lt(self.of.m).select(element, Expr::f32(0.0)),
                };
                b.store(self.queries, vec![t.into(), i.into()], value);
            });
        });
    }

    /// The scores of `keys` keys.
    fn score(&self, b: &mut KernelBuilder, first: Expr, keys: i64) {
        let sums = b.alloc("sums", DType::F32, &[keys, self.block], Scope::Register);
        let unrolled = |b: &mut KernelBuilder, body: &dyn Fn(&mut KernelBuilder, VarId)| {
            b.loop_("key", keys, LoopKind::Unrolled, |b, key| body(b, key));
        };
        unrolled(b, &|b, key| {
            self.each_vector(b, self.block, |b, i| b.store(sums, vec![key.into(), i], Expr::f32(0.0)))
        });
        b.for_("t", self.of.d, |b, t| {
            unrolled(b, &|b, key| {
                let factor = self.load(OfHeads::Keys, self.own, first.clone() + key, t.into());
                self.each_vector(b, self.block, |b, i| {
                    let at = vec![key.into(), i.clone()];
                    let product = Expr::load(self.queries, vec![t.into(), i]) * factor.clone();
                    b.store(sums, at.clone(), Expr::load(sums, at) + product);
                });
            });
        });
        unrolled(b, &|b, key| {
            let j = b.let_("j", first.clone() + key);
            self.each_vector(b, self.block, |b, i| {
                let score = Expr::load(sums, vec![key.into(), i.clone()]) * Expr::f32(self.of.scale());
                let query = self.first + i.clone();
                let nearest = query.clone().min(self.of.m - 1);
                let at = [self.image.into(), self.head.into(), nearest, j.into()];
                let score = match self.of.mask_index(at) {
                    None => score,
                    Some(index) => score + Expr::load(self.params.get("mask"), index),
                };
                let score = match self.of.causal {
                    true => Expr::from(j).le(query).select(score, Expr::f32(f64::NEG_INFINITY)),
                    false => score,
                };
                b.store(self.scores, vec![j.into(), i.clone()], score);
                let (before, now) =
                    (Expr::load(self.largest, vec![i.clone()]), Expr::load(self.scores, vec![j.into(), i.clone()]));
                b.store(self.largest, vec![i], before.max(now));
            });
        });
    }

    /// Outputs of some rows: `width` neighbouring columns from `column` on.
    fn mix(&self, b: &mut KernelBuilder, row: VarId, column: Expr, width: i64) {
        let rows = self.sizes.rows;
        let sums = b.alloc("mixed", DType::F32, &[rows, width], Scope::Register);
        let unrolled = |b: &mut KernelBuilder, body: &dyn Fn(&mut KernelBuilder, VarId)| {
            b.loop_("row", rows, LoopKind::Unrolled, |b, of| body(b, of));
        };
        unrolled(b, &|b, of| self.each_vector(b, width, |b, c| b.store(sums, vec![of.into(), c], Expr::f32(0.0))));
        self.each_keys(b, |b, first, keys| {
            b.for_("key", keys, |b, key| {
                let key = b.let_("j", first + key);
                unrolled(b, &|b, of| {
                    let weight = Expr::load(self.scores, vec![key.into(), row + of]);
                    self.each_vector(b, width, |b, c| {
                        let value = self.load(OfHeads::Values, self.own, key.into(), column.clone() + c.clone());
                        let product = weight.clone() * value;
                        let at = vec![of.into(), c];
                        b.store(sums, at.clone(), Expr::load(sums, at) + product);
                    });
                });
            });
        });
        unrolled(b, &|b, of| {
            let query = b.let_("query", self.first + row + of);
            let total = Expr::load(self.total, vec![row + of]);
            let store = |b: &mut KernelBuilder| {
                self.each_vector(b, width, |b, c| {
                    let value = Expr::load(sums, vec![of.into(), c.clone()]);
                    let none = total.clone().eq(Expr::f32(0.0));
                    let mean = none.select(Expr::f32(0.0), Expr::bin(BinOp::Div, value, total.clone()));
                    let channel = column.clone() + c;
                    let at = [self.image.into(), self.head.into(), query.into(), channel.clone()];
                    let index = self.of.index(OfHeads::Outputs, at);
                    let result = epilogue(self.w, mean, &channel, &index, self.params);
                    b.store(self.params.output(), index, result);
                });
            };
            match self.of.m % self.block {
                0 => store(b),
                _ => b.if_(Expr::from(query).lt(self.of.m), store),
            }
        });
    }
}

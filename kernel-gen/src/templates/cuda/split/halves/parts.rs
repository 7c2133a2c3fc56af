//! The launches before and behind the product: one splits the pixels, one computes rows again that read pixels out of range.

use super::pack;
use super::plan::{Context, DEPTH, LEAST, MOST, PARTS, Plan, REST, SCALE, SPLIT_PIXELS, VECTOR, VECTORS};
use crate::ir::builder::KernelBuilder;
use crate::ir::{BufferId, DType, Expr, LoopKind, Scope, UnOp, VarId};
use crate::templates::cuda::guards::{below, inside, or_zero};
use crate::templates::cuda::launch::{launch, unrolled};
use crate::templates::cuda::model::ceil_div;
use crate::templates::cuda::outputs::finish;
use crate::templates::cuda::source::Pixel;

/// Threads of a block that splits.
const THREADS: i64 = 256;

fn first(buffer: BufferId) -> Expr {
    Expr::load(buffer, vec![0.into()])
}

/// The first launch: the pixels' parts, their flags, and what the columns' sums are multiplied by.
pub(super) fn parts(b: &mut KernelBuilder, context: &Context<'_>) {
    let plan = context.plan;
    let loops = [("chunk", plan.cut().chunks()), ("block", plan.splitting_blocks())];
    launch(b, loops, [("t", THREADS)], |b, [chunk, block], [t]| {
        // One element more a row: threads then store columns and load rows without bank conflicts.
        let turned = b.alloc("turned", DType::F32, &[DEPTH, SPLIT_PIXELS + 1], Scope::Shared);
        let largest = b.alloc("largest", DType::F32, &[SPLIT_PIXELS, VECTORS], Scope::Shared);
        fetch(b, context, turned, [block, chunk, t]);
        split(b, context, [turned, largest], [block, chunk, t]);
        b.if_(Expr::from(t).lt(SPLIT_PIXELS), |b| flag(b, context, largest, [block, chunk, t]));
        b.if_(Expr::from(block).eq(0).and(Expr::from(chunk).eq(0)), |b| unscale(b, context, t));
    });
}

/// The coordinates of the left operand's pixel of a number.
fn coordinates(b: &mut KernelBuilder, plan: &Plan, number: VarId) -> [Expr; 3] {
    let [outer, middle, inner] = plan.source.inputs();
    let rest = b.let_("rest", Expr::from(number).floor_div(inner));
    [
        Expr::from(rest).floor_div(middle).floor_mod(outer),
        Expr::from(rest).floor_mod(middle),
        Expr::from(number).floor_mod(inner),
    ]
}

/// Brings the elements of a block's pixels to shared memory, scaled. Neighbouring threads read neighbouring pixels. Pixels
/// and channels beyond the last one are zeros.
fn fetch(b: &mut KernelBuilder, context: &Context<'_>, turned: BufferId, [block, chunk, t]: [VarId; 3]) {
    let (plan, source) = (context.plan, &context.plan.source);
    let [pixels, _] = context.operands();
    let within = Expr::from(t).floor_mod(SPLIT_PIXELS);
    let number = b.let_("number", block * SPLIT_PIXELS + within.clone());
    let at = coordinates(b, plan, number);
    let at_once = THREADS / SPLIT_PIXELS;
    unrolled(b, "turn", DEPTH / at_once, |b, turn| {
        let deep = turn * at_once + Expr::from(t).floor_div(SPLIT_PIXELS);
        let term = chunk * DEPTH + deep.clone();
        let exists = inside(&[number.into(), term.clone()], [plan.pixels(), source.depth()], [SPLIT_PIXELS, DEPTH]);
        let value = Expr::load(pixels, source.input(&at, term)) * Expr::f32(SCALE);
        b.store(turned, [deep, within.clone()], or_zero(exists, value));
    });
}

/// Splits the elements and stores them, 16 bytes of neighbouring channels at a time. Of each vector the largest magnitude is kept.
fn split(b: &mut KernelBuilder, context: &Context<'_>, [turned, most]: [BufferId; 2], [block, chunk, t]: [VarId; 3]) {
    let plan = context.plan;
    let largest = b.alloc("largest_of_vector", DType::F32, &[1], Scope::Register);
    let halves = b.alloc("halves", DType::F16, &[PARTS, VECTOR], Scope::Register);
    let vector = Expr::from(t).floor_mod(VECTORS) * VECTOR;
    let at_once = THREADS / VECTORS;
    unrolled(b, "turn", SPLIT_PIXELS / at_once, |b, turn| {
        let within = turn * at_once + Expr::from(t).floor_div(VECTORS);
        b.store(largest, [0.into()], Expr::f32(0.0));
        unrolled(b, "element", VECTOR, |b, element| {
            let value = || Expr::load(turned, vec![vector.clone() + element, within.clone()]);
            let half = |part: i64| vec![part.into(), element.into()];
            b.store(largest, [0.into()], first(largest).max(Expr::un(UnOp::Abs, value())));
            b.store(halves, half(0), value());
            b.store(halves, half(1), (value() - Expr::load(halves, half(0))) * Expr::f32(REST));
        });
        let number = b.let_("number", block * SPLIT_PIXELS + within.clone());
        let at = coordinates(b, plan, number);
        b.when(below(number, plan.pixels(), SPLIT_PIXELS), |b| {
            for part in 0..PARTS {
                b.loop_("element", VECTOR, LoopKind::Vectorized, |b, element| {
                    let to = [at.to_vec(), vec![part.into(), chunk * DEPTH + vector.clone() + element]].concat();
                    b.store(context.space.parts, to, Expr::load(halves, vec![part.into(), element.into()]));
                });
            }
        });
        b.store(most, [within, Expr::from(t).floor_mod(VECTORS)], first(largest));
    });
}

/// Stores whether a pixel is out of range.
fn flag(b: &mut KernelBuilder, context: &Context<'_>, most: BufferId, [block, chunk, t]: [VarId; 3]) {
    let largest = b.alloc("largest_of_pixel", DType::F32, &[1], Scope::Register);
    b.store(largest, [0.into()], Expr::f32(0.0));
    unrolled(b, "vector", VECTORS, |b, vector| {
        b.store(largest, [0.into()], first(largest).max(Expr::load(most, vec![t.into(), vector.into()])));
    });
    let fits = Expr::f32(LEAST).le(first(largest)).and(first(largest).lt(Expr::f32(MOST)));
    let fits = fits.or(first(largest).eq(Expr::f32(0.0)));
    b.store(context.space.flags, [chunk.into(), block * SPLIT_PIXELS + t], fits.select(Expr::f32(0.0), Expr::f32(1.0)));
}

/// Multiplies the factors that the packed weights have of each column.
fn unscale(b: &mut KernelBuilder, context: &Context<'_>, t: VarId) {
    let (plan, bn) = (context.plan, context.plan.sizes.bn);
    let [_, weights] = context.operands();
    let columns = plan.cut().column_tiles() * bn;
    let product = b.alloc("product", DType::F32, &[1], Scope::Register);
    b.for_("turn", ceil_div(columns, THREADS), |b, turn| {
        let column = b.let_("column", turn * THREADS + t);
        let one = |b: &mut KernelBuilder| {
            b.store(product, [0.into()], Expr::f32(1.0));
            unrolled(b, "factor", pack::FACTORS, |b, factor| {
                let from = vec![
                    Expr::from(column).floor_div(bn),
                    plan.cut().steps().into(),
                    0.into(),
                    Expr::from(column).floor_mod(bn),
                    factor.into(),
                ];
                b.store(product, [0.into()], first(product) * Expr::load(weights, from));
            });
            b.store(context.space.unscale, [column.into()], first(product));
        };
        b.when(below(column, columns, THREADS), one);
    });
}

/// Rows of a block of the third launch, and how many threads share a row.
const ROWS: i64 = 64;
const SHARES: i64 = 4;

/// The third launch: rows that read a pixel out of range, in `f32`. The weights are those of the product, in which nothing
/// is missing that `f32` sums would keep.
pub(super) fn again(b: &mut KernelBuilder, context: &Context<'_>) {
    let (plan, source) = (context.plan, &context.plan.source);
    let blocks = [("again_block", ceil_div(source.rows(), ROWS))];
    launch(b, blocks, [("share", SHARES), ("again_row", ROWS)], |b, [block], [share, within]| {
        let row = block * ROWS + within;
        let pixel = source.pixel(b, row, 1);
        let exists = source.exists(&pixel, 1, ROWS);
        // The flags of a row's pixels, shared out by the channels they are for.
        let seen = b.alloc("seen", DType::F32, &[1], Scope::Register);
        b.store(seen, [0.into()], Expr::f32(0.0));
        let [kh, kw] = source.taps();
        let chunks = plan.cut().chunks();
        b.nest(&[("kh", kh), ("kw", kw), ("turn", ceil_div(chunks, SHARES))], |b, at| {
            let (taps, chunk) = ([at[0], at[1]], at[2] * SHARES + share);
            let (place, mut inside) = source.place(&pixel, taps);
            inside.extend(exists.clone());
            inside.extend(below(chunk.clone(), chunks, SHARES));
            let number = plan.number(&place);
            inside.push(KernelBuilder::between(&number, 0, plan.pixels()));
            let flag = Expr::load(context.space.flags, vec![chunk, number]);
            let flag = or_zero(Expr::all(inside), flag);
            b.store(seen, [0.into()], first(seen).max(flag));
        });
        let all = b.alloc("all", DType::F32, &[SHARES, ROWS], Scope::Shared);
        b.store(all, [share.into(), within.into()], first(seen));
        unrolled(b, "other", SHARES, |b, other| {
            let theirs = Expr::load(all, vec![other.into(), within.into()]);
            b.store(seen, [0.into()], first(seen).max(theirs));
        });
        let mut out = Expr::f32(0.5).lt(first(seen));
        if let Some(exists) = exists {
            out = exists.and(out);
        }
        b.if_(out, |b| {
            b.for_("column_turn", ceil_div(source.columns(), SHARES), |b, turn| {
                let column = b.let_("column", turn * SHARES + share);
                let one = |b: &mut KernelBuilder| multiply_add(b, context, &pixel, column);
                b.when(below(column, source.columns(), SHARES), one);
            });
        });
    });
}

/// One output by multiply-adds.
fn multiply_add(b: &mut KernelBuilder, context: &Context<'_>, pixel: &Pixel, column: VarId) {
    let (plan, source, bn) = (context.plan, &context.plan.source, context.plan.sizes.bn);
    let [pixels, weights] = context.operands();
    let [kh, kw] = source.taps();
    let sum = b.alloc("sum", DType::F32, &[1], Scope::Register);
    b.store(sum, [0.into()], Expr::f32(0.0));
    b.nest(&[("kh", kh), ("kw", kw), ("term", source.depth())], |b, at| {
        let (taps, term) = ([at[0], at[1]], at[2]);
        let (from, inside) = source.element(pixel, taps, term.into());
        let step = (taps[0] * kw + taps[1]) * plan.cut().chunks() + Expr::from(term).floor_div(DEPTH);
        let weight = |part: i64| {
            let column = Expr::from(column);
            let (tile, within) = (column.clone().floor_div(bn), column.floor_mod(bn));
            Expr::load(weights, vec![tile, step.clone(), part.into(), within, Expr::from(term).floor_mod(DEPTH)])
        };
        let unscale = Expr::load(context.space.unscale, vec![column.into()]);
        let weight = (weight(0) + weight(1) * Expr::f32(1.0 / REST)) * unscale;
        let add = |b: &mut KernelBuilder| {
            b.store(sum, [0.into()], first(sum) + Expr::load(pixels, from) * weight);
        };
        b.when(Expr::all(inside), add);
    });
    let index = source.output(pixel, column.into());
    finish(b, (context.w, &context.params), &column.into(), index, first(sum));
}

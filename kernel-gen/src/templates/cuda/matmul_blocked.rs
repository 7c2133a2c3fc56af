//! Products of matrices in blocks, with both operands in shared memory and a tile of sums in each thread's registers.
//!
//! It is the scheme of `block` applied to a product or a batch of them, in any transposition and with
//! 16-bit storage. An operand whose rows run along the reduction (`a` as it stands, `b` transposed) is turned around on
//! its way into shared memory, so that what a thread needs lies side by side; rows are spaced out by 16 bytes there, so
//! that turned columns fall into different banks.

use super::block::{self, BLOCKS, Product, STEPS, THREADS, Tile, Tiled, VECTORS, VTHREADS};
use super::family::{Case, Family, Search, knobs, up_to};
use super::requires::device;
use super::schedules::BLOCK;
use crate::ir::{Axis, Scope};
use crate::schedule::transform_layout::LayoutDim;
use crate::schedule::{Schedule, Tail};
use crate::space::Value;
use crate::target::Target;
use crate::templates::{Scheduled, TemplateError};
use crate::workload::{Matmul, Workload, naive};

/// See the module's text. Knobs: `block_m`, `block_n`, `threads_m`, `threads_n`, `vthread`, `step`, `vector`.
pub struct MatmulBlocked;

knobs! {
    /// A config with a type: a `Tile`.
    struct Sizes {
        tile: Tile = "block_m" in BLOCKS, "block_n" in BLOCKS, "threads_m" in THREADS, "threads_n" in THREADS,
            "vthread" in VTHREADS, "step" in STEPS, "vector" in VECTORS;
    }
}

fn product(w: &Workload, m: &Matmul) -> Product {
    Product {
        count: m.batch,
        size: [m.m, m.n, m.k],
        element_bytes: w.dtype.bytes() as i64,
        along: [m.trans_a, !m.trans_b],
        bytes: w.bytes() as f64,
    }
}

impl Family for MatmulBlocked {
    const NAME: &'static str = "matmul_blocked";
    const LIMITS: &'static str = "tiles divide; threads, registers, shared memory and grid within the device's limits";
    type Problem = Matmul;
    type Knobs = Sizes;
    type Plan<'a> = Tiled;

    fn problem(w: &Workload, t: &Target) -> Result<Matmul, String> {
        let gpu = device(t)?;
        let m = w.matmul().copied().ok_or("for products")?;
        if m.batch > gpu.grid_dim[2] {
            return Err(format!("for batches of at most {}", gpu.grid_dim[2]));
        }
        Ok(m)
    }

    fn narrow(case: &Case<'_, Matmul>, knob: &str, values: &mut Vec<Value>) {
        if knob == "vector" {
            up_to(values, product(case.w, &case.problem).widest());
        }
    }

    fn plan(case: &Case<'_, Matmul>, Sizes { tile }: Sizes) -> Result<Tiled, TemplateError> {
        Ok(Tiled { product: product(case.w, &case.problem), tile })
    }

    fn search(case: &Case<'_, Matmul>) -> Search<Sizes> {
        let best = Tile::best(&product(case.w, &case.problem), case.gpu);
        Search::Among(best.map(|tile| Sizes { tile }).into_iter().collect())
    }

    #[allow(non_snake_case, reason = "the tutorial's names")]
    fn kernel(case: &Case<'_, Matmul>, Tiled { tile, .. }: &Tiled) -> Result<Scheduled, TemplateError> {
        let (w, m) = (case.w, &case.problem);
        let mut s = Schedule::new(naive(w));
        let [A, B, CL, C] = [s.stage("a")?, s.stage("b")?, s.stage("acc")?, s.stage("c")?];

        // Designate the memory hierarchy.
        let AA = s.cache_read(A, Scope::Shared, &[CL])?;
        let BB = s.cache_read(B, Scope::Shared, &[CL])?;
        let AL = s.cache_read(AA, Scope::Register, &[CL])?;
        let BL = s.cache_read(BB, Scope::Register, &[CL])?;
        s.set_scope(CL, Scope::Register)?;

        // Blocks and threads.
        let loops = s.loops_of(C);
        let (batch, axes) = loops.split_at(loops.len() - 2);
        let cut = block::cut(&mut s, batch, [axes[0], axes[1]], tile)?;
        for z in batch {
            s.bind(*z, BLOCK(Axis::Z))?;
        }
        s.bind(cut.blocks[0], BLOCK(Axis::Y))?;
        s.bind(cut.blocks[1], BLOCK(Axis::X))?;

        // A thread's sums: an outer product at each step.
        s.compute_at(CL, cut.threads[1])?;
        let loops = s.loops_of(CL);
        let [i, j, k] = [loops[loops.len() - 3], loops[loops.len() - 2], loops[loops.len() - 1]];
        let [ko, ki] = s.split(k, tile.step.min(m.k), Tail::Guard)?;
        s.reorder(&[ko, ki, i, j])?;
        s.compute_at(AA, ko)?;
        s.compute_at(BB, ko)?;
        s.compute_at(AL, ki)?;
        s.compute_at(BL, ki)?;

        // Operands whose rows run along the reduction turn around.
        let bytes = w.dtype.bytes() as i64;
        let dims = usize::from(m.batch > 1);
        for (shared, stored, turned, length) in [(AA, A, !m.trans_a, m.k), (BB, B, m.trans_b, m.k)] {
            if turned {
                let mut layout: Vec<LayoutDim> = (0..dims).map(LayoutDim::whole).collect();
                layout.extend([LayoutDim::whole(dims + 1), LayoutDim::whole(dims)]);
                s.transform_layout(shared, &layout)?;
            }
            // Rows start at vectors; turned ones an odd number of vectors apart.
            let (factor, offset) = if turned { (32 / bytes, 16 / bytes) } else { (16 / bytes, 0) };
            s.storage_align(shared, dims, factor, offset)?;
            let row = *s.kernel.buffer(stored).shape.last().expect("a matrix has columns");
            debug_assert!(!turned || row == length, "a turned operand's rows run along the reduction");
            let vector = if turned { 1 } else { block::vector_of(tile.vector, &[row]) };
            block::fetch(&mut s, shared, tile, vector)?;
        }
        // A thread's operands, in vectors along the output; its sums; what it writes back.
        for (local, axis) in [(AL, usize::from(m.trans_a)), (BL, usize::from(!m.trans_b))] {
            let loops = s.loops_of(local);
            block::copy(&mut s, &loops, loops[dims + axis], 16 / bytes)?;
        }
        s.unroll(i)?;
        s.unroll(j)?;
        block::advise(&mut s, ko)?;
        let whole = m.n % tile.block[1] == 0;
        let vector = if whole { 16 / w.out_dtype.bytes() as i64 } else { 1 };
        block::copy(&mut s, &cut.patch, cut.patch[1], vector)?;
        Ok(Scheduled { schedule: s, packs: vec![] })
    }
}

//! The convolution of the tutorial "How to optimize convolution on GPU" (Haichen Shen, Apache TVM): HWCN, output channels
//! times batch as a product of tiles at every pixel.
//!
//! A block computes 64 output channels of 64 images at one pixel with 8 x 8 threads. For each tap of the kernel and every
//! 8 input channels it fetches both operands into shared memory; each thread has 4 patches of 4 x 4 sums, in virtual
//! threads two by two. The tutorial's constants are the config [`tutorial`]; here they are knobs.
//!
//! Where this differs from the tutorial:
//!
//! * What a thread keeps in registers is said to be registers, and its loads from shared memory are vectors, as are its
//!   stores where the epilogue is computed.
//! * `fetch=axes` is the tutorial's way to share out a fetch: threads along y take channels, threads along x a contiguous
//!   part of the row. `fetch=rounds` gives neighbouring threads neighbouring vectors.
//! * Any size: what is left over in the last block is guarded.

use super::block::{self, BLOCKS, Product, STEPS, THREADS, Tile, Tiled, VECTORS, VTHREADS};
use super::family::{self, Case, Family, Knobs, Needs, Search, knobs, up_to, words};
use super::requires::{convolution, device, without_groups};
use super::schedules::{BLOCK, THREAD, extent, inline_padding};
use crate::ir::{Axis, Scope};
use crate::schedule::{Schedule, ScheduleError, Tail};
use crate::space::{Config, Value};
use crate::target::{Cuda, Target};
use crate::templates::{Scheduled, TemplateError};
use crate::workload::{Conv2d, ConvLayout, Workload, naive};

/// See the module's text. Knobs: `block_o`, `block_n`, `threads_o`, `threads_n`, `vthread`, `step`, `vector`, `fetch`.
pub struct Conv2dHwcn;

words! {
    /// How the threads of a block share out what they fetch.
    enum Fetch {
        /// Along the axes, as in the tutorial.
        Axes = "axes",
        /// In rounds: neighbouring threads get neighbouring vectors.
        Rounds = "rounds",
    }
}

knobs! {
    /// A config with a type: a `Tile`, and how it is fetched.
    struct Sizes {
        tile: Tile = "block_o" in BLOCKS, "block_n" in BLOCKS, "threads_o" in THREADS, "threads_n" in THREADS,
            "vthread" in VTHREADS, "step" in STEPS, "vector" in VECTORS;
        fetch: Fetch = "fetch" in Fetch::ALL;
    }
}

/// The tutorial's constants.
const TUTORIAL: Tile = Tile { block: [64, 64], threads: [8, 8], vthread: 2, step: 8, vector: 4 };

/// The config that is the tutorial's schedule.
pub fn tutorial() -> Config {
    Sizes { tile: TUTORIAL, fetch: Fetch::Axes }.config()
}

fn product(w: &Workload, c: &Conv2d) -> Product {
    Product {
        count: c.oh() * c.ow(),
        size: [c.co, c.n, c.ci * c.kh * c.kw],
        element_bytes: w.dtype.bytes() as i64,
        along: [true, true],
        bytes: w.bytes() as f64,
    }
}

/// Whether each thread gets whole vectors when a fetch goes by axes.
fn axes_divide(c: &Conv2d, tile: &Tile, vector: i64) -> bool {
    let part = |block: i64| block % (tile.threads[1] * vector) == 0;
    tile.step.min(c.ci) % tile.threads[0] == 0 && tile.block.iter().all(|b| part(*b))
}

/// The vector that both operands' rows allow.
fn vector(c: &Conv2d, tile: &Tile) -> i64 {
    block::vector_of(tile.vector, &[c.n, c.co])
}

/// A convolution cut up as a config says.
pub struct Plan {
    c: Conv2d,
    tiled: Tiled,
    fetch: Fetch,
}

impl family::Plan for Plan {
    fn needs(&self) -> Needs {
        self.tiled.needs()
    }

    fn suits(&self, gpu: &Cuda) -> bool {
        let Plan { c, tiled, fetch } = self;
        tiled.suits(gpu) && (*fetch == Fetch::Rounds || axes_divide(c, &tiled.tile, vector(c, &tiled.tile)))
    }

    fn us(&self, w: &Workload, gpu: &Cuda) -> f64 {
        // Parts of a row in different sectors for neighbouring threads.
        let scattered = if self.fetch == Fetch::Axes { 1.02 } else { 1.0 };
        self.tiled.us(w, gpu) * scattered
    }
}

impl Family for Conv2dHwcn {
    const NAME: &'static str = "conv2d_hwcn";
    const LIMITS: &'static str = "tiles divide; threads, registers and shared memory within the device's limits; threads share out \
                                  whole vectors along the axes";
    type Problem = Conv2d;
    type Knobs = Sizes;
    type Plan<'a> = Plan;

    fn problem(w: &Workload, t: &Target) -> Result<Conv2d, String> {
        let gpu = device(t)?;
        let c = convolution(w)?;
        without_groups(&c)?;
        if c.layout != ConvLayout::Hwcn {
            return Err("for HWCN".into());
        }
        if c.oh() * c.ow() > gpu.grid_dim[2] {
            return Err(format!("for at most {} pixels", gpu.grid_dim[2]));
        }
        Ok(c)
    }

    fn narrow(case: &Case<'_, Conv2d>, knob: &str, values: &mut Vec<Value>) {
        if knob == "vector" {
            up_to(values, product(case.w, &case.problem).widest());
        }
    }

    fn plan(case: &Case<'_, Conv2d>, Sizes { tile, fetch }: Sizes) -> Result<Plan, TemplateError> {
        let c = case.problem;
        Ok(Plan { c, tiled: Tiled { product: product(case.w, &c), tile }, fetch })
    }

    fn search(case: &Case<'_, Conv2d>) -> Search<Sizes> {
        let best = Tile::best(&product(case.w, &case.problem), case.gpu);
        Search::Among(best.map(|tile| Sizes { tile, fetch: Fetch::Rounds }).into_iter().collect())
    }

    #[allow(non_snake_case, reason = "the tutorial's names")]
    fn kernel(case: &Case<'_, Conv2d>, plan: &Plan) -> Result<Scheduled, TemplateError> {
        let (w, Plan { c, tiled: Tiled { tile, .. }, fetch }) = (case.w, plan);
        let mut s = Schedule::new(naive(w));
        let [W, BL, B] = [s.stage("w")?, s.stage("acc")?, s.stage("y")?];

        // Designate the memory hierarchy; the sums are what the tutorial calls `cache_write(B, "local")`.
        let Apad = inline_padding(&mut s)?;
        let AA = s.cache_read(Apad, Scope::Shared, &[BL])?;
        let WW = s.cache_read(W, Scope::Shared, &[BL])?;
        let AL = s.cache_read(AA, Scope::Register, &[BL])?;
        let WL = s.cache_read(WW, Scope::Register, &[BL])?;
        s.set_scope(BL, Scope::Register)?;

        // Split the workloads, and bind them to the GPU's thread indices; virtual thread split.
        let [hi, wi, fi, ni] = s.axes(B)?;
        let bz = s.fuse(hi, wi)?;
        let cut = block::cut(&mut s, &[bz], [fi, ni], tile)?;
        s.bind(bz, BLOCK(Axis::Z))?;
        s.bind(cut.blocks[0], BLOCK(Axis::Y))?;
        s.bind(cut.blocks[1], BLOCK(Axis::X))?;

        // Schedule the local sums.
        s.compute_at(BL, cut.threads[1])?;
        let [_yi, _xi, fi, ni, rc, ry, rx] = s.axes(BL)?;
        let [rco, rci] = s.split(rc, tile.step.min(c.ci), Tail::Guard)?;
        s.reorder(&[rco, ry, rx, rci, fi, ni])?;

        // Attach computation to iteration variables.
        s.compute_at(AA, rx)?;
        s.compute_at(WW, rx)?;
        s.compute_at(AL, rci)?;
        s.compute_at(WL, rci)?;

        // Schedule the shared memory loads.
        let bytes = w.dtype.bytes() as i64;
        for load in [AA, WW] {
            s.storage_align(load, 2, 16 / bytes, 0)?;
            if *fetch == Fetch::Axes {
                fetch_by_axes(&mut s, load, tile, vector(c, tile))?;
            } else {
                block::fetch(&mut s, load, tile, vector(c, tile))?;
            }
        }

        // A thread's operands and sums in registers, and its stores.
        for local in [AL, WL] {
            let loops = s.loops_of(local);
            block::copy(&mut s, &loops, loops[3], 16 / bytes)?;
        }
        s.unroll(fi)?;
        s.unroll(ni)?;
        block::advise(&mut s, rx)?;
        let whole = c.n % tile.block[1] == 0;
        let stores = if whole { 16 / w.out_dtype.bytes() as i64 } else { 1 };
        block::copy(&mut s, &cut.patch, cut.patch[1], stores)?;
        Ok(Scheduled { schedule: s, packs: vec![] })
    }
}

/// The tutorial's way to fetch: channels go to the threads along y, a contiguous part of the row to each thread along x,
/// in vectors.
fn fetch_by_axes(s: &mut Schedule, load: crate::ir::BufferId, tile: &Tile, vector: i64) -> Result<(), ScheduleError> {
    let [yi, xi, ci, ni] = s.axes(load)?;
    let [ty, ci] = s.split_nparts(ci, tile.threads[0])?;
    let [tx, ni] = s.split_nparts(ni, tile.threads[1])?;
    // A batch smaller than a block leaves less to each thread.
    let vector = block::vector_of(vector, &[extent(s, ni)]);
    let [no, ni] = s.split(ni, vector, Tail::Perfect)?;
    s.reorder(&[ty, tx, yi, xi, ci, no, ni])?;
    s.bind(ty, THREAD(Axis::Y))?;
    s.bind(tx, THREAD(Axis::X))?;
    if vector > 1 { s.vectorize(ni) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::templates::Template;

    #[test]
    fn the_tutorials_schedule_is_a_config() {
        let c = Conv2d { layout: ConvLayout::Hwcn, ..Conv2d::nchw(256, 256, 14, 14, 512, 3, 1, 1) };
        let (w, t) = (Workload::f32(c), Target::find("sm_90a").unwrap());
        let space = Conv2dHwcn.space(&w, t).unwrap();
        assert!(space.index_of(&tutorial()).is_ok());
        let made = Conv2dHwcn.schedule(&w, t, &tutorial()).unwrap();
        let text = made.schedule.kernel.to_string();
        for line in ["in 0..196 grid.z", "in 0..8 grid.y", "in 0..4 grid.x", "in 0..8 thread.y", "in 0..2 vthread"] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        assert!(text.contains("f32[1, 1, 8, 64] shared"), "{text}");
    }
}

//! The convolution of the tutorial "Tuning High Performance Convolution on NVIDIA GPUs" (Lianmin Zheng, Apache TVM):
//! NCHW, every axis cut into pieces of its own.
//!
//! `f`, `y` and `x` (output channels, rows, columns) are cut into blocks, virtual threads, threads and what a thread
//! computes; the reduction into outer steps, of which each fetches its operands into shared memory, middle steps, which
//! fetch from there into registers, and inner ones. All threads of a block fetch together. The space is the tutorial's:
//! for its layer (N 1, 512 x 7 x 7, 512 filters of 3 x 3, padding 1) it has the same 10,454,400 indices, and the same
//! config at each of them.
//!
//! Where this differs:
//!
//! * The tutorial applies the knob `tile_rx` to the axis `ry` and `tile_ry` to `rx`. Here each goes to its own axis; to
//!   get the kernel of one of the tutorial's configs, exchange the two.
//! * Batches: each image is a block's third coordinate, together with the channels.
//! * Epilogues are computed where the sums are written back.
//! * Strides and dilation need nothing but larger tiles of the input.
//! * Output extents with a prime factor above 7, such as 13 or 113, are cut as the next number without one (14, 120),
//!   and the surplus is idle.
//! * What no device can run (TVM: "skipped because of invalid gpu kernel", 70 % of its random configs) is refused by the
//!   space, and so are configs whose sums cannot stay in registers.

use super::conv2d_cost::{self, Shape, Unrolled};
use super::family::{self, Case, Family, Needs, Search};
use super::requires::{convolution, device, without_groups};
use super::schedules::{BLOCK, THREAD, cooperative_fetch, inline_padding, tiled_extent};
use crate::ir::{Axis, Pragma, Scope};
use crate::schedule::Schedule;
use crate::space::{Config, ConfigError, SpaceBuilder, Split};
use crate::target::{Cuda, Target};
use crate::templates::{Scheduled, TemplateError};
use crate::workload::{Conv2d, ConvLayout, Workload, naive};

/// See the module's text. Knobs: `tile_f`, `tile_y`, `tile_x` (blocks, virtual threads, threads, elements of a thread),
/// `tile_rc`, `tile_ry`, `tile_rx` (outer, middle, inner), `auto_unroll_max_step` and `unroll_explicit`.
pub struct Conv2dNoBatching;

/// Most sums of a thread: with operands and addresses they still fit into the 255 registers that a thread can have.
const MAX_SUMS: i64 = 192;

/// A config as numbers.
#[derive(Clone, Copy, Debug)]
struct Tiles {
    f: [i64; 4],
    y: [i64; 4],
    x: [i64; 4],
    rc: [i64; 3],
    ry: [i64; 3],
    rx: [i64; 3],
    max_step: i64,
    explicit: bool,
}

/// The sizes of a split of `extent`, with the first one in place of -1.
fn sizes<const N: usize>(config: &Config, knob: &str, extent: i64) -> Result<[i64; N], ConfigError> {
    let given = config.split(knob)?;
    let mut out = [1; N];
    for (to, from) in out.iter_mut().zip(given).skip(1) {
        *to = *from;
    }
    out[0] = extent / out[1..].iter().product::<i64>().max(1);
    Ok(out)
}

impl Tiles {
    fn of(c: &Conv2d, config: &Config) -> Result<Tiles, ConfigError> {
        Ok(Tiles {
            f: sizes(config, "tile_f", tiled_extent(c.co))?,
            y: sizes(config, "tile_y", tiled_extent(c.oh()))?,
            x: sizes(config, "tile_x", tiled_extent(c.ow()))?,
            rc: sizes(config, "tile_rc", c.ci)?,
            ry: sizes(config, "tile_ry", c.kh)?,
            rx: sizes(config, "tile_rx", c.kw)?,
            max_step: config.int("auto_unroll_max_step")?,
            explicit: config.int("unroll_explicit")? != 0,
        })
    }

    /// Threads of a block.
    fn threads(&self) -> i64 {
        self.f[2] * self.y[2] * self.x[2]
    }

    /// Sums of a thread.
    fn sums(&self) -> i64 {
        [self.f, self.y, self.x].iter().map(|t| t[1] * t[3]).product()
    }

    /// Elements of the input and of the weights that one outer step of the reduction needs.
    fn fetched(&self, c: &Conv2d) -> [i64; 2] {
        let [rc, ry, rx] = [self.rc, self.ry, self.rx].map(|t| t[1] * t[2]);
        let [f, y, x] = [self.f, self.y, self.x].map(|t| t[1] * t[2] * t[3]);
        [rc * reach(c, 0, y, ry) * reach(c, 1, x, rx), f * rc * ry * rx]
    }
}

/// Input rows (`axis` 0) or columns (1) that `outputs` neighbours and `taps` of the kernel reach over.
fn reach(c: &Conv2d, axis: usize, outputs: i64, taps: i64) -> i64 {
    (outputs - 1) * c.stride[axis] + (taps - 1) * c.dilation[axis] + 1
}

/// A convolution cut up as a config says.
pub struct Plan {
    c: Conv2d,
    element_bytes: i64,
    tiles: Tiles,
}

impl family::Plan for Plan {
    fn needs(&self) -> Needs {
        let shared_bytes = self.tiles.fetched(&self.c).iter().sum::<i64>() * self.element_bytes;
        Needs { threads: self.tiles.threads(), registers: 0, shared_bytes }
    }

    fn suits(&self, gpu: &Cuda) -> bool {
        let Plan { c, tiles, .. } = self;
        tiles.f[2] <= gpu.block_dim[2]
            && tiles.sums() <= MAX_SUMS
            && self.needs().shared_bytes <= gpu.shared_per_block
            && c.n * tiles.f[0] <= gpu.grid_dim[2]
            && tiles.y[0] <= gpu.grid_dim[1]
    }

    fn us(&self, w: &Workload, gpu: &Cuda) -> f64 {
        estimate(w, &self.c, gpu, &self.tiles)
    }
}

impl Family for Conv2dNoBatching {
    const NAME: &'static str = "conv2d_no_batching";
    const LIMITS: &'static str = "threads, shared memory, sums and grid within the device's limits";
    type Problem = Conv2d;
    type Knobs = Config;
    type Plan<'a> = Plan;

    fn problem(w: &Workload, t: &Target) -> Result<Conv2d, String> {
        let gpu = device(t)?;
        let c = convolution(w)?;
        without_groups(&c)?;
        if c.layout != ConvLayout::Nchw {
            return Err("for NCHW".into());
        }
        if c.n > gpu.grid_dim[2] {
            return Err(format!("for at most {} images", gpu.grid_dim[2]));
        }
        Ok(c)
    }

    fn space(case: &Case<'_, Conv2d>, space: SpaceBuilder) -> SpaceBuilder {
        let c = &case.problem;
        space
            .split("tile_f", Split::factors(tiled_extent(c.co), 4))
            .split("tile_y", Split::factors(tiled_extent(c.oh()), 4))
            .split("tile_x", Split::factors(tiled_extent(c.ow()), 4))
            .split("tile_rc", Split::factors(c.ci, 3))
            .split("tile_ry", Split::factors(c.kh, 3))
            .split("tile_rx", Split::factors(c.kw, 3))
            .knob("auto_unroll_max_step", [0, 512, 1500])
            .knob("unroll_explicit", [0, 1])
    }

    fn plan(case: &Case<'_, Conv2d>, config: Config) -> Result<Plan, TemplateError> {
        let (c, element_bytes) = (case.problem, case.w.dtype.bytes() as i64);
        Ok(Plan { c, element_bytes, tiles: Tiles::of(&c, &config)? })
    }

    fn search(_: &Case<'_, Conv2d>) -> Search<Config> {
        let whole = |config: Config, knob: &str| config.with_split(knob, &[-1, 1, 1, 1]);
        let outputs = ["tile_f", "tile_y", "tile_x"].into_iter().fold(Config::new(), whole);
        let whole = |config: Config, knob: &str| config.with_split(knob, &[-1, 1, 1]);
        let all = ["tile_rc", "tile_ry", "tile_rx"].into_iter().fold(outputs, whole);
        Search::from(all.with("auto_unroll_max_step", 1500).with("unroll_explicit", 0))
    }

    #[allow(non_snake_case, reason = "the tutorial's names")]
    fn kernel(case: &Case<'_, Conv2d>, plan: &Plan) -> Result<Scheduled, TemplateError> {
        let (c, cfg) = (&plan.c, &plan.tiles);
        let mut s = Schedule::new(naive(case.w));
        let [kernel, OL, output] = [s.stage("w")?, s.stage("acc")?, s.stage("y")?];

        // Inline the padding; the sums are what the tutorial calls `cache_write(conv, "local")`.
        let data = inline_padding(&mut s)?;

        // Create cache stages.
        let AA = s.cache_read(data, Scope::Shared, &[OL])?;
        let WW = s.cache_read(kernel, Scope::Shared, &[OL])?;
        let AL = s.cache_read(AA, Scope::Local, &[OL])?;
        let WL = s.cache_read(WW, Scope::Local, &[OL])?;
        s.set_scope(OL, Scope::Local)?;

        // Tile and bind the spatial axes.
        let [n, f, y, x] = s.axes(output)?;
        for (axis, extent) in [(f, c.co), (y, c.oh()), (x, c.ow())] {
            if tiled_extent(extent) > extent {
                s.pad(axis, tiled_extent(extent))?;
            }
        }
        let [bf, vf, tf, fi] = s.split_sizes(f, cfg.f)?;
        let [by, vy, ty, yi] = s.split_sizes(y, cfg.y)?;
        let [bx, vx, tx, xi] = s.split_sizes(x, cfg.x)?;
        s.reorder(&[n, bf, by, bx, vf, vy, vx, tf, ty, tx, fi, yi, xi])?;
        let bf = s.fuse(n, bf)?;
        let kernel_scope = bf;
        s.bind(bf, BLOCK(Axis::Z))?;
        s.bind(by, BLOCK(Axis::Y))?;
        s.bind(bx, BLOCK(Axis::X))?;
        s.vthread(vf)?;
        s.vthread(vy)?;
        s.vthread(vx)?;
        s.bind(tf, THREAD(Axis::Z))?;
        s.bind(ty, THREAD(Axis::Y))?;
        s.bind(tx, THREAD(Axis::X))?;
        s.compute_at(OL, tx)?;

        // Tile the reduction axes.
        let [n, f, y, x, rc, ry, rx] = s.axes(OL)?;
        let [rco, rcm, rci] = s.split_sizes(rc, cfg.rc)?;
        let [ryo, rym, ryi] = s.split_sizes(ry, cfg.ry)?;
        let [rxo, rxm, rxi] = s.split_sizes(rx, cfg.rx)?;
        s.reorder(&[rco, ryo, rxo, rcm, rym, rxm, rci, ryi, rxi, n, f, y, x])?;
        s.compute_at(AA, rxo)?;
        s.compute_at(WW, rxo)?;
        s.compute_at(AL, rxm)?;
        s.compute_at(WL, rxm)?;

        // Cooperative fetching.
        for load in [AA, WW] {
            let loops = s.loops_of(load);
            cooperative_fetch(&mut s, &loops, &[(Axis::Z, cfg.f[2]), (Axis::Y, cfg.y[2]), (Axis::X, cfg.x[2])])?;
        }

        // Tune unrolling.
        s.pragma(kernel_scope, Pragma::AutoUnrollMaxStep(cfg.max_step))?;
        s.pragma(kernel_scope, Pragma::UnrollExplicit(cfg.explicit))?;
        Ok(Scheduled { schedule: s, packs: vec![] })
    }
}

/// Predicted microseconds.
fn estimate(w: &Workload, c: &Conv2d, gpu: &Cuda, tiles: &Tiles) -> f64 {
    let [rc, ry, rx] = [tiles.rc, tiles.ry, tiles.rx].map(|t| t[1] * t[2]);
    let [f, y, x] = [tiles.f, tiles.y, tiles.x].map(|t| t[1] * t[2] * t[3]);
    // A thread loads its pixels once for each of its places along y and x, its weights once for each along f.
    let pixels = tiles.rc[2] * reach(c, 0, tiles.y[3], tiles.ry[2]) * reach(c, 1, tiles.x[3], tiles.rx[2]);
    let weights = tiles.f[3] * tiles.rc[2] * tiles.ry[2] * tiles.rx[2];
    let (input_rows, input_columns) = (reach(c, 0, y, ry), reach(c, 1, x, rx));
    // Runs of weights that lie side by side.
    let run = if rx < c.kw {
        rx
    } else if ry < c.kh {
        rx * ry
    } else {
        rc * ry * rx
    };
    let multiply_adds = tiles.rc[2] * tiles.ry[2] * tiles.rx[2] * tiles.sums();
    let shape = Shape {
        blocks: c.n * tiles.f[0] * tiles.y[0] * tiles.x[0],
        outer: tiles.rc[0] * tiles.ry[0] * tiles.rx[0],
        middle: tiles.rc[1] * tiles.ry[1] * tiles.rx[1],
        threads: [tiles.f[2], tiles.y[2], tiles.x[2]],
        sums: tiles.sums(),
        loads: [pixels * tiles.y[1] * tiles.x[1], weights * tiles.f[1]],
        apart: [tiles.y[3] * c.stride[0] * input_columns, tiles.x[3] * c.stride[1], tiles.f[3] * rc * ry * rx],
        results_apart: [tiles.f[3] * c.oh() * c.ow(), tiles.y[3] * c.ow(), tiles.x[3]],
        multiply_adds,
        fetched: tiles.fetched(c),
        rows: [(rc * input_rows, input_columns), (f * rc * ry * rx / run, run)],
        element_bytes: w.dtype.bytes() as i64,
        bytes: w.bytes() as f64,
        unrolled: (multiply_adds <= tiles.max_step).then_some(if tiles.explicit {
            Unrolled::Source
        } else {
            Unrolled::Compiler
        }),
    };
    conv2d_cost::microseconds(&shape, gpu)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::templates::Template;

    fn tutorial() -> (Workload, &'static Target) {
        (Workload::f32(Conv2d::nchw(1, 512, 7, 7, 512, 3, 1, 1)), Target::find("sm_75").unwrap())
    }

    /// Trials that the tutorial prints, with AutoTVM's index of each: one whose sums would not stay in registers, and
    /// those that TVM skipped as invalid, are refused.
    #[test]
    fn the_space_is_the_tutorials_index_by_index() {
        let (w, t) = tutorial();
        let space = Conv2dNoBatching.space(&w, t).unwrap();
        assert_eq!(space.range_len(), 10_454_400);
        assert_eq!(space.dims(), [220, 4, 4, 55, 3, 3, 3, 2]);
        let trials = [
            // The best one, 0.748 ms while tuning.
            (4_881_186, true, ["2,64,1", "1,1,7", "1,7,1", "2,2", "3,1", "1,3"], 1500, 0),
            (3_605_182, true, ["4,32,1", "1,1,7", "1,1,1", "1,16", "1,1", "1,1"], 1500, 0),
            (8_921_130, true, ["1,32,4", "1,7,1", "7,1,1", "16,1", "3,1", "1,1"], 1500, 1),
            (5_036_371, true, ["2,32,4", "1,1,1", "1,1,7", "1,1", "1,3", "1,3"], 1500, 0),
            (1_263_092, true, ["1,4,2", "7,1,1", "1,1,7", "2,8", "1,1", "1,3"], 0, 0),
            (3_582_580, true, ["1,1,4", "1,1,1", "1,1,7", "1,8", "1,1", "1,1"], 1500, 0),
            (0, true, ["1,1,1", "1,1,1", "1,1,1", "1,1", "1,1", "1,1"], 0, 0),
            // 392 sums a thread; 17 GFLOP/s.
            (4_107_668, false, ["8,64,1", "1,1,7", "1,1,7", "2,2", "1,1", "3,1"], 1500, 0),
            // Skipped: 512 threads along z; too much shared memory.
            (4_730_274, false, ["1,512,1", "7,1,1", "1,1,7", "16,4", "1,1", "1,3"], 1500, 0),
            (7_106_118, false, ["8,4,4", "1,1,1", "1,1,7", "16,16", "1,1", "1,1"], 512, 1),
            (2_440_616, false, ["4,8,8", "7,1,1", "7,1,1", "64,8", "1,1", "3,1"], 512, 0),
        ];
        for (index, valid, [f, y, x, rc, ry, rx], step, explicit) in trials {
            let text = format!(
                "tile_f=[-1,{f}] tile_y=[-1,{y}] tile_x=[-1,{x}] tile_rc=[-1,{rc}] tile_ry=[-1,{ry}] tile_rx=[-1,{rx}] \
                 auto_unroll_max_step={step} unroll_explicit={explicit}"
            );
            let config = Config::parse(&text).unwrap();
            let ranks: Vec<u64> =
                space.knobs().map(|(name, knob)| knob.rank_of(config.value(name).unwrap()).unwrap()).collect();
            assert_eq!(space.index_of_point(&ranks), index, "{text}");
            assert_eq!(space.get(index).map(|c| c.to_string()), valid.then_some(text));
        }
    }

    #[test]
    fn the_default_uses_the_machine() {
        let (w, t) = tutorial();
        let config = Conv2dNoBatching.default_config(&w, t).unwrap();
        let gpu = device(t).unwrap();
        let tiles = Tiles::of(w.conv2d().unwrap(), &config).unwrap();
        assert!(tiles.threads() >= 32 && tiles.f[0] * tiles.y[0] * tiles.x[0] >= gpu.sm_count / 2, "{config}");
        let first = Conv2dNoBatching.space(&w, t).unwrap().get(0).unwrap();
        assert!(Conv2dNoBatching.cost(&w, t, &config) < Conv2dNoBatching.cost(&w, t, &first) / 10.0, "{config}");
    }
}

//! "Writing Tunable Templates and Using the Auto-tuner" (Lianmin Zheng, Apache TVM): blocked products.
//!
//! The library has the three versions of it as the templates `matmul_v0`, `matmul_v1` and `matmul_split`.

use kernel_gen::ir::{Axis, LoopKind, Scope};
use kernel_gen::schedule::{Schedule, ScheduleError, Tail};
use kernel_gen::target::Target;
use kernel_gen::templates::Template;
use kernel_gen::templates::cuda::matmul_notes::MatmulV1;
use kernel_gen::workload::{Matmul, Workload, naive};
use kernel_gen_runtime::{D2, Device};
use std::process::ExitCode;
use tutorials::{as_written, chosen, numbers, on_gpu, show, time};

/// What the tutorial's space calls `tile_y` and `tile_x`, at the last of its 25 configs.
const TILE: [i64; 2] = [16, 16];

#[allow(non_snake_case, reason = "the tutorial's names")]
fn matmul_v1(workload: &Workload, [tile_y, tile_x]: [i64; 2]) -> Result<Schedule, ScheduleError> {
    let mut s = Schedule::new(naive(workload));
    let [sum, C] = [s.stage("acc")?, s.stage("c")?];

    // schedule according to config
    let [y, x] = s.axes(C)?;
    let [yo, yi] = s.split(y, tile_y, Tail::Guard)?;
    let [xo, xi] = s.split(x, tile_x, Tail::Guard)?;
    s.reorder(&[yo, xo, yi, xi])?;

    // On a GPU, a tile is a block, and each of its elements a thread.
    s.bind(yo, LoopKind::Grid(Axis::Y))?;
    s.bind(xo, LoopKind::Grid(Axis::X))?;
    s.bind(yi, LoopKind::Thread(Axis::Y))?;
    s.bind(xi, LoopKind::Thread(Axis::X))?;
    s.set_scope(sum, Scope::Register)?;
    s.compute_at(sum, xi)?;
    Ok(s)
}

fn main() -> ExitCode {
    tutorials::main(|| {
        let workload = Workload::f32(Matmul::new(512, 512, 512));
        let target = Target::find("sm_80").ok_or("the library knows the target")?;
        println!("{}\n", MatmulV1.space(&workload, target)?);
        show("matmul_v1", matmul_v1(&workload, TILE)?)?;
        on_gpu(|dev| {
            let a = numbers::<f32, D2<512, 512>>(dev, |v| v)?;
            let b = numbers::<f32, D2<512, 512>>(dev, |v| v)?;
            let mut c = dev.zeros::<f32, D2<512, 512>>()?;
            let macs = 512 * 512 * 512;
            time(dev, "as written", macs, || as_written::matmul(dev, &a, &b, &mut c))?;
            time(dev, "chosen", macs, || chosen::matmul(dev, &a, &b, &mut c))
        })
    })
}

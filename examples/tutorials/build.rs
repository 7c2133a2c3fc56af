//! Generates the kernels twice: as the tutorials write them, and as the library would choose.

#[path = "src/as_written.rs"]
mod as_written;
#[path = "src/by_schedule.rs"]
mod by_schedule;

use as_written::AsWritten;
use kernel_gen::space::Config;
use kernel_gen::templates::{Registry, cpu, cuda};

/// The best config that the tutorial found, with the two knobs exchanged that it applies to each other's axis.
const TUNED: &str = "tile_f=[-1,2,64,1] tile_y=[-1,1,1,7] tile_x=[-1,1,7,1] tile_rc=[-1,2,2] tile_ry=[-1,1,3] \
                     tile_rx=[-1,3,1] auto_unroll_max_step=1500 unroll_explicit=0";

fn main() {
    let tuned = Config::parse(TUNED).unwrap_or_else(|e| panic!("{TUNED}: {e}"));
    let blocked = Config::new().with("tile_y", 16).with("tile_x", 16);
    let tensorcore = cuda::conv2d_tensorcore::tutorial;
    let tutorials = Registry::empty()
        .with(as_written(cuda::conv2d_no_batching::Conv2dNoBatching, tuned))
        .with(as_written(cuda::conv2d_hwcn::Conv2dHwcn, cuda::conv2d_hwcn::tutorial()))
        .with(AsWritten {
            schedule: Some(by_schedule::opt_conv_tensorcore),
            ..as_written(cuda::conv2d_tensorcore::Conv2dTensorcore, tensorcore())
        })
        .with(as_written(cuda::matmul_notes::MatmulV1, blocked))
        .with(as_written(cuda::depthwise::DepthwiseCuda, cuda::depthwise::article()))
        // The same functions run on the CPU.
        .with(cpu::plain::Plain);
    let template = Registry::empty()
        .with(as_written(cuda::conv2d_tensorcore::Conv2dTensorcore, tensorcore()))
        .with(cpu::plain::Plain);
    kernel_gen_build::configure().registry(tutorials).module("as_written").generate_or_exit();
    // What the schedule for tensor cores is compared with: the library's template at the same config.
    kernel_gen_build::configure()
        .spec("tensorcore.toml")
        .registry(template)
        .module("template")
        .quiet(true)
        .generate_or_exit();
    kernel_gen_build::configure().module("chosen").quiet(true).generate_or_exit();
}

fn as_written<T>(template: T, config: Config) -> AsWritten<T> {
    AsWritten { template, config, schedule: None }
}

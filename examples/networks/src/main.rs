//! ResNet-18 and ResNet-50 on a GPU, in f32 and f16, each as one CUDA graph: timed, and held against plain Rust in `f64`.

mod options;

use ::resnet18::network::{Step, resnet18 as steps_of_resnet18, resnet50 as steps_of_resnet50};
use ::resnet18::program::{self, relative_error, worse};
use ::resnet18::reference::{self, Volume};
use ::resnet18::table::{self, Align, median};
use ::resnet18::weights::Weights;
use ::resnet18::{kernels as kernels_of_resnet18, preprocess};
use kernel_gen_runtime::Cuda;
use kernel_gen_runtime::cuda::cudarc::driver::sys::CUevent_flags::CU_EVENT_DEFAULT;
use kernel_gen_runtime::cuda::{Graph, Overlap};
use networks::network::Network;
use networks::{kernels, resnet18, resnet50};
use options::{Options, USAGE};
use picture::Picture;
use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Replays before the timed ones.
const WARM_UP: usize = 20;
/// Replays between two events, so that what an event costs does not count.
const EACH: usize = 20;

fn main() -> ExitCode {
    program::main("networks", USAGE, Options::parse(std::env::args().skip(1)), run)
}

/// Runs the networks that are asked for, if there is a GPU; whether all outputs are correct.
fn run(options: &Options) -> Result<bool> {
    let dev = match Cuda::on_new_stream(0) {
        Ok(dev) => dev,
        Err(why) => {
            println!("[SKIP] all networks: {why}");
            return Ok(true);
        }
    };
    let image = preprocess::preprocess(&Picture::read(&options.image)?);
    println!("{dev:?}, {}\n", options.image.display());
    let mut rows = vec![];
    let mut right = true;
    for (name, steps) in [("resnet18", steps_of_resnet18()), ("resnet50", steps_of_resnet50())] {
        let wanted = |half: bool| options.wants(name, half);
        if !wanted(false) && !wanted(true) {
            continue;
        }
        let weights = Weights::seeded(18, &steps);
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
        let expected = reference::forward(&steps, &weights, &image, threads);
        let case = Case { dev: &dev, name, steps: &steps, weights: &weights, image: &image, expected: &expected };
        for half in [false, true].into_iter().filter(|half| wanted(*half)) {
            let row = match (name, half) {
                ("resnet18", false) => {
                    kernels_of_resnet18::preload(&dev)?;
                    case.run::<resnet18::single::ResNet18>("f32", options.repeat)?
                }
                ("resnet18", true) => {
                    kernels::resnet18_f16::preload(&dev)?;
                    case.run::<resnet18::half::ResNet18>("f16", options.repeat)?
                }
                (_, false) => {
                    kernels::resnet50::preload(&dev)?;
                    case.run::<resnet50::single::ResNet50>("f32", options.repeat)?
                }
                (_, true) => {
                    kernels::resnet50_f16::preload(&dev)?;
                    case.run::<resnet50::half::ResNet50>("f16", options.repeat)?
                }
            };
            right &= row.right;
            rows.push(row.cells);
        }
    }
    let columns = [
        ("network", Align::Left),
        ("type", Align::Left),
        ("kernels", Align::Right),
        ("early", Align::Right),
        ("us", Align::Right),
        ("us, none early", Align::Right),
        ("error", Align::Right),
        ("worst error", Align::Right),
        ("", Align::Left),
    ];
    print!("{}", table::render(columns, &rows));
    println!(
        "\nTimes are medians over replays of one CUDA graph a network, in turns with a graph whose kernels each begin when"
    );
    println!(
        "the one before has ended. An error is the largest difference from the f64 reference, relative to the largest"
    );
    println!("value: of the last layer, and of the layer that is off the most.");
    Ok(right)
}

/// A network, its parameters and what it is to compute.
struct Case<'a> {
    dev: &'a Cuda,
    name: &'a str,
    steps: &'a [Step],
    weights: &'a Weights,
    image: &'a [f32],
    expected: &'a [Volume],
}

/// A row of the table, and whether the network is right.
struct Row {
    cells: [String; 9],
    right: bool,
}

impl Case<'_> {
    /// Captures the network twice, with and without kernels that begin early, times both in turns, and checks the outputs.
    fn run<N: Network>(&self, dtype: &str, repeat: usize) -> Result<Row> {
        let dev = self.dev;
        let make = || -> Result<N> {
            let mut network = N::new(dev, self.steps, self.weights, self.image)?;
            // The first pass loads the code of the pooling layers, which cannot be done during a capture.
            network.forward(dev)?;
            Ok(network)
        };
        let mut late = dev.capture_with(Overlap::Never, make()?, |dev, n| n.forward(dev))?;
        let mut early = dev.capture(make()?, |dev, n| n.forward(dev))?;
        let (mut late_us, mut early_us) = (vec![], vec![]);
        for _ in 0..WARM_UP {
            late.launch()?;
            early.launch()?;
        }
        for _ in 0..repeat {
            late_us.push(replays_us(&mut late)?);
            early_us.push(replays_us(&mut early)?);
        }
        let outputs = early.buffers().outputs(dev)?;
        // Beginning early changes no bit.
        let same = late.buffers().outputs(dev)? == outputs;
        let errors: Vec<f64> =
            outputs.iter().zip(&self.expected[1..]).map(|(found, e)| relative_error(found, &e.data)).collect();
        let worst = errors.iter().copied().fold(0.0, worse);
        let last = errors.last().copied().unwrap_or(f64::NAN);
        let right = worst < N::TOLERANCE && same && errors.len() == self.steps.len();
        let remark = match (same, right) {
            (false, _) => "WRONG: with and without early kernels differ",
            (true, false) => "WRONG",
            (true, true) => "",
        };
        let cells = [
            self.name.to_string(),
            dtype.to_string(),
            early.launches().to_string(),
            early.overlapped().to_string(),
            format!("{:.1}", median(early_us)),
            format!("{:.1}", median(late_us)),
            format!("{last:.1e}"),
            format!("{worst:.1e}"),
            remark.to_string(),
        ];
        Ok(Row { cells, right })
    }
}

/// Microseconds of a replay, the mean of some in a row.
fn replays_us<T>(graph: &mut Graph<T>) -> Result<f64> {
    let stream = Arc::clone(graph.device().stream());
    let event = || stream.context().new_event(Some(CU_EVENT_DEFAULT));
    let (begin, end) = (event()?, event()?);
    begin.record(&stream)?;
    for _ in 0..EACH {
        graph.launch()?;
    }
    end.record(&stream)?;
    end.synchronize()?;
    Ok(f64::from(begin.elapsed_ms(&end)?) * 1e3 / EACH as f64)
}

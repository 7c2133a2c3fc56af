//! Classic image filters on generated depthwise kernels: a photo in, a sheet of nine pictures out.
//!
//! The filters run through the generated function `kernels::filter`, which picks the declared workload by the shapes
//! of its arguments at compile time; [`Session::apply`] shows that generic code can pass the shapes on.

mod filters;
mod photo;
mod reference;

kernel_gen_runtime::include_kernels!();

use filters::{Filter, Show};
use kernel_gen_runtime::{Cpu, D4, Tensor};
use photo::{HEIGHT, Planes, WIDTH};
use picture::Picture;
use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

/// Largest difference from the plain loop that counts as correct, in steps of the 255 of a colour.
const TOLERANCE: f64 = 1e-2;
/// Timed runs of a filter, of which the fastest counts.
const RUNS: usize = 20;

const USAGE: &str = "\
Classic image filters on generated kernels.

usage: filters [PHOTO [SHEET]]
  PHOTO   PNG or PPM picture (default: the scene in the repository)
  SHEET   PNG file to write (default: filters.png in this folder)
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.len() > 2 || arguments.iter().any(|a| a.starts_with('-')) {
        print!("{USAGE}");
        return ExitCode::FAILURE;
    }
    let scene = concat!(env!("CARGO_MANIFEST_DIR"), "/../picture/scene.png");
    let path = |i: usize, default: &str| PathBuf::from(arguments.get(i).map_or(default, |a| a));
    match run(path(0, scene), path(1, "filters.png")) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("filters: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A photo under filters: the results so far.
struct Session {
    dev: Cpu,
    photo: Picture,
    panels: Vec<(&'static str, Picture)>,
    worst: f64,
}

/// Filters the photo and writes the sheet; whether all results are correct.
fn run(photo: PathBuf, sheet: PathBuf) -> Result<bool, Box<dyn Error>> {
    let photo = photo::fit(&Picture::read(&photo)?);
    let mut session = Session { dev: Cpu::new(), panels: vec![("photo", photo.clone())], photo, worst: 0.0 };
    println!("{:14} {:20} {:>9} {:>12} {:>10}", "filter", "template", "us", "Mpixel/s", "error");
    session.apply::<9, 248, 328>(&filters::box_blur())?;
    session.apply::<5, 244, 324>(&filters::gaussian())?;
    session.apply::<3, 242, 322>(&filters::sharpen())?;
    session.apply::<3, 242, 322>(&filters::emboss())?;
    session.apply::<3, 242, 322>(&filters::laplacian())?;
    session.gradient()?;
    contact_sheet(&session.panels).write_png(&sheet)?;
    println!("\nwrote {}", sheet.display());
    println!("max error {:.2e} (of 255)", session.worst);
    Ok(session.worst < TOLERANCE)
}

impl Session {
    /// Runs a filter of any size that the spec declares. `H` and `W` are the size of the photo with a border of `K / 2`
    /// pixels; the `where` clause is what makes this compile for declared sizes only.
    fn apply<const K: usize, const H: usize, const W: usize>(
        &mut self,
        filter: &Filter<K>,
    ) -> kernel_gen_runtime::Result<()>
    where
        (D4<1, 3, H, W>, D4<3, 1, K, K>, Planes<3>): kernels::FilterShapes,
    {
        let x = photo::with_border::<H, W>(&self.photo);
        // Each colour gets the same taps.
        let w = Tensor::<f32, D4<3, 1, K, K>>::from_fn(|i| filter.taps.as_flattened()[i % (K * K)]);
        let mut y = Tensor::<f32, Planes<3>>::zeros();
        let us = fastest_us(|| kernels::filter(&self.dev, &x, &w, &mut y))?;
        let expected = reference::depthwise(x.as_slice(), [3, H, W], w.as_slice(), [3, K, K]);
        self.check(filter.name, &format!("filter{K}x{K}"), us, y.as_slice(), &expected);
        self.panels.push((filter.name, photo::picture(&y, filter.show)));
        Ok(())
    }

    /// Sobel's slopes: six outputs from three colours, and from them the steepness.
    fn gradient(&mut self) -> kernel_gen_runtime::Result<()> {
        let x = photo::with_border::<242, 322>(&self.photo);
        let taps = filters::sobel();
        // The outputs of a colour stand side by side: red to the right, red downwards, green to the right, ...
        let w = Tensor::<f32, D4<6, 1, 3, 3>>::from_fn(|i| taps.as_flattened().as_flattened()[i % 18]);
        let mut y = Tensor::<f32, Planes<6>>::zeros();
        let us = fastest_us(|| kernels::filter(&self.dev, &x, &w, &mut y))?;
        let expected = reference::depthwise(x.as_slice(), [3, 242, 322], w.as_slice(), [6, 3, 3]);
        self.check("Sobel x and y", "gradient", us, y.as_slice(), &expected);
        let slope = |i: usize, direction: usize| {
            let (c, pixel) = (i / (WIDTH * HEIGHT), i % (WIDTH * HEIGHT));
            y.as_slice()[(2 * c + direction) * WIDTH * HEIGHT + pixel]
        };
        for (direction, name) in ["Sobel x", "Sobel y"].into_iter().enumerate() {
            let planes = Tensor::from_fn(|i| slope(i, direction));
            self.panels.push((name, photo::picture(&planes, Show::Signed(0.4))));
        }
        let steepness = Tensor::from_fn(|i| slope(i, 0).hypot(slope(i, 1)));
        self.panels.push(("Sobel magnitude", photo::picture(&steepness, Show::Absolute(0.5))));
        Ok(())
    }

    /// Prints a line about a filter and remembers its error.
    fn check(&mut self, name: &str, workload: &str, us: f64, found: &[f32], expected: &[f64]) {
        let report = kernels::report().for_device(&self.dev);
        let template = report.rows().iter().find(|r| r.workload == workload).map_or("-", |r| r.template);
        let differences = found.iter().zip(expected).map(|(f, e)| (f64::from(*f) - e).abs());
        // NaN counts as larger than any error.
        let error = differences.fold(0.0, |a: f64, b| if a.is_nan() || a >= b { a } else { b });
        println!("{name:14} {template:20} {us:>9.1} {:>12.0} {error:>10.1e}", (WIDTH * HEIGHT) as f64 / us);
        self.worst = if error > self.worst || error.is_nan() { error } else { self.worst };
    }
}

/// The shortest of several runs.
fn fastest_us(mut run: impl FnMut() -> kernel_gen_runtime::Result<()>) -> kernel_gen_runtime::Result<f64> {
    let mut best = f64::INFINITY;
    for _ in 0..RUNS {
        let start = Instant::now();
        run()?;
        best = best.min(start.elapsed().as_secs_f64() * 1e6);
    }
    Ok(best)
}

/// The pictures in rows of three, each with its name above.
fn contact_sheet(panels: &[(&str, Picture)]) -> Picture {
    const COLUMNS: usize = 3;
    const GAP: usize = 8;
    const CAPTION: usize = 13;
    let (step_x, step_y) = (WIDTH + GAP, HEIGHT + CAPTION + GAP);
    let rows = panels.len().div_ceil(COLUMNS);
    let mut sheet = Picture::filled(GAP + COLUMNS * step_x, GAP + rows * step_y, [250; 3]);
    for (i, (name, panel)) in panels.iter().enumerate() {
        let (left, top) = (GAP + i % COLUMNS * step_x, GAP + i / COLUMNS * step_y);
        sheet.caption(name, left, top, [40; 3]);
        sheet.paste(panel, left, top + CAPTION);
    }
    sheet
}

//! Classifies the handwritten digits of `images.txt` by a network that the build script made of `digits.onnx`, and compares the
//! probabilities with those that ONNX Runtime gave.

kernel_gen_runtime::include_kernels!();

use kernel_gen_runtime::{Cpu, Result, Tensor};
use kernels::digits::{Image, Network, Probabilities, WEIGHTS};
use kernels::digits_int8;

/// Images with the digit that each shows: a line has the digit, and 64 grey levels from 0 to 16.
const IMAGES: &str = include_str!("../images.txt");

/// The probabilities of each image's digits, as ONNX Runtime computed them.
const EXPECTED: &str = include_str!("../expected.txt");

/// All images that the network was not trained with, in the same form.
const HELD_OUT: &str = include_str!("../held_out.txt");

/// The numbers of a line.
fn numbers(line: &str) -> Vec<f32> {
    line.split_whitespace().map(|word| word.parse().expect("the files hold numbers")).collect()
}

/// The place of the largest number.
fn largest(values: &[f32]) -> usize {
    (0..values.len()).max_by(|a, b| values[*a].total_cmp(&values[*b])).unwrap_or(0)
}

/// What a run over all images found.
struct Outcome {
    images: usize,
    right: usize,
    /// Largest distance of a probability from ONNX Runtime's.
    distance: f32,
}

/// Runs all images through the network.
fn classify(dev: &Cpu, mut each: impl FnMut(&[f32], usize)) -> Result<Outcome> {
    let mut network = Network::load(dev, WEIGHTS)?;
    let mut outcome = Outcome { images: 0, right: 0, distance: 0.0 };
    for (image, expected) in IMAGES.lines().zip(EXPECTED.lines()) {
        let (image, expected) = (numbers(image), numbers(expected));
        let pixels = Tensor::<f32, Image>::from_fn(|i| image[i + 1] / 16.0);
        let mut probabilities = Tensor::<f32, Probabilities>::zeros();
        network.run(dev, &pixels, &mut probabilities)?;
        let digit = largest(probabilities.as_slice());
        outcome.images += 1;
        outcome.right += usize::from(digit == image[0] as usize);
        let distances = probabilities.as_slice().iter().zip(&expected).map(|(p, q)| (p - q).abs());
        outcome.distance = distances.fold(outcome.distance, f32::max);
        each(pixels.as_slice(), digit);
    }
    Ok(outcome)
}

/// How many of the images that were held out are classified right, by numbers and by integers of eight bits.
fn accuracy(dev: &Cpu) -> Result<[usize; 2]> {
    let mut numbers_of = Network::load(dev, WEIGHTS)?;
    let mut integers_of = digits_int8::Network::load(dev, digits_int8::WEIGHTS)?;
    let mut right = [0; 2];
    for image in HELD_OUT.lines().map(numbers) {
        let pixels = |i: usize| image[i + 1] / 16.0;
        let mut by_numbers = Tensor::<f32, Probabilities>::zeros();
        numbers_of.run(dev, &Tensor::<f32, Image>::from_fn(pixels), &mut by_numbers)?;
        let mut by_integers = Tensor::<f32, digits_int8::Probabilities>::zeros();
        integers_of.run(dev, &Tensor::<f32, digits_int8::Image>::from_fn(pixels), &mut by_integers)?;
        for (count, values) in right.iter_mut().zip([by_numbers.as_slice(), by_integers.as_slice()]) {
            *count += usize::from(largest(values) == image[0] as usize);
        }
    }
    Ok(right)
}

fn main() -> Result<()> {
    let mut shown = 0;
    let outcome = classify(&Cpu::new(), |pixels, digit| {
        if shown < 3 {
            let grey = |v: f32| [' ', '.', ':', 'o', '#'][(v * 4.0).round() as usize];
            for row in pixels.chunks(8) {
                println!("  {}", row.iter().map(|v| grey(*v)).collect::<String>());
            }
            println!("  is a {digit}\n");
            shown += 1;
        }
    })?;
    let Outcome { images, right, distance } = outcome;
    println!("{right} of {images} digits right; largest distance from ONNX Runtime's probabilities: {distance:.1e}");
    let [numbers, integers] = accuracy(&Cpu::new())?;
    let all = HELD_OUT.lines().count();
    println!(
        "of all {all} images held out {numbers} are right, and {integers} by the network in integers of eight bits"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_are_those_of_onnx_runtime() {
        for threads in [1, 3] {
            let outcome = classify(&Cpu::with_threads(threads), |_, _| ()).unwrap();
            assert_eq!((outcome.images, outcome.right), (40, 40));
            assert!(outcome.distance < 1e-5, "{}", outcome.distance);
        }
    }

    #[test]
    fn instances_run_at_the_same_time_on_threads_of_their_own() {
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| assert_eq!(classify(&Cpu::with_threads(1), |_, _| ()).unwrap().right, 40));
            }
        });
    }

    #[test]
    fn the_report_has_a_kernel_for_each_launch() {
        let report = kernels::digits::report(&Cpu::with_threads(1));
        assert!(report.steps().iter().all(|step| step.row.as_ref().is_some_and(|row| row.isa.is_some())), "{report}");
        let lines = report.to_string();
        assert!(lines.lines().nth(1).unwrap().starts_with("0     /scores/stem/stem.0/Conv, "), "{lines}");
        assert!(lines.ends_with(" expected\n"), "{lines}");
    }

    #[test]
    fn integers_of_eight_bits_lose_no_image() {
        for threads in [1, 2] {
            let [numbers, integers] = accuracy(&Cpu::with_threads(threads)).unwrap();
            assert_eq!((HELD_OUT.lines().count(), numbers), (180, 179));
            assert!(integers * 1000 >= numbers * 995, "{integers} of {numbers}");
        }
    }

    #[test]
    fn weights_of_something_else_are_refused() {
        let error = Network::load(&Cpu::with_threads(1), &WEIGHTS[1..]).unwrap_err().to_string();
        assert_eq!(error, "the weights of `digits` cannot be used: they are no weights that kernel-gen wrote");
    }
}

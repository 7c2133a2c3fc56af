//! Classifies the handwritten digits of `images.txt` by a network that the build script made of `digits.onnx`, and compares the
//! probabilities with those that ONNX Runtime gave.

kernel_gen_runtime::include_kernels!();

use kernel_gen_runtime::{Cpu, DynView, DynViewMut, Result, Tensor};
use kernels::digits::{Image, Network, Probabilities, WEIGHTS};
use kernels::{digits_batch, digits_int8};

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

/// Classifies the images that were held out in batches of `$batch`, by the network of `$module`, and counts those that are right.
macro_rules! digits_of {
    ($module:ident, $dev:expr, $batch:expr) => {{
        let dev: &Cpu = $dev;
        let mut network = $module::Network::load(dev, $module::WEIGHTS)?;
        let images: Vec<Vec<f32>> = HELD_OUT.lines().map(numbers).collect();
        let mut right = 0;
        for images in images.chunks($batch) {
            let pixels: Vec<f32> = images.iter().flat_map(|image| image[1..].iter().map(|grey| grey / 16.0)).collect();
            let mut probabilities = vec![0.0; 10 * images.len()];
            network.run_dyn(
                dev,
                DynView::new(&pixels, &[images.len(), 1, 8, 8]),
                DynViewMut::new(&mut probabilities, &[images.len(), 10]),
            )?;
            let digits = probabilities.chunks(10).map(largest);
            right += digits.zip(images).filter(|(digit, image)| *digit == image[0] as usize).count();
        }
        right
    }};
}

/// How many of the images that were held out are classified right, by numbers and by integers of eight bits, so many images at once.
fn accuracy(dev: &Cpu, batch: usize) -> Result<[usize; 2]> {
    Ok([digits_of!(digits_batch, dev, batch), digits_of!(digits_int8, dev, batch)])
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
    let [numbers, integers] = accuracy(&Cpu::new(), 50)?;
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
        for (threads, batch) in [(1, 1), (2, 7), (1, 64)] {
            let [numbers, integers] = accuracy(&Cpu::with_threads(threads), batch).unwrap();
            assert_eq!((HELD_OUT.lines().count(), numbers), (180, 179));
            assert!(integers * 1000 >= numbers * 995, "{integers} of {numbers}");
        }
    }

    /// The images, and the probabilities that each has alone.
    fn images_and_probabilities() -> (Vec<f32>, Vec<f32>) {
        let images = IMAGES.lines().flat_map(|line| numbers(line)[1..].to_vec()).map(|v| v / 16.0);
        (images.collect(), EXPECTED.lines().flat_map(numbers).collect())
    }

    /// Images one by one have them, too: on one thread, on as many as there are images, and on others, and of a number that is in the type.
    #[test]
    fn images_one_by_one_have_the_probabilities_of_each_alone() {
        use super::kernels::{digits_apart, digits_five};
        use kernel_gen_runtime::{D2, D4};
        let (images, expected) = images_and_probabilities();
        for threads in [1, 2, 3, 5, 70] {
            let dev = Cpu::with_threads(threads);
            let mut network = digits_apart::Network::load(&dev, digits_apart::WEIGHTS).unwrap();
            for n in [0, 1, 2, 5, 7, 40] {
                let (mut all, pixels, into) = (vec![0.0; 10 * n], [n, 1, 8, 8], [n, 10]);
                let pixels = DynView::new(&images[..64 * n], &pixels);
                network.run_dyn(&dev, pixels, DynViewMut::new(&mut all, &into)).unwrap();
                assert!(all.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-5), "{n} images, {threads} threads");
            }
            let five = Tensor::<f32, D4<5, 1, 8, 8>>::from_slice(&images[..320]).unwrap();
            let mut network = digits_five::Network::load(&dev, digits_five::WEIGHTS).unwrap();
            let mut typed = Tensor::<f32, D2<5, 10>>::zeros();
            network.run(&dev, &five, &mut typed).unwrap();
            assert!(typed.as_slice().iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-5), "{threads} threads");
        }
    }

    /// Images of one run have the probabilities that each has alone, whatever their number, by typed and by other calls.
    #[test]
    fn images_at_once_have_the_probabilities_of_each_alone() {
        use kernel_gen_runtime::{D2, D4};
        let dev = Cpu::with_threads(2);
        let mut network = digits_batch::Network::load(&dev, digits_batch::WEIGHTS).unwrap();
        let (images, expected) = images_and_probabilities();
        let mut run = |n: usize| {
            let (mut all, pixels, into) = (vec![0.0; 10 * n], [n, 1, 8, 8], [n, 10]);
            let pixels = DynView::new(&images[..64 * n], &pixels);
            network.run_dyn(&dev, pixels, DynViewMut::new(&mut all, &into)).map(|()| all)
        };
        for n in 0..=40 {
            let probabilities = run(n).unwrap();
            assert!(probabilities.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-5), "{n} images");
        }
        let three = Tensor::<f32, D4<3, 1, 8, 8>>::from_slice(&images[..192]).unwrap();
        let mut typed = Tensor::<f32, D2<3, 10>>::zeros();
        let dynamic = run(3).unwrap();
        network.run(&dev, &three, &mut typed).unwrap();
        assert_eq!(typed.as_slice(), dynamic);
        let one = Tensor::<f32, D4<1, 1, 8, 8>>::from_slice(&images[..64]).unwrap();
        let mut alone = Tensor::<f32, D2<1, 10>>::zeros();
        network.run(&dev, &one, &mut alone).unwrap();
        assert!(alone.as_slice().iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-5));
        let many = vec![0.0; 64 * 65];
        let refused =
            network.run_dyn(&dev, DynView::new(&many, &[65, 1, 8, 8]), DynViewMut::new(&mut vec![0.0; 650], &[65, 10]));
        assert_eq!(
            refused.unwrap_err().to_string(),
            "`digits_batch` is not declared for image [65, 1, 8, 8] probabilities [65, 10]; the spec declares:\n  \
             image [1, 1, 8, 8], probabilities [1, 10]\n  image [2..64, 1, 8, 8], probabilities [2..64, 10]"
        );
        let fewer =
            network.run_dyn(&dev, DynView::new(&many[..128], &[2, 1, 8, 8]), DynViewMut::new(&mut [0.0; 30], &[3, 10]));
        assert!(fewer.unwrap_err().to_string().contains("not declared for image [2, 1, 8, 8] probabilities [3, 10]"));
    }

    #[test]
    fn weights_of_something_else_are_refused() {
        let error = Network::load(&Cpu::with_threads(1), &WEIGHTS[1..]).unwrap_err().to_string();
        assert_eq!(error, "the weights of `digits` cannot be used: they are no weights that kernel-gen wrote");
    }
}

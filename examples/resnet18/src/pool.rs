//! The two pooling layers, in plain Rust on the device's threads. They move bytes and compute next to nothing.

use kernel_gen_runtime::{Cpu, D2, D4, Tensor};
use std::sync::Mutex;

/// Writes each of `parts` equal pieces of `out` on the device's threads.
fn in_parts(dev: &Cpu, out: &mut [f32], parts: usize, write: impl Fn(usize, &mut [f32]) + Sync) {
    // Each piece is locked once, by the thread that writes it.
    let size = out.len() / parts;
    let pieces: Vec<Mutex<&mut [f32]>> = out.chunks_exact_mut(size).map(Mutex::new).collect();
    dev.split(parts, &|_, range| {
        for i in range {
            write(i, &mut pieces[i].lock().expect("no other thread has had this piece"));
        }
    });
}

/// The larger of two numbers; one instruction, since it need not care for NaN.
fn max(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}

/// The largest of 3 x 3 neighbours, stride 2, padding 1, channel by channel.
pub fn max_pool<const C: usize, const H: usize, const OH: usize>(
    dev: &Cpu,
    x: &Tensor<f32, D4<1, C, H, H>>,
    y: &mut Tensor<f32, D4<1, C, OH, OH>>,
) {
    const { assert!(H.is_multiple_of(2) && OH == H / 2, "every output has its middle pixel inside") };
    let x = x.as_slice();
    in_parts(dev, y.as_mut_slice(), C, |c, plane| {
        let row = |h: usize| &x[(c * H + h) * H..][..H];
        for (oh, out) in plane.chunks_exact_mut(OH).enumerate() {
            // The first row above the image repeats the one below it, which changes no maximum.
            let (above, middle, below) = (row((2 * oh).max(1) - 1), row(2 * oh), row(2 * oh + 1));
            let mut tall = [0.0; H];
            for (i, t) in tall.iter_mut().enumerate() {
                *t = max(max(above[i], middle[i]), below[i]);
            }
            let mut left = tall[0];
            for (o, pair) in out.iter_mut().zip(tall.as_chunks::<2>().0) {
                *o = max(max(left, pair[0]), pair[1]);
                left = pair[1];
            }
        }
    });
}

/// The mean of each channel.
pub fn average_pool<const C: usize, const H: usize>(x: &Tensor<f32, D4<1, C, H, H>>, y: &mut Tensor<f32, D2<1, C>>) {
    let planes = x.as_slice().chunks_exact(H * H);
    for (mean, plane) in y.as_mut_slice().iter_mut().zip(planes) {
        *mean = plane.iter().sum::<f32>() / (H * H) as f32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_neighbour_is_found_at_every_edge() {
        let dev = Cpu::with_threads(2);
        let x = Tensor::<f32, D4<1, 3, 8, 8>>::from_fn(|i| ((i * 37) % 101) as f32 - 120.0);
        let mut y = Tensor::<f32, D4<1, 3, 4, 4>>::zeros();
        max_pool(&dev, &x, &mut y);
        for (i, found) in y.as_slice().iter().enumerate() {
            let (c, oh, ow) = (i / 16, i / 4 % 4, i % 4);
            let mut expected = f32::NEG_INFINITY;
            for h in (2 * oh).saturating_sub(1)..2 * oh + 2 {
                for w in (2 * ow).saturating_sub(1)..2 * ow + 2 {
                    expected = expected.max(x.as_slice()[(c * 8 + h) * 8 + w]);
                }
            }
            assert_eq!(*found, expected, "{c} {oh} {ow}");
        }
    }

    #[test]
    fn the_mean_is_that_of_the_channel() {
        let x = Tensor::<f32, D4<1, 2, 3, 3>>::from_fn(|i| i as f32);
        let mut y = Tensor::<f32, D2<1, 2>>::zeros();
        average_pool(&x, &mut y);
        assert_eq!(y.as_slice(), [4.0, 13.0]);
    }
}

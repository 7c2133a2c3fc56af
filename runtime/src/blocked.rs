//! The way into a blocked layout and out of it.
//!
//! Kernels of `layout = "NCHW16c"` take and give images as `[n, c / 16, h, w, 16]`: sixteen channels of a pixel lie side by side.
//! A chain of them keeps its activations so, and only what comes in at its start and goes out at its end changes its layout.

use crate::{Element, Error, Result};

/// Copies an image `[n, c, h, w]` to `[n, c / block, h, w, block]`, for `NCHW16c` with a `block` of 16. A last block that is not
/// full is filled up with zeros.
///
/// ```
/// use kernel_gen_runtime::{block_channels, unblock_channels};
/// let plain: Vec<f32> = (0..12).map(|i| i as f32).collect();
/// let mut blocked = [0.0; 12];
/// block_channels(&plain, [1, 4, 1, 3], 4, &mut blocked)?;
/// assert_eq!(blocked[..4], [0.0, 3.0, 6.0, 9.0]);
/// let mut back = [0.0; 12];
/// unblock_channels(&blocked, [1, 4, 1, 3], 4, &mut back)?;
/// assert_eq!(back[..], plain);
/// # Ok::<(), kernel_gen_runtime::Error>(())
/// ```
///
/// # Errors
/// [`Error::Length`] if a slice has not as many elements as its shape.
///
/// # Panics
/// If `block` is 0.
pub fn block_channels<T: Element>(x: &[T], shape: [usize; 4], block: usize, y: &mut [T]) -> Result<()> {
    check(shape, block, x.len(), y.len())?;
    for (b, place) in places(shape, block).enumerate() {
        y[b] = place.map_or(T::default(), |p| x[p]);
    }
    Ok(())
}

/// Copies an image `[n, c / block, h, w, block]` to `[n, c, h, w]`: the other way of [`block_channels`], with the same shape, that of
/// the plain image. What fills up the last block is left out.
///
/// # Errors
/// [`Error::Length`] if a slice has not as many elements as its shape.
///
/// # Panics
/// If `block` is 0.
pub fn unblock_channels<T: Element>(x: &[T], shape: [usize; 4], block: usize, y: &mut [T]) -> Result<()> {
    check(shape, block, y.len(), x.len())?;
    for (b, place) in places(shape, block).enumerate() {
        if let Some(p) = place {
            y[p] = x[b];
        }
    }
    Ok(())
}

/// Holds the lengths of a plain and a blocked image against their shapes.
fn check([n, c, h, w]: [usize; 4], block: usize, plain: usize, blocked: usize) -> Result<()> {
    let dims = [n, c.div_ceil(block), h, w, block];
    let held = |shape: &[usize], elements: usize| match shape.iter().try_fold(1usize, |a, b| a.checked_mul(*b)) {
        Some(wanted) if wanted == elements => Ok(()),
        _ => Err(Error::Length { shape: shape.to_vec(), elements }),
    };
    held(&[n, c, h, w], plain)?;
    held(&dims, blocked)
}

/// For each element of the blocked image, in order, its place in the plain one; none for what fills up the last block.
fn places([n, c, h, w]: [usize; 4], block: usize) -> impl Iterator<Item = Option<usize>> {
    let pixels = h * w;
    (0..n).flat_map(move |image| {
        (0..c.div_ceil(block)).flat_map(move |outer| {
            (0..pixels).flat_map(move |pixel| {
                (0..block).map(move |inner| {
                    let channel = outer * block + inner;
                    (channel < c).then_some((image * c + channel) * pixels + pixel)
                })
            })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_lie_side_by_side_and_the_last_block_is_filled_with_zeros() {
        let x: Vec<f32> = (0..2 * 3 * 4).map(|i| i as f32).collect();
        let mut y = [9.0; 2 * 2 * 4 * 2];
        block_channels(&x, [2, 3, 2, 2], 2, &mut y).unwrap();
        // Image 0, channels 0 and 1 of each pixel, then channel 2 and nothing.
        assert_eq!(y[..8], [0.0, 4.0, 1.0, 5.0, 2.0, 6.0, 3.0, 7.0]);
        assert_eq!(y[8..16], [8.0, 0.0, 9.0, 0.0, 10.0, 0.0, 11.0, 0.0]);
        let mut back = vec![0.0; x.len()];
        unblock_channels(&y, [2, 3, 2, 2], 2, &mut back).unwrap();
        assert_eq!(back, x);
    }

    #[test]
    fn a_slice_of_another_length_is_named_with_its_shape() {
        let error = block_channels(&[0.0f32; 11], [1, 3, 2, 2], 16, &mut [0.0; 64]).unwrap_err();
        assert_eq!(error, Error::Length { shape: vec![1, 3, 2, 2], elements: 11 });
        let error = unblock_channels(&[0.0f32; 63], [1, 3, 2, 2], 16, &mut [0.0; 12]).unwrap_err();
        assert_eq!(error, Error::Length { shape: vec![1, 1, 2, 2, 16], elements: 63 });
    }
}

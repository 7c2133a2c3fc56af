//! PNG through the `png` crate: every colour type and depth comes in as 8-bit RGB.

use crate::error::check_size;
use crate::{Picture, PictureError};
use png::{BitDepth, ColorType, Compression, Decoder, Encoder, Filter, Transformations};

fn failed(cause: impl std::fmt::Display) -> PictureError {
    PictureError::Png(cause.to_string())
}

pub(crate) fn decode(bytes: &[u8]) -> Result<Picture, PictureError> {
    let mut decoder = Decoder::new(std::io::Cursor::new(bytes));
    // Palettes and small depths become 8 bits a channel, and so do 16 bits.
    decoder.set_transformations(Transformations::normalize_to_color8());
    let mut reader = decoder.read_info().map_err(failed)?;
    let (width, height) = reader.info().size();
    let (width, height) = (width as usize, height as usize);
    check_size(width, height)?;
    let size = reader.output_buffer_size().ok_or(PictureError::Size { width, height })?;
    let mut data = vec![0; size];
    let frame = reader.next_frame(&mut data).map_err(failed)?;
    let samples = frame.color_type.samples();
    let pixels = data
        .chunks_exact(samples)
        .map(|p| match *p {
            [grey] => [grey; 3],
            [grey, alpha] => over_white([grey; 3], alpha),
            [r, g, b] => [r, g, b],
            [r, g, b, alpha] => over_white([r, g, b], alpha),
            _ => unreachable!("a PNG pixel has one to four samples"),
        })
        .take(width * height)
        .collect();
    Ok(Picture { width, height, pixels })
}

/// A partly transparent pixel on white paper.
fn over_white(rgb: [u8; 3], alpha: u8) -> [u8; 3] {
    let alpha = u32::from(alpha);
    rgb.map(|v| ((u32::from(v) * alpha + 255 * (255 - alpha) + 127) / 255) as u8)
}

pub(crate) fn encode(picture: &Picture) -> Result<Vec<u8>, PictureError> {
    let mut bytes = vec![];
    let mut encoder = Encoder::new(&mut bytes, picture.width as u32, picture.height as u32);
    encoder.set_color(ColorType::Rgb);
    encoder.set_depth(BitDepth::Eight);
    encoder.set_compression(Compression::High);
    encoder.set_filter(Filter::Adaptive);
    let mut writer = encoder.write_header().map_err(failed)?;
    writer.write_image_data(picture.pixels.as_flattened()).map_err(failed)?;
    writer.finish().map_err(failed)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_survives_a_png_file() {
        let picture = Picture::from_fn(13, 7, |x, y| [(x * 19) as u8, (y * 36) as u8, (x * y) as u8]);
        assert_eq!(decode(&encode(&picture).unwrap()).unwrap(), picture);
    }

    #[test]
    fn grey_transparent_and_16_bit_files_become_rgb() {
        let file = |colour, depth, data: &[u8]| {
            let mut bytes = vec![];
            let mut encoder = Encoder::new(&mut bytes, 2, 1);
            encoder.set_color(colour);
            encoder.set_depth(depth);
            encoder.write_header().unwrap().write_image_data(data).unwrap();
            decode(&bytes).unwrap().pixels
        };
        assert_eq!(file(ColorType::Grayscale, BitDepth::Eight, &[3, 200]), [[3; 3], [200; 3]]);
        assert_eq!(file(ColorType::Grayscale, BitDepth::One, &[0b0100_0000]), [[0; 3], [255; 3]]);
        assert_eq!(file(ColorType::Rgba, BitDepth::Eight, &[1, 2, 3, 255, 9, 9, 9, 0]), [[1, 2, 3], [255; 3]]);
        let deep = [7, 0, 8, 0, 9, 0, 250, 0, 251, 0, 252, 0];
        assert_eq!(file(ColorType::Rgb, BitDepth::Sixteen, &deep), [[7, 8, 9], [250, 251, 252]]);
    }

    #[test]
    fn a_torn_file_is_an_error() {
        let picture = Picture::filled(40, 40, [1, 2, 3]);
        let bytes = encode(&picture).unwrap();
        for length in [8, 20, 40, bytes.len() - 20] {
            assert!(matches!(decode(&bytes[..length]), Err(PictureError::Png(_))), "{length} bytes");
        }
    }
}

//! Pictures for the examples: read PNG and PPM, write PNG, resize and crop; and the scene that the examples use as
//! their photo.

mod caption;
mod error;
mod png_file;
mod ppm;
mod resize;
pub mod scene;

pub use error::PictureError;

use std::path::Path;

/// An RGB picture of 8 bits a channel, rows from the top.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Picture {
    /// Columns.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// `width * height` pixels, row by row.
    pub pixels: Vec<[u8; 3]>,
}

impl Picture {
    /// A picture of one colour.
    pub fn filled(width: usize, height: usize, colour: [u8; 3]) -> Picture {
        Picture { width, height, pixels: vec![colour; width * height] }
    }

    /// Each pixel from its column and row.
    pub fn from_fn(width: usize, height: usize, mut pixel: impl FnMut(usize, usize) -> [u8; 3]) -> Picture {
        let pixels = (0..width * height).map(|i| pixel(i % width, i / width)).collect();
        Picture { width, height, pixels }
    }

    /// Reads a PNG or a PPM file; which of the two, its first bytes say.
    pub fn read(path: &Path) -> Result<Picture, PictureError> {
        let bytes = std::fs::read(path).map_err(|cause| PictureError::io(path, cause))?;
        Picture::decode(&bytes).map_err(|cause| cause.in_file(path))
    }

    /// Decodes the bytes of a PNG or a PPM file.
    pub fn decode(bytes: &[u8]) -> Result<Picture, PictureError> {
        match bytes {
            [0x89, b'P', b'N', b'G', ..] => png_file::decode(bytes),
            [b'P', b'3' | b'6', ..] => ppm::decode(bytes),
            _ => Err(PictureError::UnknownFormat),
        }
    }

    /// Writes a PNG file.
    pub fn write_png(&self, path: &Path) -> Result<(), PictureError> {
        let bytes = png_file::encode(self)?;
        std::fs::write(path, bytes).map_err(|cause| PictureError::io(path, cause))
    }

    /// The pixel at a column and a row.
    pub fn at(&self, x: usize, y: usize) -> [u8; 3] {
        self.pixels[y * self.width + x]
    }

    /// The same picture in `width` x `height` pixels. Shrinking averages over all the pixels that become one.
    pub fn resized(&self, width: usize, height: usize) -> Picture {
        resize::resized(self, width, height)
    }

    /// A `width` x `height` piece whose top left pixel is `(left, top)`.
    ///
    /// # Panics
    /// When the piece is not inside of the picture.
    pub fn cropped(&self, left: usize, top: usize, width: usize, height: usize) -> Picture {
        assert!(left + width <= self.width && top + height <= self.height, "the piece is inside of the picture");
        Picture::from_fn(width, height, |x, y| self.at(left + x, top + y))
    }

    /// Copies `other` into this picture so that its top left pixel comes to `(left, top)`; what would lie outside is
    /// left out.
    pub fn paste(&mut self, other: &Picture, left: usize, top: usize) {
        let columns = other.width.min(self.width.saturating_sub(left));
        for y in 0..other.height.min(self.height.saturating_sub(top)) {
            let to = (top + y) * self.width + left;
            self.pixels[to..to + columns].copy_from_slice(&other.pixels[y * other.width..][..columns]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crop_and_paste_move_pixels_and_nothing_else() {
        let picture = Picture::from_fn(5, 4, |x, y| [x as u8, y as u8, 7]);
        let piece = picture.cropped(1, 2, 3, 2);
        assert_eq!(piece.pixels, [[1, 2, 7], [2, 2, 7], [3, 2, 7], [1, 3, 7], [2, 3, 7], [3, 3, 7]]);
        let mut sheet = Picture::filled(4, 3, [0; 3]);
        sheet.paste(&piece, 2, 2);
        assert_eq!((sheet.at(1, 2), sheet.at(2, 2), sheet.at(3, 2)), ([0; 3], [1, 2, 7], [2, 2, 7]));
    }

    #[test]
    fn a_file_that_is_no_picture_is_refused_by_name() {
        let error = Picture::decode(b"GIF89a").unwrap_err().to_string();
        assert_eq!(error, "neither a PNG nor a PPM file; convert it to one of them");
        let error = Picture::read(Path::new("/nonexistent/cat.png")).unwrap_err().to_string();
        assert!(error.starts_with("/nonexistent/cat.png: "), "{error}");
    }
}

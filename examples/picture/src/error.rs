//! Why a picture cannot be read or written.

use std::fmt;
use std::path::{Path, PathBuf};

/// Why a picture cannot be read or written.
#[derive(Debug)]
pub enum PictureError {
    /// The file cannot be read or written.
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        cause: std::io::Error,
    },
    /// The bytes are neither PNG nor PPM.
    UnknownFormat,
    /// The PNG decoder refuses the file.
    Png(String),
    /// The PPM file breaks off or holds something unexpected.
    Ppm(&'static str),
    /// A picture without pixels, or one of more than 2^28.
    Size {
        /// Its columns.
        width: usize,
        /// Its rows.
        height: usize,
    },
    /// One of the above, in this file.
    InFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        cause: Box<PictureError>,
    },
}

impl PictureError {
    pub(crate) fn io(path: &Path, cause: std::io::Error) -> PictureError {
        PictureError::Io { path: path.to_path_buf(), cause }
    }

    pub(crate) fn in_file(self, path: &Path) -> PictureError {
        PictureError::InFile { path: path.to_path_buf(), cause: Box::new(self) }
    }
}

impl fmt::Display for PictureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PictureError::Io { path, cause } => write!(f, "{}: {cause}", path.display()),
            PictureError::UnknownFormat => write!(f, "neither a PNG nor a PPM file; convert it to one of them"),
            PictureError::Png(cause) => write!(f, "not a PNG file that can be read: {cause}"),
            PictureError::Ppm(cause) => write!(f, "not a PPM file that can be read: {cause}"),
            PictureError::Size { width, height } => {
                write!(f, "a picture of {width} x {height} pixels; it must have at least one and at most 2^28")
            }
            PictureError::InFile { path, cause } => write!(f, "{}: {cause}", path.display()),
        }
    }
}

impl std::error::Error for PictureError {}

/// Refuses sizes that make no sense before memory is asked for.
pub(crate) fn check_size(width: usize, height: usize) -> Result<(), PictureError> {
    match width.checked_mul(height) {
        Some(1..=0x1000_0000) => Ok(()),
        _ => Err(PictureError::Size { width, height }),
    }
}

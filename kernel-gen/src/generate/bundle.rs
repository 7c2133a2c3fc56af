//! Bundles: the compiled code of one CUDA source for all devices that take it, in one file, which the runtime reads.
//!
//! The format is described in the runtime's `cuda/image.rs`. A bundle, and not one file an image, so that the wrappers
//! are the same bytes whichever compiler there was: what it could not make is missing inside of the file.

use crate::toolchain::cuda::{Arch, Code};

/// The bundle of what was compiled, or not compiled, from a source for an architecture.
pub fn of_code(code: &Code, source: &str, arch: Arch) -> Vec<u8> {
    let capability = (arch.capability / 10, arch.capability % 10);
    let image = |kind, bytes| Image { kind, capability, exact: arch.specific, bytes };
    let images = match code {
        Code::Packaged(artifact) | Code::Compiled(artifact) => {
            let cubin = artifact.cubin.as_deref().map(|bytes| image(ImageKind::Cubin, bytes));
            cubin.into_iter().chain([image(ImageKind::Ptx, artifact.ptx.as_bytes())]).collect()
        }
        Code::Source => vec![image(ImageKind::Source, source.as_bytes())],
        Code::Absent => vec![],
    };
    bundle(&images)
}

/// What an image is, as the runtime numbers it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ImageKind {
    /// Machine code.
    Cubin = 0,
    /// PTX.
    Ptx = 1,
    /// CUDA source, for NVRTC at first use.
    Source = 2,
}

/// An image of a bundle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Image<'a> {
    /// What it is.
    pub kind: ImageKind,
    /// Compute capability: major, minor.
    pub capability: (u32, u32),
    /// Whether it runs on this capability only.
    pub exact: bool,
    /// The code.
    pub bytes: &'a [u8],
}

/// Puts images into a bundle.
pub fn bundle(images: &[Image<'_>]) -> Vec<u8> {
    let header = 16 + 32 * images.len();
    let mut out = b"KGIMAGE1".to_vec();
    out.extend((images.len() as u32).to_le_bytes());
    out.extend(0u32.to_le_bytes());
    let mut offset = header as u64;
    for image in images {
        let (major, minor) = image.capability;
        for field in [image.kind as u32, major, minor, u32::from(image.exact)] {
            out.extend(field.to_le_bytes());
        }
        out.extend(offset.to_le_bytes());
        out.extend((image.bytes.len() as u64).to_le_bytes());
        offset += image.bytes.len() as u64;
    }
    for image in images {
        out.extend(image.bytes);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_is_the_bytes_that_the_runtime_reads() {
        let cubin = Image { kind: ImageKind::Cubin, capability: (9, 0), exact: true, bytes: b"abc" };
        let ptx = Image { kind: ImageKind::Ptx, capability: (8, 0), exact: false, bytes: b"de" };
        let bytes = bundle(&[cubin, ptx]);
        assert_eq!(bytes.len(), 16 + 2 * 32 + 5);
        assert_eq!(&bytes[..16], b"KGIMAGE1\x02\0\0\0\0\0\0\0");
        assert_eq!(&bytes[16..32], b"\0\0\0\0\x09\0\0\0\0\0\0\0\x01\0\0\0");
        assert_eq!(&bytes[32..48], b"\x50\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0");
        assert_eq!(&bytes[48..64], b"\x01\0\0\0\x08\0\0\0\0\0\0\0\0\0\0\0");
        assert_eq!(&bytes[64..80], b"\x53\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0");
        assert_eq!(&bytes[80..], b"abcde");
        assert_eq!(bundle(&[]).len(), 16);
    }
}

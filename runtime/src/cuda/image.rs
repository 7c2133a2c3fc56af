//! Bundles of compiled code: which of their images a device runs.
//!
//! The generator writes one bundle for each program:
//!
//! ```text
//! "KGIMAGE1"                                     8 bytes
//! number of images                               u32, little-endian, as all numbers
//! 0                                              u32
//! for each image: kind, major, minor, exact      u32 each: 0 cubin, 1 PTX, 2 CUDA source; exact is 0 or 1
//!                 offset, length                 u64 each, from the start of the bundle
//! the images
//! ```
//!
//! A cubin runs on devices of its major version whose minor version is not lower; PTX is translated by the driver for
//! any device of its capability or above; source is compiled by NVRTC for the very device.

/// What an image is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Machine code.
    Cubin,
    /// PTX, which the driver translates.
    Ptx,
    /// CUDA source.
    Source,
}

/// An image of a bundle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Image {
    pub(super) kind: Kind,
    pub(super) capability: (i32, i32),
    pub(super) exact: bool,
    pub(super) bytes: &'static [u8],
}

const MAGIC: &[u8; 8] = b"KGIMAGE1";
/// Bytes before the first image's fields, and of one image's fields.
const HEADER: usize = 16;
const FIELDS: usize = 32;

/// The images of a bundle. `None` if it is damaged.
pub(super) fn images(bundle: &'static [u8]) -> Option<Vec<Image>> {
    let u32_at = |at: usize| Some(u32::from_le_bytes(bundle.get(at..at + 4)?.try_into().ok()?));
    let u64_at = |at: usize| Some(u64::from_le_bytes(bundle.get(at..at + 8)?.try_into().ok()?));
    if bundle.get(..8)? != MAGIC {
        return None;
    }
    (0..u32_at(8)? as usize)
        .map(|i| {
            let at = HEADER + i * FIELDS;
            let kind = match u32_at(at)? {
                0 => Kind::Cubin,
                1 => Kind::Ptx,
                2 => Kind::Source,
                _ => return None,
            };
            let capability = (u32_at(at + 4)? as i32, u32_at(at + 8)? as i32);
            let offset = usize::try_from(u64_at(at + 16)?).ok()?;
            let end = offset.checked_add(usize::try_from(u64_at(at + 24)?).ok()?)?;
            Some(Image { kind, capability, exact: u32_at(at + 12)? != 0, bytes: bundle.get(offset..end)? })
        })
        .collect()
}

impl Image {
    /// Whether a device of this capability can run it.
    fn runs_on(&self, device: (i32, i32)) -> bool {
        match self.kind {
            _ if self.exact => device == self.capability,
            Kind::Cubin => device.0 == self.capability.0 && device.1 >= self.capability.1,
            Kind::Ptx | Kind::Source => device >= self.capability,
        }
    }

    /// The CUDA version whose drivers understand this PTX: what its `.version` line says.
    pub(super) fn ptx_needs(&self) -> Option<(i32, i32)> {
        let text = std::str::from_utf8(self.bytes).ok()?;
        let version = text.lines().find_map(|l| l.trim_start().strip_prefix(".version"))?;
        let (major, minor) = version.trim().split_once('.')?;
        let (major, minor): (i32, i32) = (major.parse().ok()?, minor.trim().parse().ok()?);
        // PTX 7.0 came with CUDA 11.0, 8.0 with 12.0, 9.0 with 13.0, and the minor versions in step, but that no PTX
        // came with CUDA 12.6. Source: "PTX ISA", section "Release Notes".
        let skipped = i32::from(major == 8 && minor >= 6);
        Some((major + 4, minor + skipped))
    }
}

/// The images that a device can run, the best first: machine code before PTX before source, what was made for the very
/// device before what was made for others, and the higher capability before the lower.
pub(super) fn usable(images: Vec<Image>, device: (i32, i32)) -> Vec<Image> {
    let mut usable: Vec<Image> = images.into_iter().filter(|i| i.runs_on(device)).collect();
    usable.sort_by_key(|i| (i.kind as u32, std::cmp::Reverse((i.exact, i.capability))));
    usable
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bundle of these images, each of one byte: its position.
    fn bundle(images: &[(u32, u32, u32, u32)]) -> &'static [u8] {
        let mut out = MAGIC.to_vec();
        out.extend((images.len() as u32).to_le_bytes());
        out.extend([0; 4]);
        let data = (HEADER + images.len() * FIELDS) as u64;
        for (i, (kind, major, minor, exact)) in images.iter().enumerate() {
            for field in [kind, major, minor, exact] {
                out.extend(field.to_le_bytes());
            }
            out.extend((data + i as u64).to_le_bytes());
            out.extend(1u64.to_le_bytes());
        }
        out.extend((0..images.len()).map(|i| i as u8));
        out.leak()
    }

    /// Positions of the images that a device can run, the best first.
    fn order(bundle: &'static [u8], device: (i32, i32)) -> Vec<u8> {
        usable(images(bundle).unwrap(), device).iter().map(|i| i.bytes[0]).collect()
    }

    #[test]
    fn the_best_image_comes_first() {
        // sm_80 and sm_90a cubins, PTX for 8.0 and 9.0, and a cubin for 9.0 without extras.
        let all = bundle(&[(0, 8, 0, 0), (0, 9, 0, 1), (1, 8, 0, 0), (1, 9, 0, 0), (0, 9, 0, 0)]);
        assert_eq!(order(all, (9, 0)), [1, 4, 3, 2]);
        assert_eq!(order(all, (8, 6)), [0, 2]);
        assert_eq!(order(all, (12, 0)), [3, 2]);
        assert!(order(all, (7, 5)).is_empty());
    }

    #[test]
    fn a_damaged_bundle_is_no_bundle() {
        let good = bundle(&[(0, 8, 0, 0)]);
        assert_eq!(images(good).unwrap()[0].bytes, [0]);
        for end in 0..good.len() {
            assert_eq!(images(&good[..end]), None, "cut at {end}");
        }
        assert_eq!(images(bundle(&[(7, 8, 0, 0)])), None);
    }

    #[test]
    fn ptx_says_what_driver_it_needs() {
        let ptx =
            |text: &'static str| Image { kind: Kind::Ptx, capability: (8, 0), exact: false, bytes: text.as_bytes() };
        assert_eq!(ptx("//\n.version 7.1\n.target sm_80\n").ptx_needs(), Some((11, 1)));
        assert_eq!(ptx(".version 9.0").ptx_needs(), Some((13, 0)));
        assert_eq!(ptx(".version 8.5").ptx_needs(), Some((12, 5)));
        assert_eq!(ptx(".version 8.7").ptx_needs(), Some((12, 8)));
        assert_eq!(ptx("nothing").ptx_needs(), None);
    }
}

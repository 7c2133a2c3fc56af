//! PPM: the plain (`P3`) and the raw (`P6`) form, up to 16 bits a channel.

use crate::error::check_size;
use crate::{Picture, PictureError};

/// Reads numbers and the raw samples behind them.
struct Scanner<'a> {
    rest: &'a [u8],
}

impl Scanner<'_> {
    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    /// The next number; spaces and comments before it are skipped, and the one byte after it is taken.
    fn number(&mut self) -> Result<usize, PictureError> {
        let mut byte = self.next();
        loop {
            match byte {
                Some(b'#') => {
                    while !matches!(byte, None | Some(b'\n')) {
                        byte = self.next();
                    }
                }
                Some(b) if b.is_ascii_whitespace() => byte = self.next(),
                _ => break,
            }
        }
        let mut value = None;
        while let Some(digit @ b'0'..=b'9') = byte {
            let next = value.unwrap_or(0usize).checked_mul(10).and_then(|v| v.checked_add(usize::from(digit - b'0')));
            value = Some(next.ok_or(PictureError::Ppm("a number is too large"))?);
            byte = self.next();
        }
        value.ok_or(PictureError::Ppm("a number is missing"))
    }

    /// The next sample of a raw file.
    fn sample(&mut self, two_bytes: bool) -> Result<usize, PictureError> {
        let mut byte = || self.next().map(usize::from).ok_or(PictureError::Ppm("it ends before its last pixel"));
        let first = byte()?;
        if two_bytes { Ok(first * 256 + byte()?) } else { Ok(first) }
    }
}

pub(crate) fn decode(bytes: &[u8]) -> Result<Picture, PictureError> {
    let raw = bytes.get(1) == Some(&b'6');
    let mut scanner = Scanner { rest: bytes.get(2..).unwrap_or(&[]) };
    let (width, height, maximum) = (scanner.number()?, scanner.number()?, scanner.number()?);
    check_size(width, height)?;
    if !(1..=65535).contains(&maximum) {
        return Err(PictureError::Ppm("its largest value is not between 1 and 65535"));
    }
    let mut sample = || -> Result<u8, PictureError> {
        let value = if raw { scanner.sample(maximum > 255)? } else { scanner.number()? };
        if value > maximum {
            return Err(PictureError::Ppm("a sample is above the largest value that its header names"));
        }
        Ok(((value * 255 + maximum / 2) / maximum) as u8)
    };
    // Grown pixel by pixel: a short file that claims to be large costs no memory.
    let mut pixels = vec![];
    for _ in 0..width * height {
        pixels.push([sample()?, sample()?, sample()?]);
    }
    Ok(Picture { width, height, pixels })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_and_depths_are_read() {
        let expected = Picture { width: 2, height: 1, pixels: vec![[255, 0, 128], [1, 2, 3]] };
        assert_eq!(decode(b"P3\n# two pixels\n2 1\n255\n255 0 128\n1 2 3\n").unwrap(), expected);
        assert_eq!(decode(b"P6 2 1 255\n\xff\x00\x80\x01\x02\x03").unwrap(), expected);
        let deep = decode(b"P6 1 1 65535\n\xff\xff\x00\x00\x80\x80").unwrap();
        assert_eq!(deep.pixels, [[255, 0, 128]]);
    }

    #[test]
    fn malformed_files_are_refused_with_a_reason() {
        for (bytes, text) in [
            (&b"P6"[..], "a number is missing"),
            (b"P6 2 x 255\n", "a number is missing"),
            (b"P6 0 1 255\n", "0 x 1 pixels"),
            (b"P6 99999999999 99999999999 255\n", "at most 2^28"),
            (b"P6 99999999999999999999999 1 255\n", "too large"),
            (b"P6 1 1 70000\n", "between 1 and 65535"),
            (b"P6 16384 16384 255\nabc", "ends before its last pixel"),
            (b"P3 1 1 15\n1 2 16\n", "above the largest value"),
        ] {
            let message = decode(bytes).unwrap_err().to_string();
            assert!(message.contains(text), "{message}");
        }
    }
}

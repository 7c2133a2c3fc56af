//! Hashes of contents: long enough that two sources with one hash are not worth a thought.

use crate::stable::fnv1a_128;
use std::fmt;
use std::str::FromStr;

/// A hash of 128 bits that never changes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ContentHash(u128);

impl ContentHash {
    /// The hash of bytes.
    pub fn of(bytes: &[u8]) -> ContentHash {
        ContentHash(fnv1a_128(bytes))
    }

    /// The hash of several texts; where one ends and the next begins counts.
    pub fn of_parts(parts: &[&[u8]]) -> ContentHash {
        let mut all = vec![];
        for part in parts {
            all.extend((part.len() as u64).to_le_bytes());
            all.extend(*part);
        }
        ContentHash::of(&all)
    }

    /// The first twelve digits: enough for the name of a file.
    pub fn short(self) -> String {
        self.to_string()[..12].to_string()
    }
}

impl fmt::Display for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl FromStr for ContentHash {
    type Err = ();

    fn from_str(text: &str) -> Result<ContentHash, ()> {
        let digits = text.len() == 32 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        if digits { u128::from_str_radix(text, 16).map(ContentHash).map_err(|_| ()) } else { Err(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_print_and_parse_and_know_where_parts_end() {
        let hash = ContentHash::of_parts(&[b"ab", b"c"]);
        assert_eq!(hash.to_string().parse(), Ok(hash));
        assert_ne!(hash, ContentHash::of_parts(&[b"a", b"bc"]));
        for wrong in ["", "0", "+0000000000000000000000000000000", "ABCDEF00000000000000000000000000"] {
            assert_eq!(wrong.parse::<ContentHash>(), Err(()));
        }
    }
}

//! Schedule primitives: what they compute stays the same, and what they refuse.

mod random;
mod refusals;
mod sequences;
mod tutorials;

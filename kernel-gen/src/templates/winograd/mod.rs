//! What the Winograd templates of all devices share: the matrices, which of them a precision class allows, and their
//! application to rows and columns of a tile.

pub(super) mod filter;
pub(super) mod transform;

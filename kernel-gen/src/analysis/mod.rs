//! Facts about kernels: ranges, normal forms, footprints, legality.

pub mod affine;
pub mod footprint;
pub mod range;
pub mod simplify;
pub mod verify;

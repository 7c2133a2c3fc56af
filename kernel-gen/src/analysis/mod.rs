//! Facts about kernels: ranges, normal forms, footprints, legality.

pub mod affine;
pub mod dependency;
pub mod footprint;
pub(crate) mod mbarrier;
pub(crate) mod order;
pub mod range;
pub(crate) mod remote;
pub mod simplify;
pub mod verify;

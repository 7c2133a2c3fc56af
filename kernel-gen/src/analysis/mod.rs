//! Facts about kernels: ranges, footprints, legality.

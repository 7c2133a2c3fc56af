//! The builder that a `build.rs` calls.

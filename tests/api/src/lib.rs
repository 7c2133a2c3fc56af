//! Nothing; `tests/api.rs` holds what is public in each crate against `NAME.txt` beside this folder.

//! What generated code links.

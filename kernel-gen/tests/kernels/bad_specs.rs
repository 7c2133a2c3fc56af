//! Every malformed spec of `specs/filetests/bad-specs` gets exactly the diagnostics beside it.
//!
//! `KERNEL_GEN_BLESS=1 cargo test --test kernels bad_specs::` writes what came out; read the difference before you commit it.

use crate::told;
use kernel_gen::spec::Spec;

#[test]
fn malformed_specs_are_refused_with_their_lines_causes_and_help() {
    told::as_expected("bad-specs", &["toml"], 40, |bytes, file| {
        let text = std::str::from_utf8(bytes).expect("specs of the tests are text");
        Spec::parse(text, file).err().unwrap_or_default()
    });
}

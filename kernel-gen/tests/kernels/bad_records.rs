//! Every malformed record of `specs/filetests/bad-records` gets exactly the diagnostics beside it.
//!
//! `KERNEL_GEN_BLESS=1 cargo test --test kernels bad_records::` writes what came out; read the difference before you commit it.

use crate::told;
use kernel_gen::records::parse;

#[test]
fn malformed_records_are_refused_with_their_lines_causes_and_help() {
    told::as_expected("bad-records", &["toml"], 20, |bytes, file| {
        let text = std::str::from_utf8(bytes).expect("records of the tests are text");
        parse(text, file).err().unwrap_or_default()
    });
}

// The constructors of tables are not to be called in safe code.
//~ E0133 v2::phase
//~ E0133 v2::program
//~ E0133 v2::pack
//~ E0133 v2::variant
//~ E0133 v2::entry
//~ E0133 cuda::program
//~ E0133 cuda::pack
//~ E0133 cuda::variant
use kernel_gen_runtime::Isa;
use kernel_gen_runtime::cuda::{Arch, Slot};
use kernel_gen_runtime::generated::v2::{self, About, Choice, Phase, Program, Variant, cuda};

unsafe fn c(_: *const *mut u8, _: *mut u8, _: i64, _: i64, _: i64) {}

static SLOT: Slot = Slot::new();

fn tables(about: About, choice: Choice, phases: &'static [Phase], variants: &'static [Variant], arch: Arch) {
    let _ = v2::phase(c, 1, None);
    let program: Program = v2::program(phases, 0, 0);
    let _ = v2::pack(0, 0, program);
    let _ = v2::variant(Isa::LOWEST, 1, todo!(), &[], choice, "");
    let _ = v2::entry(about, &[], None, None, variants, &[]);
    let program: kernel_gen_runtime::cuda::Program = cuda::program(&[], &SLOT, &[], &[], 0);
    let _ = cuda::pack(0, 0, program);
    let _ = cuda::variant(arch, 1, todo!(), &[], 1, choice);
}

fn main() {}

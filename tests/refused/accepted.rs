// A table by the unsafe constructors compiles: what is refused beside it is not refused for another reason.
use kernel_gen_runtime::dispatch::Entry;
use kernel_gen_runtime::generated::v2;
use kernel_gen_runtime::{Cpu, DType, Isa};

unsafe fn nothing(_: *const *mut u8, _: *mut u8, _: i64, _: i64, _: i64) {}

const ABOUT: v2::About = v2::About { name: "nothing", workload: "", flops: 0, bytes: 0, no_code: "" };
const CHOICE: v2::Choice = v2::Choice { template: "", config: "", origin: "", origin_detail: "", cost_us: None };
static ENTRY: Entry = unsafe {
    v2::entry(
        ABOUT,
        &[v2::param("y", DType::F32, &[4], v2::Access::Write)],
        None,
        None,
        &[v2::variant(Isa::LOWEST, 1, v2::program(&[v2::phase(nothing, 1, None)], 0, 0), &[], CHOICE, "")],
        kernel_gen_runtime::cuda_table!(&[]),
    )
};

fn main() {
    let mut y = [0.0f32; 4];
    ENTRY.launch(&Cpu::with_threads(1), &[kernel_gen_runtime::dispatch::Arg::write(&mut y)]).unwrap();
    let _ = ENTRY.params()[0].shape();
}

//! CUDA of kernels that only a GPU can say: it compiles for its architecture, and its machine code is what it should be.

use kernel_gen::analysis::verify::verify;
use kernel_gen::emit::cuda::{Arch, CudaOptions, CudaSource, emit};
use kernel_gen::ir::DType;
use kernel_gen::ir::Kernel;
use kernel_gen::lower::{LowerOptions, lower};
use kernel_gen::target::Target;
use kernel_gen::templates::Template;
use kernel_gen::templates::cuda::wgmma::{WgmmaConv2d, WgmmaGemm};
use kernel_gen::workload::{Matmul, Op, Workload};

fn cuda(kernel: Kernel, arch: &str) -> CudaSource {
    let target = Target::find(arch).unwrap();
    let name = kernel.name.clone();
    let verified = verify(kernel, &target.limits()).unwrap_or_else(|f| panic!("{}", f[0]));
    let lowered = lower(verified, &LowerOptions::cuda()).unwrap_or_else(|e| panic!("{e}"));
    let options =
        CudaOptions { arch: Arch::of(target).unwrap(), symbol: name, comment: "A test.".into(), min_blocks: None };
    let cuda = emit(&lowered, &options).unwrap_or_else(|e| panic!("{e}\n{}", lowered.kernel()));
    if let Some(folder) = std::env::var_os("KERNEL_GEN_KEEP_CUDA") {
        let name = format!("{}-{:08x}.cu", options.symbol, kernel_gen::stable::fnv1a(cuda.source.as_bytes()) as u32);
        std::fs::write(std::path::Path::new(&folder).join(name), &cuda.source).unwrap();
    }
    cuda
}

#[test]
fn dump() {
    let target = Target::find("sm_90a").unwrap();
    for (m, n, k, ta, tb) in
        [(128, 256, 4096, false, true), (128, 256, 4096, true, false), (100, 200, 72, false, false)]
    {
        let op = Op::Matmul(Matmul { batch: 1, m, n, k, trans_a: ta, trans_b: tb });
        let w = Workload { dtype: DType::F16, out_dtype: DType::F16, ..Workload::f32(op) };
        let config =
            WgmmaGemm.default_config(&w, target).unwrap().with("bn", 256).with("consumers", 2).with("stages", 4);
        let s = WgmmaGemm.schedule(&w, target, &config).unwrap();
        cuda(s.schedule.kernel, "sm_90a");
    }
}

#[test]
fn ring() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../specs/filetests/hopper");
    let text = std::fs::read_to_string(folder.join("hopper_ring.kg")).unwrap();
    cuda(kernel_gen::ir::parse::parse(&text).unwrap(), "sm_90a");
}

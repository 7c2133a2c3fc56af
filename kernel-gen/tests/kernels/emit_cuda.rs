//! CUDA of kernels that only a GPU can say: the text is what the files say, and every compiler there is takes it without
//! complaint.

use crate::cuda_on_cpu;
use kernel_gen::analysis::verify::verify;
use kernel_gen::emit::cuda::{Arch, CudaOptions, CudaSource, EmitError, Param, TensorBase, TensorMap, emit};
use kernel_gen::interp::{self, Mode};
use kernel_gen::ir::{DType, Kernel, parse::parse};
use kernel_gen::lower::{LowerOptions, lower};
use kernel_gen::space::Config;
use kernel_gen::target::Target;
use kernel_gen::templates::Template;
use kernel_gen::templates::cuda::wgmma::{WgmmaConv2d, WgmmaGemm};
use kernel_gen::toolchain::cuda::{Environment, Found, Missing, Options, Request, find};
use kernel_gen::workload::{Conv2d, ConvLayout, Matmul, Op, Workload};
use std::fs;
use std::path::{Path, PathBuf};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../specs/filetests").join(name)
}

fn read(path: &Path) -> Kernel {
    let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    parse(&text).unwrap_or_else(|e| panic!("{}:{e}", path.display()))
}

/// The CUDA of a kernel for an architecture.
fn cuda(kernel: &Kernel, arch: &str) -> Result<CudaSource, EmitError> {
    let target = Target::find(arch).unwrap();
    let verified = verify(kernel.clone(), &target.limits()).unwrap_or_else(|f| panic!("{}", f[0]));
    let lowered = lower(verified, &LowerOptions::of(target)).unwrap_or_else(|e| panic!("{e}"));
    let comment = "Expected of a file test.".into();
    emit(
        &lowered,
        &CudaOptions { arch: Arch::of(target).unwrap(), symbol: kernel.name.clone(), comment, min_blocks: None },
    )
}

/// Compiles the source; without a compiler the test says so and is none. NVRTC 13 makes nothing for Volta: what is written for
/// it is compiled for Turing, which runs it too.
fn compiles(cuda: &CudaSource) {
    let arch = Arch { capability: cuda.arch.capability.max(75), ..cuda.arch };
    let compiler = match find(&Environment::of_process(), &[arch], Missing::Refuse) {
        Ok(Found::Compiler(compiler)) => compiler,
        _ => return eprintln!("[SKIP] part: {} for {arch}: there is no CUDA compiler", cuda.symbol),
    };
    let request = Request::new(&cuda.symbol, &cuda.source, arch);
    let options = Options { lowest_ptx: false, ..Options::default() };
    let made = compiler.compile(&request, &options, None).unwrap_or_else(|e| panic!("{e}\n{}", cuda.source));
    assert_eq!(made.log.remarks, Vec::<String>::new(), "{}", cuda.source);
    for r in &made.log.kernels {
        assert!(!r.spills(), "{r:?}\n{}", cuda.source);
    }
}

/// Each file's first line names the architectures that it is emitted for; the first one's text lies beside it.
#[test]
fn the_emitted_cuda_is_what_the_files_say_and_compiles() {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder("emit-cuda")).unwrap().map(|e| e.unwrap().path()).collect();
    paths.retain(|p| p.extension().is_some_and(|e| e == "kernel"));
    paths.sort();
    assert!(paths.len() > 3);
    let mut failures = vec![];
    for path in paths {
        let text = fs::read_to_string(&path).unwrap();
        let archs =
            text.lines().next().and_then(|l| l.strip_prefix("; for ")).expect("the first line names architectures");
        for (i, arch) in archs.split_whitespace().enumerate() {
            let source = cuda(&read(&path), arch).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            compiles(&source);
            let beside = path.with_extension("cu");
            if i > 0 {
                continue;
            }
            if std::env::var_os("KERNEL_GEN_BLESS").is_some() {
                fs::write(&beside, &source.source).unwrap();
            }
            if fs::read_to_string(&beside).unwrap_or_default() != source.source {
                failures.push(format!("{}:\n{}", beside.display(), source.source));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Kernels of one warp's tensor cores whose emitted source is checked in.
fn emitted() -> impl Iterator<Item = PathBuf> {
    let names = [
        "warp-halves",
        "warp-half-sums",
        "warp-product",
        "warp-transposed",
        "warp-turing",
        "warp-volta",
        "split-bf16-turned",
    ];
    names.into_iter().map(|f| folder("emit-cuda").join(f).with_extension("kernel"))
}

/// Kernels that only a GPU can say, from all folders.
fn gpu_kernels() -> Vec<PathBuf> {
    let good = [
        "copy_async_mma",
        "hopper_cluster",
        "hopper_ring",
        "move_rows",
        "split_tf32",
        "split_bf16",
        "warp_sum",
        "broadcast",
    ];
    let good = good.map(|f| folder("good").join(f).with_extension("kg"));
    good.into_iter().chain(emitted()).chain([folder("emit-cuda").join("cluster-multicast.kernel")]).collect()
}

#[test]
fn every_pass_keeps_what_a_kernel_of_tensor_cores_computes() {
    for path in gpu_kernels() {
        let kernel = read(&path);
        let inputs = interp::seeded_inputs(&kernel, 5);
        let want = interp::run(&kernel, &inputs, Mode::F64).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let verified = verify(kernel, &Target::find("sm_90a").unwrap().limits()).unwrap_or_else(|f| panic!("{}", f[0]));
        for snapshot in lower(verified, &LowerOptions::cuda()).unwrap_or_else(|e| panic!("{e}")).trace() {
            let got = interp::run(&snapshot.kernel, &inputs, Mode::F64)
                .unwrap_or_else(|e| panic!("{} after {}: {e}\n{}", path.display(), snapshot.pass, snapshot.kernel));
            assert_eq!(interp::max_difference(&want, &got), Some(0.0), "{} after {}", path.display(), snapshot.pass);
        }
    }
}

#[test]
fn products_of_tensor_cores_compute_what_the_interpreter_computes() {
    let good = ["copy_async_mma", "hopper_ring", "move_rows", "split_tf32", "split_bf16"];
    let good = good.map(|f| folder("good").join(f).with_extension("kg"));
    let volta = folder("emit-cuda").join("warp-volta.kernel");
    let all = good.into_iter().chain(emitted()).map(|path| (path, "sm_90a"));
    for (path, arch) in all.chain([(volta, "sm_70")]) {
        let kernel = read(&path);
        let inputs = interp::seeded_inputs(&kernel, 5);
        let want = interp::run(&kernel, &inputs, Mode::Declared).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let source = cuda(&kernel, arch).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let got = cuda_on_cpu::build(&kernel, &source)
            .and_then(|program| program.run(&inputs))
            .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let difference = interp::max_difference(&want, &got);
        assert!(difference.is_some_and(|d| d < 1e-2), "{}: {difference:?}\n{}", path.display(), source.source);
    }
}

#[test]
fn the_ring_of_the_interpreter_is_two_maps_a_launch_and_compiles() {
    let kernel = read(&folder("good").join("hopper_ring.kg"));
    let source = cuda(&kernel, "sm_90a").unwrap();
    compiles(&source);
    let [launch] = &source.launches[..] else { panic!("{:?}", source.launches) };
    assert_eq!((launch.grid, launch.block, launch.cluster), ([2, 1, 1], [160, 1, 1], [1, 1, 1]));
    let map = |index, rows: u64, columns: u64, swizzle| {
        Param::TensorMap(TensorMap {
            base: TensorBase::Buffer(index),
            offset: 0,
            dtype: DType::F16,
            dims: vec![columns, rows],
            rows: 0,
            strides: vec![columns * 2],
            box_dims: vec![64, 64],
            steps: vec![1, 1],
            swizzle,
        })
    };
    assert_eq!(launch.params, [map(0, 128, 192, 128), map(1, 192, 128, 128), map(2, 128, 128, 0)]);
}

#[test]
fn lanes_add_up_what_their_warp_has() {
    let kernel = read(&folder("good").join("warp_sum.kg"));
    let inputs = interp::seeded_inputs(&kernel, 5);
    let out = interp::run(&kernel, &inputs, Mode::F64).unwrap();
    for (x, y) in inputs["x"].chunks(32).zip(out["y"].chunks(32)) {
        let sum: f64 = x.iter().sum();
        assert!(y.iter().all(|y| (y - sum).abs() < 1e-12), "{y:?}, not {sum}");
    }
    let kernel = read(&folder("good").join("broadcast.kg"));
    let inputs = interp::seeded_inputs(&kernel, 5);
    let out = interp::run(&kernel, &inputs, Mode::F64).unwrap();
    for (x, y) in inputs["x"].chunks(32).zip(out["y"].chunks(32)) {
        assert_eq!(y, [x[0]; 32]);
    }
    assert!(cuda(&kernel, "sm_75").unwrap().source.contains("shfl.sync.idx.b32 %0, %1, 0, 31, -1;"));
}

#[test]
fn what_an_architecture_lacks_is_said() {
    let kernel = read(&folder("good").join("hopper_ring.kg"));
    let said = cuda(&kernel, "sm_90").unwrap_err().to_string();
    assert!(said.contains("needs sm_90a, and sm_90 was asked for"), "{said}");
}

#[test]
fn a_kernel_without_hardware_loops_is_refused() {
    let kernel =
        parse("kernel k {\n  param y: f32[4] global write\n  for i in 0..4 {\n    y[i] = 1.0f32\n  }\n}\n").unwrap();
    let said = cuda(&kernel, "sm_80").unwrap_err().to_string();
    assert_eq!(said, "loop `i` stands outside of any launch; bind a loop around it to grid or thread axes");
}

/// Warp-specialised rings as the templates make them: every form of operand, and a convolution.
#[test]
fn the_rings_of_the_templates_compile_to_products_that_overlap() {
    let target = Target::find("sm_90a").unwrap();
    let product = |m, n, k, trans_a, trans_b| Op::Matmul(Matmul { trans_a, trans_b, ..Matmul::new(m, n, k) });
    let gemms = [
        (product(4096, 4096, 4096, false, true), DType::F16),
        (product(512, 768, 320, true, false), DType::Bf16),
        (product(200, 136, 72, false, false), DType::F16),
        (product(1024, 1000, 1024, true, true), DType::F16),
    ];
    let conv = Conv2d { layout: ConvLayout::Nhwc, ..Conv2d::nchw(8, 64, 14, 14, 128, 3, 1, 1) };
    let cases = gemms.map(|(op, dtype)| (&WgmmaGemm as &dyn Template, op, dtype)).into_iter();
    for (template, op, dtype) in cases.chain([(&WgmmaConv2d as &dyn Template, Op::Conv2d(conv), DType::F16)]) {
        let workload = Workload::f32(op).with_dtype(dtype);
        let config = template.default_config(&workload, target).unwrap_or_else(|e| panic!("{e}"));
        let scheduled = template.schedule(&workload, target, &config).unwrap_or_else(|e| panic!("{e}"));
        let source = cuda(&scheduled.schedule.kernel, "sm_90a").unwrap_or_else(|e| panic!("{e}"));
        compiles(&source);
    }
}

/// Each of their schedules with the largest tile and all that goes with it, where registers are scarce.
#[test]
fn every_schedule_of_the_rings_compiles_to_products_that_overlap_and_spills_nothing() {
    let target = Target::find("sm_90a").unwrap();
    let workload = Workload::f32(Op::Matmul(Matmul::new(4096, 4096, 4096))).with_dtype(DType::F16);
    for knobs in [
        "row_blocks=1 bn=256 cluster=rows schedule=cooperative store=tma pending=1",
        "row_blocks=2 bn=128 cluster=columns schedule=cooperative store=registers pending=1",
        "row_blocks=2 bn=128 cluster=none schedule=pingpong store=tma pending=1",
        "row_blocks=1 bn=256 cluster=rows schedule=pingpong store=registers pending=0",
    ] {
        let config = Config::parse(&format!("consumers=2 stages=4 group=8 {knobs}")).unwrap();
        let space = WgmmaGemm.space(&workload, target).unwrap_or_else(|e| panic!("{e}"));
        let config = space.normalise(&config).unwrap_or_else(|e| panic!("{knobs}: {e}"));
        let scheduled = WgmmaGemm.schedule(&workload, target, &config).unwrap_or_else(|e| panic!("{e}"));
        compiles(&cuda(&scheduled.schedule.kernel, "sm_90a").unwrap_or_else(|e| panic!("{e}")));
    }
}

/// An arrival in another block orders global memory only where threads read what others wrote there: the fence that it
/// takes would cost more than the step of a ring.
#[test]
fn arrivals_in_other_blocks_release_global_memory_only_where_it_is_exchanged() {
    let mut kernel = read(&folder("good").join("hopper_cluster.kg"));
    let source = cuda(&kernel, "sm_90a").unwrap().source;
    assert!(
        source.contains("mbarrier.arrive.shared::cluster") && !source.contains("release.cluster.shared"),
        "{source}"
    );
    compiles(&cuda(&kernel, "sm_90a").unwrap());
    let text = kernel.to_string().replace("c: f32[128, 64] global write", "c: f32[128, 64] global readwrite");
    kernel = parse(&text.replace("= acc[r, q]", "= acc[r, q] + c[c0 * 64 + r, q]")).unwrap();
    let source = cuda(&kernel, "sm_90a").unwrap().source;
    assert!(source.contains("mbarrier.arrive.release.cluster.shared::cluster"), "{source}");
}

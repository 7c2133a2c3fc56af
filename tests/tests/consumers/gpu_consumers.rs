//! What a crate that calls its kernels on a GPU sees, where there is no GPU: what does not compile, and a build from
//! packaged code without anything of CUDA.
//!
//! What happens on a GPU is checked by `tests/gpu-runtime`, which is the consumer of the second test.

use kernel_gen::generate::{CodePolicy, Options, generate};
use kernel_gen::model;
use kernel_gen::records::BestRecords;
use kernel_gen::spec::Spec;
use kernel_gen::templates::Registry;
use kernel_gen::toolchain::cuda::{
    Artifact, Artifacts, AssemblerLog, CudaError, Environment, Missing, Request, SupplyOptions, supply,
};
use kernel_gen_tests::consumer::{Consumer, repository};
use std::fs;
use std::path::{Path, PathBuf};

/// Where the other suite of consumers builds, so that the generator is compiled once for both.
fn root() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("downstream")
}

const CALLS: &str = r#"kernel_gen_runtime::include_kernels!();
use kernel_gen_runtime::cuda::DeviceTensor;
use kernel_gen_runtime::{Cpu, Cuda, D1, D2, Device, Result, Tensor};

/// `a` is what the test replaces.
pub fn call(dev: &Cuda) -> Result<()> {
    let a = dev.zeros::<f32, D2<6, 5>>()?;
    let (b, bias) = (dev.zeros::<f32, D2<5, 7>>()?, dev.zeros::<f32, D1<7>>()?);
    let mut c = dev.zeros::<f32, D2<6, 7>>()?;
    kernels::product(dev, &a, &b, &bias, &mut c)?;
    let packed = kernels::small::pack_weight(dev, &b)?;
    kernels::small::launch(dev, &a, &packed, &bias, &mut c)
}

/// The same function on the CPU.
pub fn on_cpu(a: &Tensor<f32, D2<6, 5>>) -> Result<()> {
    let (b, bias, mut c) = ([[0.0f32; 7]; 5], [0.0f32; 7], [[0.0f32; 7]; 6]);
    kernels::product(&Cpu::new(), a, &b, &bias, &mut c)
}

fn main() {
    match Cuda::new(0).map_err(Into::into).and_then(|dev| call(&dev)) {
        Ok(()) => println!("on the GPU"),
        Err(error) => println!("{error}"),
    }
    let _: fn(&Cuda) -> Result<DeviceTensor<f64, D1<1>>> = DeviceTensor::zeros;
    on_cpu(&Tensor::zeros()).unwrap();
}
"#;

#[test]
fn buffers_of_another_device_type_or_shape_do_not_compile() {
    let consumer = Consumer::new(&root(), "gpu-types");
    consumer.edit("Cargo.toml", "/runtime\" }", "/runtime\", features = [\"cuda\"] }");
    consumer.edit("kernels.toml", "schema = 1", "schema = 1\n[targets]\ncuda = [\"sm_80\", \"sm_90a\"]");
    consumer.lock();
    let write = |from: &str, to: &str| {
        assert_eq!(CALLS.matches(from).count(), 1, "`{from}`");
        consumer.write("src/main.rs", &CALLS.replace(from, to));
    };
    // Types need no compiled code.
    let check = || consumer.cargo_with(&[("KERNEL_GEN_CUDA", "embed")], &["check", "--offline", "--locked"]);
    let a = "let a = dev.zeros::<f32, D2<6, 5>>()?;";
    consumer.write("src/main.rs", CALLS);
    check().passed().says("NVRTC on the machine that runs them compiles each at its first use");

    write(a, "let a = Tensor::<f32, D2<6, 5>>::zeros();");
    check()
        .failed()
        .says("error[E0277]: `Tensor<f32, D2<6, 5>>` is not a dense array in a GPU's memory")
        .says("`DeviceTensor::from_host` copies what is in the CPU's memory");
    write("pub fn on_cpu(a: &Tensor<f32, D2<6, 5>>)", "pub fn on_cpu(a: &DeviceTensor<f32, D2<6, 5>>)");
    check()
        .failed()
        .says("error[E0277]: `DeviceTensor<f32, D2<6, 5>>` is not a dense array in the CPU's memory")
        .says("buffers of a GPU go with its own device");
    write(a, "let a = dev.zeros::<f64, D2<6, 5>>()?;");
    check().failed().says("type mismatch resolving `<DeviceTensor<f64, D2<6, 5>> as Input<Cuda>>::Elem == f32`");
    write(a, "let a = dev.zeros::<f32, D2<5, 6>>()?;");
    check()
        .failed()
        .says("error[E0277]: `product` is not declared for these shapes")
        .says("note: declared: small: a [6, 5], b [5, 7], bias [7], c [6, 7]");
    write("pack_weight(dev, &b)?", "pack_weight(&Cpu::new(), &[[0.0f32; 7]; 5])?");
    check().failed().says("found reference `&small::PackedWeight<Cpu>`");
}

#[test]
fn a_runtime_without_the_feature_compiles_nothing_of_cuda_in() {
    let consumer = Consumer::new(&root(), "gpu-not-wanted");
    consumer.edit("kernels.toml", "schema = 1", "schema = 1\n[targets]\ncuda = [\"sm_80\"]");
    let out = consumer.build(&[("KERNEL_GEN_CUDA", "embed")], &[]);
    let text = fs::read_to_string(out.join("kernels.rs")).unwrap();
    assert!(text.contains("small.sm_80.kgi"), "the wrappers are the same with and without the feature");
    let tree = consumer.cargo(&["tree", "--offline", "--edges=normal", "--prefix=none"]).passed().stdout;
    assert!(!tree.contains("cudarc"), "{tree}");
    let run = consumer.cargo_with(&[("KERNEL_GEN_CUDA", "embed")], &["run", "--offline", "--locked"]).passed();
    assert!(!run.stdout.contains("sm_80"), "{}", run.stdout);
}

/// What a build of a spec asks for.
fn requests(spec: &Path) -> Vec<Request> {
    let options = Options {
        arch: std::env::consts::ARCH.into(),
        prefix: "any".into(),
        choose: model::Options::default(),
        code: CodePolicy::Absent("only CUDA is packaged".into()),
        cuda: true,
        images: String::new(),
        jobs: 2,
        memo: None,
    };
    let spec = Spec::load(spec).unwrap();
    // A build has the records that ship.
    let records = BestRecords::load(&repository().join("specs/tuned")).unwrap();
    let generated = generate(&spec, &records, &Registry::builtin(), &options).unwrap();
    generated.cuda.iter().map(|source| source.request().unwrap()).collect()
}

/// Packages the code of a spec into a folder; nothing if there is no CUDA compiler.
fn package(spec: &Path, folder: &Path) -> Option<()> {
    let requests = requests(spec);
    let options = SupplyOptions { missing: Missing::Refuse, ..SupplyOptions::default() };
    let supplied = match supply(&requests, None, &Environment::of_process(), &options) {
        Ok(supplied) => supplied,
        Err(errors) if errors.iter().all(|e| matches!(e, CudaError::NoCompiler { .. })) => {
            eprintln!("[SKIP] needs a CUDA compiler to package code: {}", errors[0].to_string().lines().next()?);
            return None;
        }
        Err(errors) => panic!("{}", errors[0]),
    };
    let artifacts: Vec<_> = supplied.code.iter().filter_map(|code| code.artifact().cloned()).collect();
    assert_eq!(artifacts.len(), requests.len());
    Artifacts::write(folder, &artifacts).unwrap();
    Some(())
}

/// Packaged code with hashes that fit, as anyone can write it, in place of what a compiler would make.
#[cfg(unix)]
#[test]
fn packaged_code_from_elsewhere_is_used_only_where_somebody_vouches_for_it() {
    let consumer = Consumer::new(&root(), "gpu-forged");
    consumer.edit("kernels.toml", "schema = 1", "schema = 1\n[targets]\ncuda = [\"sm_80\"]");
    let requests = requests(&consumer.folder.join("kernels.toml"));
    let forged = |request: &Request| {
        let names = request.source.split("__global__").skip(1).map(|rest| {
            let (_, rest) = rest.split_once("__launch_bounds__").unwrap();
            rest.split_once(") ").unwrap().1.split('(').next().unwrap().to_string()
        });
        let entries = names.map(|name| format!(".visible .entry {name}() {{ ret; }} // forged\n"));
        Artifact {
            kernel: request.kernel.clone(),
            arch: request.arch,
            source: request.hash(),
            compiler: "nvcc 13.0.88".to_string(),
            ptx: format!(".version 7.0\n.target sm_80\n.address_size 64\n{}", entries.collect::<String>()),
            cubin: None,
            log: AssemblerLog::default(),
        }
    };
    let artifacts: Vec<Artifact> = requests.iter().map(forged).collect();
    let elsewhere = consumer.folder.with_file_name("gpu-forged-elsewhere");
    let inside = consumer.folder.join("gpu");
    for folder in [&elsewhere, &inside] {
        Artifacts::write(folder, &artifacts).unwrap();
    }
    let is_used = |configuration: &str, env: &[(&str, &str)]| {
        consumer.write(
            "build.rs",
            &format!(
                "mod plain;\nfn main() {{ kernel_gen_build::configure().template(plain::Plain){configuration}.generate_or_exit(); }}"
            ),
        );
        // Nothing is compiled: what is not packaged stays source.
        let env = [&[("KERNEL_GEN_CUDA", "embed")], env].concat();
        let out = consumer.build(&env, &[]);
        let ran = consumer.cargo_with(&env, &["build", "--offline", "--locked"]).passed();
        let bundle = fs::read(out.join("kernel-gen-kernels/small.sm_80.kgi")).unwrap();
        (bundle.windows(9).any(|w| w == b"// forged"), ran.stderr)
    };
    let from_elsewhere = format!(".artifacts({:?})", elsewhere.display().to_string());
    let (used, said) = is_used(&from_elsewhere, &[]);
    assert!(!used, "{said}");
    let told =
        said.lines().find(|line| line.contains("lies outside of the package")).unwrap_or_else(|| panic!("{said}"));
    assert!(told.contains("gpu-forged-elsewhere") && told.contains("KERNEL_GEN_TRUST_ARTIFACTS=1"), "{told}");
    let (used, said) = is_used(&from_elsewhere, &[("KERNEL_GEN_TRUST_ARTIFACTS", "1")]);
    assert!(used && !said.contains("lies outside"), "{said}");
    let (used, said) = is_used(&format!("{from_elsewhere}.trust_artifacts(true)"), &[]);
    assert!(used && !said.contains("lies outside"), "{said}");
    // What lies in the package is as good as its source.
    let (used, said) = is_used(".artifacts(\"gpu\")", &[]);
    assert!(used && !said.contains("lies outside"), "{said}");
}

/// The files of a folder and what is below it.
fn files(folder: &Path, below: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder.join(below)).unwrap().flatten();
    let entries = entries.map(|e| below.join(e.file_name()));
    entries.flat_map(|e| if folder.join(&e).is_dir() { files(folder, &e) } else { vec![e] }).collect()
}

#[cfg(unix)]
#[test]
fn a_consumer_with_packaged_code_builds_without_cuda_and_says_in_one_line_that_there_is_no_gpu() {
    let consumer = Consumer::empty(&root(), "gpu-packaged");
    let source = repository().join("tests/gpu-runtime");
    let packaged = consumer.folder.join("packaged");
    if package(&source.join("kernels.toml"), &packaged).is_none() {
        return;
    }
    for file in files(&source, Path::new("")) {
        if !file.starts_with("target") {
            consumer.write(&file, &fs::read_to_string(source.join(&file)).unwrap());
        }
    }
    let root = repository().display().to_string();
    consumer.edit("Cargo.toml", "../../runtime", &format!("{root}/runtime"));
    consumer.edit("Cargo.toml", "../../build-support", &format!("{root}/build-support"));
    consumer.lock();
    // What rustc needs to link, and the C compiler for the CPU's kernels; nothing of CUDA is reachable.
    let bin = consumer.folder.join("bin");
    fs::create_dir_all(&bin).unwrap();
    let path = std::env::var_os("PATH").unwrap();
    for tool in ["cc", "as", "ld", "ar"] {
        let found = std::env::split_paths(&path).map(|p| p.join(tool)).find(|p| p.exists());
        let found = found.unwrap_or_else(|| panic!("{tool} is there"));
        std::os::unix::fs::symlink(fs::canonicalize(found).unwrap(), bin.join(tool)).unwrap();
    }
    let cargo = |args: &[&str]| {
        let mut command = consumer.command(args);
        for variable in ["CUDA_HOME", "CUDA_PATH", "NVCC", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "CONDA_PREFIX"] {
            command.env_remove(variable);
        }
        command.env("PATH", &bin).env("GPU_RUNTIME_ARTIFACTS", &packaged);
        command.output().map(kernel_gen_tests::consumer::Ran::from).expect("cargo runs")
    };
    // Its build script refuses to go on without a compiler where code is not packaged, so all of it was.
    let run = cargo(&["run", "--offline", "--locked", "--no-default-features"]).passed();
    if run.stdout.starts_with("NVIDIA driver") {
        assert!(run.stdout.contains(" 0 failed"), "{}", run.stdout);
        return;
    }
    let lines: Vec<&str> = run.stdout.lines().collect();
    assert_eq!(lines.len(), 2, "{}", run.stdout);
    assert!(lines[0].starts_with("[SKIP] no GPU: "), "{}", lines[0]);
    println!("[SKIP] part: its checks on a GPU: {}", lines[0].trim_start_matches("[SKIP] "));
    assert_eq!(lines[1], "ok: the generated functions compute on the CPU");
    // A package that lacks a kernel is an error that names where compilers were looked for.
    fs::remove_dir_all(&packaged).unwrap();
    fs::create_dir_all(&packaged).unwrap();
    let ran = cargo(&["build", "--offline", "--locked", "--no-default-features"]);
    if !ran.ok {
        ran.says("error: gpu-runtime@0.1.0: ");
    } else {
        eprintln!("[SKIP] part: there is a CUDA compiler in a place that no variable takes away");
    }
}

//! CUDA code of a consumer's own: wrapped with typed launches, checked by the compilers, refused where it does not fit.
//!
//! What its kernels compute on a GPU is checked by `tests/gpu-runtime` with its feature `own`.

use kernel_gen_tests::consumer::{Consumer, Ran};
use std::path::{Path, PathBuf};

/// Where the other suite of consumers builds, so that the generator is compiled once for both.
fn root() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("downstream")
}

const SPEC: &str = "schema = 1\n[targets]\ncuda = [\"sm_80\"]\n\n[[extern]]\nname = \"mine\"\nsource = \"src/mine.cu\"\n\
                    header = \"src/mine.h\"\n\n[extern.launch.scale]\ngrid = [4]\nblock = [64]\n";
const HEADER: &str = "#pragma once\n#include \"size.h\"\n#include <stdint.h>\nextern \"C\" {\n\
                      __global__ void scale(const float x[ROWS][64], float y[ROWS][64], float factor, int32_t shift);\n}\n";
const SOURCE: &str = "#include \"mine.h\"\n\
                      __global__ void __launch_bounds__(128) scale(const float x[ROWS][64], float y[ROWS][64], float factor, int32_t shift) {\n\
                      for (int row = blockIdx.x; row < ROWS; row += gridDim.x)\n\
                      y[row][threadIdx.x] = factor * x[row][threadIdx.x] + (float)shift;\n}\n";
const MAIN: &str = r#"kernel_gen_runtime::include_kernels!();
use kernel_gen_runtime::{Cpu, Cuda, D2, Device, Result, Tensor};

/// What the test replaces is `4, 64`.
pub fn call(dev: &Cuda) -> Result<()> {
    kernels::mine::preload(dev)?;
    let x = Tensor::<f32, D2<4, 64>>::from_fn(|i| i as f32);
    let mut y = dev.zeros::<f32, D2<4, 64>>()?;
    kernels::mine::scale(dev, &dev.upload(&x)?, &mut y, 0.5, -3)?;
    for (i, y) in dev.download(&y)?.as_slice().iter().enumerate() {
        assert_eq!(*y, 0.5 * i as f32 - 3.0);
    }
    Ok(())
}

fn main() {
    let (x, mut y) = (Tensor::<f32, D2<4, 64>>::zeros(), Tensor::<f32, D2<4, 64>>::zeros());
    println!("{}", kernels::mine::scale(&Cpu::new(), &x, &mut y, 1.0, 0).unwrap_err());
    println!("{}", kernels::mine::preload(&Cpu::new()).unwrap_err());
    match Cuda::new(0) {
        Ok(dev) => {
            call(&dev).unwrap();
            println!("right on a GPU");
        }
        Err(error) => println!("[SKIP] no GPU: {error}"),
    }
}
"#;

/// A consumer with the kernel, or nothing if bindgen cannot run here.
fn consumer(name: &str) -> Option<Consumer> {
    let consumer = Consumer::new(&root(), name);
    consumer.edit("Cargo.toml", "/runtime\" }", "/runtime\", features = [\"cuda\"] }");
    consumer.edit("Cargo.toml", "/build-support\" }", "/build-support\", features = [\"bindgen\"] }");
    consumer.write("kernels.toml", SPEC);
    consumer.write("src/size.h", "#define ROWS 4\n");
    consumer.write("src/mine.h", HEADER);
    consumer.write("src/mine.cu", SOURCE);
    consumer.write("src/main.rs", MAIN);
    consumer.try_lock().passed();
    let ran = embedded(&consumer, "check");
    if ran.skipped_without_download("bindgen") {
        return None;
    }
    if ran.skipped_without_libclang() {
        ran.says("kernels.toml:5: libclang is needed to read \"src/mine.h\"").says("LIBCLANG_PATH");
        return None;
    }
    ran.passed().says("NVRTC on the machine that runs them compiles each at its first use");
    Some(consumer)
}

/// Cargo without a CUDA compiler.
fn embedded(consumer: &Consumer, command: &str) -> Ran {
    consumer.cargo_with(&[("KERNEL_GEN_CUDA", "embed")], &[command, "--offline", "--locked"])
}

#[test]
fn cuda_code_of_the_users_own_is_wrapped_with_typed_launches() {
    let Some(consumer) = consumer("own-cuda") else { return };
    let check = || embedded(&consumer, "check");
    // Calls are typed by the header and by what it includes.
    consumer.edit("src/size.h", "4", "8");
    check().failed().says("D2<8, 64>");
    consumer.edit("src/size.h", "8", "4");
    consumer.write("src/main.rs", &MAIN.replace("0.5, -3)", "0.5, -3.0)"));
    check().failed().says("expected `i32`, found floating-point number");
    consumer.write("src/main.rs", MAIN);
    // Wherever CUDA comes from here, on a CPU a launch is an error that says why.
    let ran = consumer.cargo(&["run", "--offline", "--locked"]).passed();
    let lines: Vec<&str> = ran.stdout.lines().collect();
    let why = "there is no code for `mine::scale`: it is CUDA, so it runs on GPUs only";
    assert!(lines.len() == 3 && lines[..2].iter().all(|line| line.starts_with(why)), "{}", ran.stdout);
    match lines[2] {
        "right on a GPU" => {}
        skip => println!("[SKIP] part: the launch on a GPU: {}", skip.trim_start_matches("[SKIP] ")),
    }
}

#[test]
fn cuda_code_that_does_not_fit_its_spec_is_an_error_of_the_build() {
    let Some(consumer) = consumer("own-cuda-wrong") else { return };
    let check = || embedded(&consumer, "check").failed();
    consumer.write("kernels.toml", &SPEC.replace("launch.scale", "launch.scala"));
    check()
        .says("kernels.toml:10: \"src/mine.h\" declares no kernel `scala`; did you mean `scale`?")
        .says("src/mine.h:5: the spec has no launch of `scale`; add [extern.launch.scale]");
    consumer.write("kernels.toml", SPEC);
    consumer.write("src/mine.h", &HEADER.replace("extern \"C\" {", "extern \"C++\" {"));
    check().says("src/mine.h:5: `scale` is declared with a name of C++; declare it extern \"C\"");
    consumer.write("src/mine.h", &HEADER.replace("float y[ROWS][64]", "float *y"));
    check().says("src/mine.h:5: `scale` cannot be launched: `y` is a pointer to an unknown number of elements");
    consumer.write("src/mine.h", &HEADER.replace("__global__ void scale", "int scale"));
    check().says("src/mine.h:5: `scale` returns a value, so it is no kernel");
    consumer.write("src/mine.h", HEADER);
    consumer.write("src/mine.cu", &format!("{SOURCE}#include <cuda_fp16.h>\n"));
    check().says("kernels.toml:5: \"src/mine.cu\" includes <cuda_fp16.h>, and there is no CUDA compiler here");
    // What only a compiler finds.
    consumer.write("src/mine.cu", &SOURCE.replace("scale(", "scales("));
    let ran = consumer.cargo(&["check", "--offline", "--locked"]);
    if ran.ok && ran.stderr.contains("NVRTC on the machine that runs them") {
        eprintln!("[SKIP] part: no CUDA compiler: what it finds in own CUDA");
        return;
    }
    ran.failed().says("kernels.toml:10: \"src/mine.cu\" defines no kernel `scale`; define it there; it has _Z6scales");
    consumer.write("src/mine.cu", SOURCE);
    consumer.write("kernels.toml", &SPEC.replace("block = [64]", "block = [64, 4]"));
    let check = || consumer.cargo(&["check", "--offline", "--locked"]).failed();
    check().says("kernels.toml:10: `scale` is launched with 256 threads a block, and its __launch_bounds__");
    consumer.write("kernels.toml", SPEC);
    let other = SOURCE.replace("int32_t shift", "float shift");
    consumer.write("src/mine.cu", &other);
    check()
        .says("defines no kernel `scale`; it has one with a name of C++: declare it extern \"C\", with the parameters");
    consumer.write("src/mine.cu", &other.replace("__global__", "extern \"C\" __global__"));
    check().says("src/mine.cu(2)");
}

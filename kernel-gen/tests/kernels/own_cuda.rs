//! CUDA code of the user's own, from `[[extern]]` to code: what is read, what is refused, and what compiles.

use crate::folder::Folder;
use kernel_gen::generate::{Own, OwnCode, own_cuda, own_faults};
use kernel_gen::spec::Spec;
use kernel_gen::toolchain::cuda::{
    Artifact, Artifacts, AssemblerLog, Code, CudaError, Environment, Missing, SupplyOptions, supply,
};
use std::fs;

const SPEC: &str = "schema = 1\n[targets]\ncuda = [\"sm_80\", \"sm_90a\"]\n\n[[extern]]\nname = \"mine\"\n\
                    source = \"src/mine.cu\"\nheader = \"src/mine.h\"\n[extern.launch.scale]\ngrid = [4]\nblock = [256]\n";
const HEADER: &str = "#pragma once\n#include <stdint.h>\n#include \"../inc/size.h\"\nextern \"C\" __global__ void \
                      scale(const float x[N][4], float y[N][4], float factor, int64_t n);\n";
const SOURCE: &str = "#include \"mine.h\"\n#include \"mine.h\"\ntemplate <typename T> __global__ void other(T *x) { *x = 1; }\n\
                      // <<< no launch >>>\n__global__ void scale(const float x[N][4], float y[N][4], float factor, int64_t n) {\n\
                      y[0][threadIdx.x % 4] = factor * x[n % N][0];\n}\ntemplate __global__ void other<float>(float *);\n";

/// A spec in a folder, with its files.
struct Project {
    folder: Folder,
    spec: Spec,
}

impl Project {
    fn new(name: &str, source: &str, header: &str) -> Project {
        let folder = Folder::new(name);
        for below in ["src", "inc"] {
            fs::create_dir_all(folder.0.join(below)).unwrap();
        }
        fs::write(folder.0.join("src/mine.cu"), source).unwrap();
        fs::write(folder.0.join("src/mine.h"), header).unwrap();
        fs::write(folder.0.join("inc/size.h"), "#pragma once\n#define N 8").unwrap();
        let spec = Spec::parse(SPEC, &folder.0.join("kernels.toml").display().to_string()).unwrap();
        Project { folder, spec }
    }

    fn read(&self) -> Result<Own, String> {
        // Messages without the folder, which differs from run to run.
        let here = format!("{}/", self.folder.0.display());
        own_cuda(&self.spec, &self.spec.externs[0]).map_err(|e| e.to_string().replace(&here, ""))
    }
}

#[test]
fn a_source_and_what_it_includes_become_one_text_for_each_architecture() {
    let project = Project::new("own-text", SOURCE, HEADER);
    let own = project.read().unwrap();
    assert_eq!(
        own.sources.iter().map(|s| s.name.as_str()).collect::<Vec<_>>(),
        ["extern.mine.sm_90a", "extern.mine.sm_80"]
    );
    let text = &own.sources[0].text;
    assert_eq!(own.sources[1].text, *text);
    assert!(!text.contains(&project.folder.0.display().to_string()), "no folder of this machine: {text}");
    assert!(!text.contains("#pragma once") && !text.contains("#include \""), "{text}");
    for part in [
        "// [[extern]] mine: src/mine.cu\n#ifdef __CUDACC_RTC__\n",
        "#line 1 \"src/mine.cu\"\n#ifndef KERNEL_GEN_ONCE_1\n#define KERNEL_GEN_ONCE_1\n#line 1 \"src/mine.h\"\n\n\n",
        "#line 1 \"src/../inc/size.h\"\n\n#define N 8\n#endif\n#line 4 \"src/mine.h\"\nextern \"C\"",
        "#endif\n#line 3 \"src/mine.cu\"\ntemplate",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let files: Vec<_> = own.inputs.iter().map(|f| f.strip_prefix(&project.folder.0).unwrap().to_owned()).collect();
    assert_eq!(
        files.iter().map(|f| f.to_str().unwrap()).collect::<Vec<_>>(),
        ["src/mine.cu", "src/mine.h", "src/../inc/size.h"]
    );
}

#[test]
fn what_cannot_become_code_is_refused_with_its_line() {
    let refused = |name: &str, source: &str, header: &str| Project::new(name, source, header).read().unwrap_err();
    assert_eq!(
        refused("own-apart", "__global__ void scale(float *x) {}\n", HEADER),
        "kernels.toml:5: \"src/mine.cu\" does not include its header \"src/mine.h\"; add an #include \"...\" of it, so \
         that the compiler compares its declarations with the kernels"
    );
    assert_eq!(
        refused(
            "own-host",
            &(SOURCE.to_string() + "extern \"C\" int run(float *x) {\n  scale<<<4, 256>>>(x);\n}\n"),
            HEADER
        ),
        "src/mine.cu:10: code for the CPU that launches kernels by `<<<...>>>` is not supported: it would link the CUDA \
         runtime; leave that code out, declare the kernel in the header and its launch in the spec: [extern.launch.<kernel>]"
    );
    let missing = refused("own-missing", SOURCE, "#pragma once\n\n#include \"none.h\"\n");
    assert!(missing.starts_with("src/mine.h:3: \"src/none.h\" cannot be read ("), "{missing}");
    assert!(missing.contains("counts from the folder of the file that includes"), "{missing}");
    let absolute = refused("own-absolute", "#include \"mine.h\"\n#include \"/usr/include/a.h\"\n", HEADER);
    assert!(absolute.starts_with("src/mine.cu:2: `#include \"/usr/include/a.h\"` means another file"), "{absolute}");
    let mut project = Project::new("own-nowhere", SOURCE, HEADER);
    project.spec.externs[0].header = "src/other.h".into();
    let nowhere = project.read().unwrap_err();
    assert!(nowhere.starts_with("kernels.toml:5: \"src/other.h\" cannot be read ("), "{nowhere}");
    // Files that include each other, without a guard, end.
    let circle = Project::new("own-circle", "#include \"mine.h\"\n", "#include \"mine.cu\"\nint a;\n");
    assert_eq!(circle.read().unwrap().sources[0].text.matches("int a;").count(), 1);
}

/// Code that a compiler could have made.
fn compiled(ptx: &str) -> Code {
    let arch = "sm_80".parse().unwrap();
    let source = kernel_gen::toolchain::cuda::Request::new("k", "", arch).hash();
    let (kernel, compiler, log) = ("k".to_string(), "a compiler".to_string(), AssemblerLog::default());
    Code::Compiled(Artifact { kernel, arch, source, compiler, ptx: ptx.into(), cubin: None, log })
}

#[test]
fn code_that_is_not_as_the_spec_says_is_named_once() {
    let project = Project::new("own-faults", SOURCE, HEADER);
    let faults = |own: &Own, code: &Code| -> Vec<String> {
        let here = format!("{}/", project.folder.0.display());
        let all = own_faults(&own.sources, &[code.clone(), code.clone()]);
        all.iter().map(|fault| fault.to_string().replace(&here, "")).collect()
    };
    let own = project.read().unwrap();
    assert_eq!(faults(&own, &compiled(".visible .entry scale(\n)\n.maxntid 256, 1, 1\n{")), [""; 0]);
    assert_eq!(faults(&own, &Code::Source), [""; 0]);
    assert_eq!(
        faults(&own, &compiled(".visible .entry _Z5scalePKfPf(\n)\n{")),
        ["kernels.toml:9: \"src/mine.cu\" defines no kernel `scale`; it has one with a name of C++: declare it \
             extern \"C\", with the parameters of the header"]
    );
    assert_eq!(
        faults(&own, &compiled(".visible .entry sale(\n)\n{\n}\n.entry b(")),
        ["kernels.toml:9: \"src/mine.cu\" defines no kernel `scale`; define it there; it has sale, b"]
    );
    assert_eq!(
        faults(&own, &compiled("")),
        ["kernels.toml:9: \"src/mine.cu\" defines no kernel `scale`; define it there: extern \"C\" __global__ void"]
    );
    assert_eq!(
        faults(&own, &compiled(".visible .entry scale(\n)\n.maxntid 64, 2, 1\n{")),
        [
            "kernels.toml:9: `scale` is launched with 256 threads a block, and its __launch_bounds__ in \"src/mine.cu\" allow \
          128; make `block` or the bounds fit"
        ]
    );
    let wants_toolkit = Project::new("own-toolkit", &format!("{SOURCE}#include <cuda_fp16.h>\n"), HEADER);
    let own = wants_toolkit.read().unwrap();
    let known: Option<&OwnCode> = own.sources[0].own.as_ref();
    assert_eq!(known.and_then(|own| own.toolkit_header.as_deref()), Some("<cuda_fp16.h>"));
    let all = own_faults(&own.sources, &[Code::Source, Code::Source]);
    assert_eq!(all.len(), 1);
    assert!(all[0].cause.contains("includes <cuda_fp16.h>, and there is no CUDA compiler here"), "{}", all[0]);
}

#[test]
fn a_real_compiler_takes_the_text_and_compares_the_header_with_the_kernel() {
    let options = SupplyOptions { missing: Missing::Refuse, ..SupplyOptions::default() };
    let build = |project: &Project| {
        let own = project.read().unwrap();
        let requests: Vec<_> = own.sources.iter().map(|source| source.request().unwrap()).collect();
        supply(&requests, None, &Environment::of_process(), &options)
            .map(|supplied| own_faults(&own.sources, &supplied.code))
    };
    match build(&Project::new("own-compiles", SOURCE, HEADER)) {
        Ok(faults) => assert_eq!(faults, []),
        Err(errors) if errors.iter().all(|e| matches!(e, CudaError::NoCompiler { .. })) => {
            println!("[SKIP] no CUDA compiler: own CUDA is not compiled");
            return;
        }
        Err(errors) => panic!("{}", errors[0]),
    }
    // What was packaged is found again, although PTX has the names of C++ for some kernels.
    let project = Project::new("own-packaged", SOURCE, HEADER);
    let own = project.read().unwrap();
    let requests: Vec<_> = own.sources.iter().map(|source| source.request().unwrap()).collect();
    let supplied = supply(&requests, None, &Environment::of_process(), &options).unwrap();
    let artifacts: Vec<Artifact> = supplied.code.iter().filter_map(|code| code.artifact().cloned()).collect();
    Artifacts::write(&project.folder.0.join("packaged"), &artifacts).unwrap();
    let packaged = Artifacts::open(&project.folder.0.join("packaged")).unwrap();
    let supplied = supply(&requests, Some(&packaged), &Environment::of_process(), &options).unwrap();
    assert!(supplied.code.iter().all(|code| matches!(code, Code::Packaged(_))), "{}", supplied.summary);
    assert_eq!(own_faults(&own.sources, &supplied.code), []);
    // The kernel takes another type than its header says; the complaint names the user's own file and line.
    let source = SOURCE
        .replace("float factor,", "int factor,")
        .replace("__global__ void scale", "extern \"C\" __global__ void scale");
    let other = Project::new("own-conflict", &source, HEADER);
    let errors = build(&other).unwrap_err();
    let text = errors[0].to_string();
    assert!(text.contains("src/mine.cu(5)"), "{text}");
    // Declared, and never defined.
    let undefined = Project::new("own-undefined", &SOURCE.replace("void scale(", "void scales("), HEADER);
    let faults = build(&undefined).unwrap();
    assert_eq!(faults.len(), 1);
    assert!(faults[0].cause.contains("defines no kernel `scale`"), "{}", faults[0]);
}

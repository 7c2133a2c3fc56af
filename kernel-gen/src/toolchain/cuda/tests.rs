//! The lookup with tools that only pretend, and compilation with real ones where there are any.

use super::testing::{Folder, calls, fake_nvcc};
use super::*;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A kernel that needs no header, with an instruction of `sm_80` and a use of shared memory.
const COPY: &str = r#"
extern "C" __global__ void __launch_bounds__(128) copy(float *__restrict__ y, const float *__restrict__ x) {
    __shared__ __align__(16) float tile[128];
    const unsigned to = (unsigned)__cvta_generic_to_shared(&tile[threadIdx.x]);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(x + threadIdx.x) : "memory");
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
    y[threadIdx.x] = fmaf(tile[threadIdx.x ^ 1], 2.0f, 1.0f);
}
"#;

/// A kernel with an instruction of `sm_90a`.
const FENCE: &str = r#"
extern "C" __global__ void __launch_bounds__(128) fence(float *x) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    x[threadIdx.x] += 1.0f;
}
"#;

/// A kernel that nvcc, NVRTC and every architecture take.
const PLAIN: &str = r#"
extern "C" __global__ void plain(float *x) { x[blockIdx.x * blockDim.x + threadIdx.x] += 1.0f; }
"#;

fn arch(name: &str) -> Arch {
    name.parse().unwrap()
}

fn environment(root: &Folder, all: &[(&'static str, PathBuf)]) -> Environment {
    Environment::new(all.iter().map(|(name, value)| (*name, value.clone().into_os_string())), &root.path())
}

fn compiler(found: Found) -> CudaCompiler {
    match found {
        Found::Compiler(compiler) => *compiler,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_order_of_the_lookup_is_kept() {
    let root = Folder::new("order");
    let named = fake_nvcc(&root, "named/my-nvcc", "13.0.1");
    let plain = fake_nvcc(&root, "plain/other-nvcc", "13.0.2");
    fake_nvcc(&root, "path/nvcc", "13.0.3");
    fake_nvcc(&root, "home/bin/nvcc", "13.0.4");
    root.script("path/clang", "case $1 in --version) echo 'clang version 19.1.7 (x)';; *) echo nvptx64;; esac");
    let older = root.join("older");
    fake_nvcc(&root, "older/bin/nvcc", "13.0.5");
    let all = [
        ("KERNEL_GEN_NVCC", named),
        ("NVCC", plain),
        ("CUDA_HOME", root.join("home")),
        ("CUDA_PATH", older),
        ("PATH", root.join("path")),
    ];
    let name = |all: &[_]| compiler(find(&environment(&root, all), &[], Missing::Refuse).unwrap()).name();
    let mut names: Vec<String> = (0..all.len()).map(|first| name(&all[first..])).collect();
    // What a variable names comes before PATH, whichever kind of compiler it is.
    let named =
        root.script("named/my-clang", "case $1 in --version) echo 'clang version 20.1.7';; *) echo nvptx64;; esac");
    assert_eq!(name(&[&all[2..], &[("KERNEL_GEN_CLANG", named)]].concat()), "clang 20.1.7");
    // Without nvcc on PATH the clang there is next.
    fs::remove_file(root.join("path/nvcc")).unwrap();
    names.push(name(&all[4..]));
    let expected = ["nvcc 13.0.1", "nvcc 13.0.2", "nvcc 13.0.4", "nvcc 13.0.5", "nvcc 13.0.3", "clang 19.1.7"];
    assert_eq!(names, expected);
}

#[test]
fn the_toolkit_that_a_variable_names_comes_before_path_for_every_tool() {
    let root = Folder::new("toolkit");
    let ptxas = |folder: &str, release: &str| {
        let text = format!("echo 'Cuda compilation tools, release {release}, V{release}.1'");
        root.script(&format!("{folder}/ptxas"), &text)
    };
    let on_path = ptxas("path", "12.0");
    let found = |all: &[(&'static str, PathBuf)]| super::ptxas::find(&environment(&root, all)).unwrap().unwrap().0;
    for variable in ["CUDA_HOME", "CUDA_PATH"] {
        let home = root.join(variable);
        let all = [("PATH", root.join("path")), (variable, home.clone())];
        // A toolkit without one hides nothing.
        assert_eq!(found(&all), on_path);
        let own = ptxas(&format!("{variable}/bin"), "12.8");
        assert_eq!(found(&all), own);
        fake_nvcc(&root, "path/nvcc", "12.0.76");
        fake_nvcc(&root, &format!("{variable}/bin/nvcc"), "12.8.61");
        let found = find(&environment(&root, &all), &[], Missing::Refuse).unwrap();
        assert_eq!(compiler(found).path(), home.join("bin/nvcc"));
    }
}

#[test]
fn without_any_compiler_one_error_names_every_place_and_every_way_out() {
    let root = Folder::new("nothing");
    let nothing = environment(&root, &[("PATH", root.path())]);
    let error = find(&nothing, &[arch("sm_90a")], Missing::Refuse).unwrap_err();
    let text = error.to_string();
    for part in [
        "no CUDA compiler was found",
        "\n  KERNEL_GEN_NVCC: not set",
        "\n  NVCC: not set",
        "\n  nvcc on PATH: not there",
        "\n  nvcc in CUDA_HOME or CUDA_PATH: neither is set",
        "\n  KERNEL_GEN_NVRTC: not set",
        "\n  libnvrtc in the loader's folders: not there",
        "\n  libnvrtc in Python's packages: not there",
        "\n  KERNEL_GEN_CLANG: not set",
        "\n  clang 19 or newer on PATH: not there",
        "nvidia-cuda-nvrtc==13.0.88",
        "kernel-gen package",
        "KERNEL_GEN_CUDA=off",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    // The same, for those who can do without: said aloud.
    let requests = [Request::new("k", PLAIN, arch("sm_80"))];
    let supplied = supply(&requests, None, &nothing, &SupplyOptions::default()).unwrap();
    assert_eq!(supplied.code, [Code::Source]);
    assert!(supplied.warnings[0].contains("no CUDA compiler was found; 1 kernel source(s) are embedded"));
    assert_eq!(supplied.summary, "CUDA: 1 kernel embedded as source for NVRTC at first use");
    let refuse = SupplyOptions { missing: Missing::Refuse, ..SupplyOptions::default() };
    assert_eq!(supply(&requests, None, &nothing, &refuse), Err(vec![error]));
    assert_eq!(supply(&[], None, &nothing, &refuse), Ok(Supplied::default()));
}

#[test]
fn a_compiler_that_is_there_and_does_not_serve_is_not_said_to_be_missing() {
    let root = Folder::new("serves");
    fake_nvcc(&root, "path/nvcc", "11.8.89");
    let library = root.join("libraries/libnvrtc.so.13");
    fs::create_dir_all(root.join("libraries")).unwrap();
    fs::write(&library, "no library").unwrap();
    let with = environment(&root, &[("PATH", root.join("path")), ("LD_LIBRARY_PATH", root.join("libraries"))]);
    let Ok(Found::Embed { why }) = find(&with, &[arch("sm_120")], Missing::Embed) else { panic!() };
    assert!(why.starts_with("no CUDA compiler serves (nvcc on PATH: nvcc 11.8.89 makes no code for sm_120"), "{why}");
    assert!(
        why.contains("; libnvrtc on LD_LIBRARY_PATH: ") && !why.contains("not set") && !why.contains('\n'),
        "{why}"
    );
    let error = find(&with, &[arch("sm_120")], Missing::Refuse).unwrap_err().to_string();
    assert!(error.starts_with(&format!("{why}. Looked at\n  KERNEL_GEN_NVCC: not set")), "{error}");
}

/// Of one toolkit the library comes first, whether a variable or PATH leads there.
#[test]
fn a_toolkit_s_library_comes_before_its_nvcc() {
    let root = Folder::new("library-first");
    fake_nvcc(&root, "home/bin/nvcc", "13.0.3");
    fs::create_dir_all(root.join("home/lib64")).unwrap();
    let library = root.join("home/lib64/libnvrtc.so.13");
    fs::write(&library, "no library").unwrap();
    for (variable, value) in [("CUDA_HOME", "home"), ("PATH", "home/bin")] {
        let tools = tools(&environment(&root, &[(variable, root.join(value))]));
        assert_eq!(tools[..2], [library.clone(), root.join("home/bin/nvcc")], "{variable}");
    }
}

/// A cache makes builds faster and decides nothing else: neither one that cannot be written nor one whose helper does not
/// run here takes the compiler away.
#[test]
fn a_cache_that_is_no_use_is_not_taken_for_a_missing_compiler() {
    let Some(compiler) = real("nvrtc") else { return };
    let root = Folder::new("no-use");
    fs::write(root.join("file"), "").unwrap();
    let unwritable = root.join("file/cache");
    let wrong = root.join("wrong");
    let first = super::nvrtc::Nvrtc::open(compiler.path(), Some(&wrong)).unwrap();
    drop(first);
    for helper in fs::read_dir(&wrong).unwrap().flatten() {
        root.script(&format!("wrong/{}", helper.file_name().display()), "exit 127");
    }
    let requests = [Request::new("plain", PLAIN, arch("sm_80"))];
    for (cache, warnings) in [(unwritable, 1), (wrong, 0)] {
        let with = environment(&root, &[("KERNEL_GEN_NVRTC", compiler.path().into()), ("KERNEL_GEN_CACHE", cache)]);
        let supplied = supply(&requests, None, &with, &SupplyOptions::default()).unwrap();
        assert!(matches!(supplied.code[..], [Code::Compiled(_)]), "{:?}", supplied.warnings);
        let told = supplied.warnings.iter().filter(|w| w.contains("the cache cannot be written")).count();
        assert_eq!(told, warnings, "{:?}", supplied.warnings);
    }
}

#[test]
fn a_tool_that_is_named_and_does_not_work_is_an_error() {
    let root = Folder::new("named");
    let broken = root.script("broken", "echo no such luck >&2; exit 1");
    let silent = root.script("silent", "exit 0");
    let old = root.script("old-clang", "echo 'clang version 14.0.6'");
    let bare = root.script("bare-clang", "case $1 in --version) echo 'clang version 20.1.0';; *) echo x86;; esac");
    let gone = root.join("gone");
    for (variable, value, reason) in [
        ("KERNEL_GEN_NVCC", &broken, "fails: no such luck"),
        ("NVCC", &gone, "there is no such program"),
        ("KERNEL_GEN_NVCC", &silent, "names no release of CUDA"),
        ("KERNEL_GEN_NVRTC", &gone, "there is no libnvrtc at"),
        ("KERNEL_GEN_NVRTC", &broken, ""),
        ("KERNEL_GEN_PTXAS", &silent, "names no release"),
        ("KERNEL_GEN_PTXAS", &gone, "there is no such program"),
        ("KERNEL_GEN_CLANG", &old, "19 or newer is needed"),
        ("KERNEL_GEN_CLANG", &bare, "without the nvptx64 target"),
        ("KERNEL_GEN_CUDA", &gone, "it can only be nvcc, nvrtc, clang, embed or off"),
    ] {
        let text =
            find(&environment(&root, &[(variable, value.clone())]), &[], Missing::Embed).unwrap_err().to_string();
        assert!(text.starts_with(&format!("{variable} is `{}`, but ", value.display())), "{text}");
        assert!(text.contains(reason) && text.ends_with("correct it or unset it"), "{text}");
    }
}

#[test]
fn a_compiler_that_is_too_old_for_an_architecture_is_passed_over_unless_it_was_named() {
    let root = Folder::new("old");
    let old = fake_nvcc(&root, "home/bin/nvcc", "11.8.89");
    fake_nvcc(&root, "path/nvcc", "12.0.76");
    let both = environment(&root, &[("PATH", root.join("path")), ("CUDA_HOME", root.join("home"))]);
    let name = |archs: &[Arch]| compiler(find(&both, archs, Missing::Refuse).unwrap()).name();
    assert_eq!(name(&[arch("sm_90")]), "nvcc 11.8.89");
    assert_eq!(name(&[arch("sm_80"), arch("sm_90a")]), "nvcc 12.0.76");
    let text = find(&both, &[arch("sm_120")], Missing::Refuse).unwrap_err().to_string();
    assert!(text.contains("nvcc in CUDA_HOME: nvcc 11.8.89 makes no code for sm_120; that needs CUDA 12.8"), "{text}");
    let named = environment(&root, &[("NVCC", old)]);
    let error = find(&named, &[arch("sm_90a")], Missing::Embed).unwrap_err();
    let needs = Some(Version(12, 0));
    assert_eq!(error, CudaError::ArchNotSupported { compiler: "nvcc 11.8.89".into(), arch: arch("sm_90a"), needs });
    let new = fake_nvcc(&root, "new/nvcc", "13.0.88");
    let error = find(&environment(&root, &[("NVCC", new)]), &[arch("sm_70")], Missing::Embed).unwrap_err();
    assert!(error.to_string().contains("use an older CUDA"), "{error}");
}

#[test]
fn the_user_decides_with_one_variable() {
    let root = Folder::new("decides");
    fake_nvcc(&root, "path/nvcc", "13.0.88");
    let with = |value: &'static str| {
        Environment::new(
            [("PATH", root.join("path").into_os_string()), ("KERNEL_GEN_CUDA", value.into())],
            &root.path(),
        )
    };
    assert!(matches!(find(&with("off"), &[], Missing::Refuse), Ok(Found::CpuOnly)));
    assert!(matches!(find(&with("embed"), &[], Missing::Refuse), Ok(Found::Embed { .. })));
    assert_eq!(compiler(find(&with("nvcc"), &[], Missing::Refuse).unwrap()).name(), "nvcc 13.0.88");
    // Whoever asks for clang does not get something else, nor nothing.
    let text = find(&with("clang"), &[], Missing::Embed).unwrap_err().to_string();
    assert!(text.contains("clang 19 or newer on PATH: not there") && !text.contains("nvcc on PATH"), "{text}");
    let requests = [Request::new("k", PLAIN, arch("sm_80"))];
    let supplied = supply(&requests, None, &with("off"), &SupplyOptions::default()).unwrap();
    assert_eq!((supplied.code, supplied.warnings), (vec![Code::Absent], vec![]));
}

#[test]
fn the_oldest_ptx_that_the_assembler_takes_is_chosen() {
    let root = Folder::new("lowest");
    let nvcc = fake_nvcc(&root, "nvcc", "13.0.88");
    let compiler = compiler(find(&environment(&root, &[("NVCC", nvcc)]), &[], Missing::Refuse).unwrap());
    let request = Request::new("k", "source", arch("sm_80"));
    let made = compiler.compile(&request, &Options::default(), None).unwrap();
    // 7.0 is refused with a demand for 7.4, so 7.1 to 7.3 are not tried.
    assert_eq!(made.ptx_version(), Some(Version(7, 4)));
    let tried = fs::read_to_string(root.join("calls")).unwrap();
    assert_eq!(tried.lines().filter(|l| l.contains("assemble.ptx")).count(), 3, "{tried}");
    assert_eq!(made.cubin.as_deref(), Some(&b"machine code"[..]));
    assert_eq!((made.log.kernels[0].registers, made.log.kernels[0].shared_bytes), (9, 128));
    let as_made = Options { lowest_ptx: false, ..Options::default() };
    assert_eq!(compiler.compile(&request, &as_made, None).unwrap().ptx_version(), Some(Version(9, 0)));
}

#[test]
fn what_is_cached_is_not_compiled_again() {
    let root = Folder::new("cached");
    let nvcc = fake_nvcc(&root, "nvcc", "13.0.88");
    let with = environment(&root, &[("NVCC", nvcc), ("KERNEL_GEN_CACHE", root.join("cache"))]);
    let requests: Vec<Request> =
        (0..5).map(|i| Request::new(format!("k{i}"), format!("source {i}"), arch("sm_80"))).collect();
    let options = |jobs| SupplyOptions { compile: Options { jobs, ..Options::default() }, missing: Missing::Refuse };
    let first = supply(&requests, None, &with, &options(4)).unwrap();
    assert_eq!(first.summary, "CUDA: 5 kernels compiled by nvcc 13.0.88");
    let before = calls(&root);
    assert!(before >= 5 * 2);
    let second = supply(&requests, None, &with, &options(1)).unwrap();
    assert_eq!((second, calls(&root)), (first, before));
    let mut other = requests[0].clone();
    other.flags.fast_math = true;
    supply(&[other], None, &with, &options(1)).unwrap();
    assert!(calls(&root) > before);
    // Another compiler is another entry.
    let newer = fake_nvcc(&root, "newer", "13.1.5");
    let with = environment(&root, &[("NVCC", newer), ("KERNEL_GEN_CACHE", root.join("cache"))]);
    let before = calls(&root);
    let third = supply(&requests[..1], None, &with, &options(1)).unwrap();
    assert_eq!(third.code[0].artifact().unwrap().compiler, "nvcc 13.1.5");
    assert!(calls(&root) > before);
}

#[test]
fn packaged_code_needs_no_compiler_and_that_of_another_source_is_not_used() {
    let root = Folder::new("packaged");
    let nvcc = fake_nvcc(&root, "nvcc", "13.0.88");
    let with = environment(&root, &[("NVCC", nvcc)]);
    let without = environment(&root, &[]);
    let requests = [Request::new("a", "one", arch("sm_80")), Request::new("b", "two", arch("sm_90a"))];
    let made = supply(&requests, None, &with, &SupplyOptions::default()).unwrap();
    let artifacts: Vec<Artifact> = made.code.iter().filter_map(|c| c.artifact().cloned()).collect();
    Artifacts::write(&root.join("tuned"), &artifacts).unwrap();
    let package = Artifacts::open(&root.join("tuned")).unwrap();
    let refuse = SupplyOptions { missing: Missing::Refuse, ..SupplyOptions::default() };
    let supplied = supply(&requests, Some(&package), &without, &refuse).unwrap();
    assert_eq!((supplied.summary.as_str(), supplied.warnings.len()), ("CUDA: 2 kernels packaged", 0));
    for (code, artifact) in supplied.code.iter().zip(&artifacts) {
        let Code::Packaged(packaged) = code else { panic!("{code:?}") };
        assert_eq!((&packaged.ptx, &packaged.cubin), (&artifact.ptx, &artifact.cubin));
        assert_eq!((&packaged.kernel, &packaged.compiler), (&artifact.kernel, &artifact.compiler));
    }
    // One source changed: it is compiled, the other one is not, and the user is told.
    let changed = [requests[0].clone(), Request::new("b", "two, changed", arch("sm_90a"))];
    let before = calls(&root);
    let supplied = supply(&changed, Some(&package), &with, &refuse).unwrap();
    assert!(matches!(supplied.code[..], [Code::Packaged(_), Code::Compiled(_)]));
    assert_eq!(supplied.summary, "CUDA: 1 kernel packaged, 1 kernel compiled by nvcc 13.0.88");
    assert!(supplied.warnings[0].contains("b for sm_90a was made from another source"), "{:?}", supplied.warnings);
    assert!(calls(&root) > before);
    assert!(supply(&changed, Some(&package), &without, &refuse).is_err());
    // Whoever wants no CUDA gets none, packaged or not.
    let off = Environment::new([("KERNEL_GEN_CUDA", OsString::from("off"))], &root.path());
    assert_eq!(supply(&requests, Some(&package), &off, &refuse).unwrap().code, [Code::Absent, Code::Absent]);
}

#[test]
fn all_sources_that_fail_are_told_with_what_the_compiler_says() {
    let root = Folder::new("failing");
    let nvcc = root.script(
        "nvcc",
        r#"case "$1" in --version) echo "release 13.0, V13.0.88"; exit 0;; esac
for last; do :; done; echo "$last(3): error: nonsense"; exit 2"#,
    );
    let requests = ["one", "two"].map(|name| Request::new(name, name, arch("sm_80")));
    let errors =
        supply(&requests, None, &environment(&root, &[("NVCC", nvcc)]), &SupplyOptions::default()).unwrap_err();
    let text: Vec<String> = errors.iter().map(CudaError::to_string).collect();
    assert_eq!(text.len(), 2);
    assert!(text[0].starts_with("compiling one for sm_80 failed: ") && text[0].ends_with("one.cu(3): error: nonsense"));
    assert!(text[1].contains("compiling two"));
    let poor = root.script(
        "poor",
        r#"case "$1" in --version) echo "release 13.0, V13.0.88"; exit 0;; esac
echo "gcc: fatal error: cannot execute 'cc1plus': No such file or directory" >&2; exit 1"#,
    );
    let errors =
        supply(&requests, None, &environment(&root, &[("NVCC", poor)]), &SupplyOptions::default()).unwrap_err();
    assert!(errors[0].to_string().contains("KERNEL_GEN_CUDA=nvrtc, which needs none"), "{}", errors[0]);
    let slow = root.script("slow", "case $1 in --version) echo 'release 13.0, V13.0.88';; *) sleep 60;; esac");
    let compiler = compiler(find(&environment(&root, &[("NVCC", slow)]), &[], Missing::Refuse).unwrap());
    let options = Options { limit: Duration::from_millis(100), ..Options::default() };
    let error = compiler.compile(&requests[0], &options, None).unwrap_err();
    assert!(matches!(error, CudaError::Timeout { .. }), "{error}");
}

#[test]
fn a_survey_lists_everything_that_works_and_everything_that_does_not() {
    let root = Folder::new("survey");
    let named = fake_nvcc(&root, "named", "13.0.1");
    fake_nvcc(&root, "path/nvcc", "13.0.3");
    root.script("path/clang", "echo 'clang version 14.0.6'");
    root.script("path/ptxas", "echo 'Cuda compilation tools, release 12.9, V12.9.86'");
    let all = [("KERNEL_GEN_NVCC", named), ("PATH", root.join("path")), ("KERNEL_GEN_NVRTC", root.join("gone"))];
    let survey = survey(&environment(&root, &all));
    let names: Vec<String> = survey.compilers.iter().map(|(how, c)| format!("{}: {how}", c.name())).collect();
    assert_eq!(names, ["nvcc 13.0.1: named by KERNEL_GEN_NVCC", "nvcc 13.0.3: nvcc on PATH"]);
    assert_eq!(survey.errors.len(), 1, "{:?}", survey.errors);
    assert!(survey.looked.iter().any(|l| l.to_string().contains("clang 14.0.6; 19 or newer is needed")));
    assert_eq!(survey.ptxas, Some((root.join("path/ptxas"), "12.9.86".to_string())));
}

/// A real compiler of the machine that the tests run on, or a line that says that the test did not run.
fn real(family: &str) -> Option<CudaCompiler> {
    let process = Environment::of_process();
    let variables = VARIABLES.iter().filter(|v| !matches!(**v, "KERNEL_GEN_CUDA" | "OUT_DIR" | "KERNEL_GEN_CACHE"));
    let mut all: Vec<(&str, OsString)> = variables.filter_map(|v| Some((*v, process.get(v)?.clone()))).collect();
    all.push(("KERNEL_GEN_CUDA", family.into()));
    // One that the tests shall not use for everything: it is ten times as slow as NVRTC.
    all.extend(std::env::var_os("KERNEL_GEN_TEST_NVCC").map(|nvcc| ("KERNEL_GEN_NVCC", nvcc)));
    match find(&Environment::new(all, Path::new("/")), &[arch("sm_80"), arch("sm_90a")], Missing::Refuse) {
        Ok(found) => Some(compiler(found)),
        Err(CudaError::NoCompiler { .. }) => {
            let name = if family == "nvrtc" { "NVRTC" } else { family };
            println!("[SKIP] no {name}: real compilation is not tested");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Compiles the kernels above for real and checks what every compiler must give.
fn check_real(compiler: &CudaCompiler, has_cubin: bool) {
    let options = Options { jobs: 2, ..Options::default() };
    let requests = [
        Request::new("copy/x", COPY, arch("sm_80")),
        Request::new("copy/x", COPY, arch("sm_90a")),
        Request::new("fence", FENCE, arch("sm_90a")),
    ];
    let made = compiler.compile_all(&requests, &options, None).unwrap();
    for (request, made) in requests.iter().zip(&made) {
        assert!(made.ptx.contains(&format!(".target {}", request.arch)), "{}", made.ptx);
        assert!(made.ptx.contains(".entry") && !made.ptx.ends_with('\0'));
        if has_cubin {
            assert!(made.cubin.as_ref().unwrap().starts_with(b"\x7fELF"));
            assert_eq!(made.log.kernels.len(), 1);
            assert!((4..=64).contains(&made.log.kernels[0].registers), "{:?}", made.log);
            assert!(!made.log.kernels[0].spills());
        }
        if compiler.assembler().is_some() {
            assert_eq!(made.ptx_version(), Some(request.arch.lowest_ptx()));
        }
    }
    if has_cubin {
        assert_eq!((made[0].log.kernels[0].kernel.as_str(), made[0].log.kernels[0].shared_bytes), ("copy", 512));
    }
    // The same again: the same bytes.
    assert_eq!(compiler.compile(&requests[0], &options, None).unwrap().ptx, made[0].ptx);
    // What is wrong is said with the line of the source, and does not end the compiler.
    let wrong = Request::new("wrong", "extern \"C\" __global__ void k() {\n  nonsense;\n}\n", arch("sm_80"));
    let text = compiler.compile(&wrong, &options, None).unwrap_err().to_string();
    assert!(text.contains("compiling wrong for sm_80 failed") && text.contains("wrong.cu"), "{text}");
    assert!(text.contains("nonsense"), "{text}");
    let plain = Request::new("plain", PLAIN, arch("sm_90"));
    assert!(compiler.compile(&plain, &options, None).unwrap().ptx.contains(".target sm_90\n"));
}

#[test]
fn nvrtc_compiles_for_real() {
    let Some(compiler) = real("nvrtc") else { return };
    check_real(&compiler, true);
    // NVRTC's assembler holds inline PTX against the architecture.
    let options = Options::default();
    let text = compiler.compile(&Request::new("f", FENCE, arch("sm_80")), &options, None).unwrap_err().to_string();
    assert!(text.contains("wgmma.fence"), "{text}");
    let late = Options { limit: Duration::ZERO, ..Options::default() };
    let error = compiler.compile(&Request::new("c", COPY, arch("sm_80")), &late, None).unwrap_err();
    assert!(matches!(error, CudaError::Timeout { .. }), "{error}");
    // The process that was ended is replaced.
    compiler.compile(&Request::new("c", COPY, arch("sm_80")), &options, None).unwrap();
    // Fewer registers than it wants: the spills are seen.
    let sums: String = (0..64).map(|i| format!("  float v{i} = x[{i} * 37 + threadIdx.x];\n")).collect();
    let uses: String = (0..64).rev().map(|i| format!("  x[{i} * 41 + threadIdx.x] = v{i};\n")).collect();
    let source = format!("extern \"C\" __global__ void spill(volatile float *x) {{\n{sums}{uses}}}\n");
    let mut request = Request::new("spill", source, arch("sm_80"));
    request.flags.max_registers = Some(24);
    let made = compiler.compile(&request, &options, None).unwrap();
    assert!(made.log.kernels[0].registers <= 24 && made.log.kernels[0].spills(), "{:?}", made.log);
}

#[test]
fn nvcc_compiles_for_real() {
    if let Some(compiler) = real("nvcc") {
        check_real(&compiler, true);
    }
}

#[test]
fn clang_compiles_for_real() {
    let Some(compiler) = real("clang") else { return };
    check_real(&compiler, compiler.assembler().is_some());
    let source = PLAIN.replace("+= 1.0f", "= expf(1.0f)");
    let error = compiler.compile(&Request::new("e", source, arch("sm_80")), &Options::default(), None).unwrap_err();
    assert!(error.to_string().contains("NVRTC and nvcc have"), "{error}");
    // A parameter in constant memory: either as CUDA has it, or not at all.
    let source = PLAIN.replace("float *x", "float *x, const __grid_constant__ float4 v").replace("1.0f", "*(&v.x)");
    match compiler.compile(&Request::new("g", source, arch("sm_90a")), &Options::default(), None) {
        Ok(made) => assert!(!made.ptx.contains("st.local"), "{}", made.ptx),
        Err(error) => assert!(error.to_string().contains("need clang 20 or newer"), "{error}"),
    }
}

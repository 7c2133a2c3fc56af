//! CUDA code of the user's own.
//!
//! The header is read as C++ with the words of CUDA left out, so it may declare kernels as CUDA does:
//!
//! ```cuda
//! extern "C" __global__ void scale(const float x[4][256], float y[4][256], float factor);
//! ```
//! becomes `scale(&dev, &x, &mut y, factor)`, a launch with the grid and block that the spec says, on any device: on one
//! that is no GPU it returns an error. Every function that the header declares is a kernel; what is for the source alone
//! stands between `#ifdef __CUDACC__` and `#endif`.

use super::Wrapped;
use super::bind::{Language, bind};
use super::signature::{Function, Type, functions, line_of, resolve};
use super::wrapper::ELEMENTS;
use kernel_gen::diagnostic::{Diagnostic, suggest};
use kernel_gen::emit::rust::{MAX_KERNEL_ARGS, OwnKernel, OwnModule, OwnParam, OwnParamKind, own_module};
use kernel_gen::generate::{Options, own_cuda};
use kernel_gen::spec::{ExternLaunch, ExternSpec, Spec};
use kernel_gen::toolchain::Compiler;
use kernel_gen::toolchain::cuda::Arch;
use std::path::Path;

/// Types that are passed by value, as Rust calls them.
const SCALARS: [&str; 13] =
    ["f32", "f64", "i8", "i16", "i32", "i64", "isize", "u8", "u16", "u32", "u64", "usize", "bool"];

/// The most arrays that a launch takes (`MAX_PARAMS` of the runtime).
const MAX_ARRAYS: usize = 12;

/// The most extents of an array: shapes of the runtime have no more.
const MAX_EXTENTS: usize = 6;

/// Adds a module with a launch for each kernel.
pub(super) fn wrap(
    spec: &Spec,
    item: &ExternSpec,
    compiler: Option<&Compiler>,
    options: &Options,
    wrapped: &mut Wrapped,
) -> Result<(), Vec<Diagnostic>> {
    let fault = |cause: String, help: &str| {
        vec![Diagnostic {
            file: spec.file.clone(),
            line: item.line,
            cause: cause.trim().replace('\n', " "),
            help: help.into(),
        }]
    };
    let own = own_cuda(spec, item).map_err(|e| vec![e])?;
    let header = Path::new(&spec.file).parent().unwrap_or(Path::new("")).join(&item.header);
    let text = std::fs::read_to_string(&header)
        .map_err(|e| fault(format!("\"{}\" cannot be read ({e})", header.display()), "save it as UTF-8"))?;
    let read = |language| {
        bind(&header, language, compiler)
            .map_err(|e| fault(format!("the header \"{}\" cannot be read: {e}", item.header), "correct the header"))
    };
    let ((bindings, included), (raw, _)) = (read(Language::Cuda)?, read(Language::CudaTypes)?);
    let declared = Header { file: &header, text: &text, bindings: &bindings };
    let kernels = kernels(spec, item, &declared)?;
    let sources = if options.cuda { own.sources } else { vec![] };
    let image = |arch: &str, image: String| arch.parse::<Arch>().map(|arch| (arch, image));
    let images = sources.iter().map(|source| image(&source.arch, source.image())).collect::<Result<_, _>>();
    wrapped.rust += &own_module(&OwnModule {
        name: item.name.clone(),
        source: item.source.clone(),
        raw,
        kernels,
        images: images.map_err(|e| fault(e.to_string(), "name another in `[targets] cuda`"))?,
        folder: options.images.clone(),
    });
    wrapped.cuda.extend(sources);
    wrapped.inputs.extend(own.inputs);
    wrapped.inputs.push(header);
    wrapped.inputs.extend(included);
    Ok(())
}

/// A header and what bindgen makes of it.
struct Header<'a> {
    file: &'a Path,
    text: &'a str,
    bindings: &'a str,
}

impl Header<'_> {
    /// What is wrong with a function of the header.
    fn fault(&self, function: &str, cause: String, help: &str) -> Diagnostic {
        let line = line_of(self.text, function);
        Diagnostic { file: self.file.display().to_string(), line, cause, help: help.into() }
    }
}

/// The kernels of a header with their launches: each has one, and each launch has a kernel.
fn kernels(spec: &Spec, item: &ExternSpec, header: &Header<'_>) -> Result<Vec<OwnKernel>, Vec<Diagnostic>> {
    let functions = functions(header.bindings, header.text);
    let mut faults = vec![];
    for launch in &item.launches {
        if !functions.iter().any(|function| function.name == launch.kernel) {
            let names: Vec<&str> = functions.iter().map(|f| f.name.as_str()).collect();
            let help = match names.is_empty() {
                true => "declare it there: extern \"C\" __global__ void ...".to_string(),
                false => suggest(&launch.kernel, &names),
            };
            let cause = format!("\"{}\" declares no kernel `{}`", item.header, launch.kernel);
            faults.push(Diagnostic { file: spec.file.clone(), line: launch.line, cause, help });
        }
    }
    let mut kernels = vec![];
    for function in &functions {
        match item.launches.iter().find(|launch| launch.kernel == function.name) {
            Some(launch) => match kernel(function, launch, header) {
                Ok(kernel) => kernels.push(kernel),
                Err(mut more) => faults.append(&mut more),
            },
            None => {
                let name = &function.name;
                let cause = format!("the spec has no launch of `{name}`");
                let help = format!(
                    "add [extern.launch.{name}] with its grid and block behind the [[extern]]; what is no kernel goes between \
                     #ifdef __CUDACC__ and #endif"
                );
                faults.push(header.fault(name, cause, &help));
            }
        }
    }
    if faults.is_empty() { Ok(kernels) } else { Err(faults) }
}

fn kernel(function: &Function, launch: &ExternLaunch, header: &Header<'_>) -> Result<OwnKernel, Vec<Diagnostic>> {
    let name = &function.name;
    let mut faults = vec![];
    let mut refuse = |cause: String, help: &str| faults.push(header.fault(name, cause, help));
    if function.mangled {
        refuse(format!("`{name}` is declared with a name of C++"), "declare it extern \"C\", so that it can be found");
    }
    if function.returns.is_some() {
        refuse(
            format!("`{name}` returns a value, so it is no kernel"),
            "declare the kernel that it launches, and say grid and block in the spec; functions for the CPU are not supported",
        );
    }
    let mut params = vec![];
    for (i, (param, ty)) in function.params.iter().enumerate() {
        match kind(param, ty, header.bindings) {
            Ok(kind) => {
                let name = if param == "dev" { format!("{param}_{i}") } else { param.clone() };
                params.push(OwnParam { name, kind });
            }
            Err((cause, help)) => refuse(format!("`{name}` cannot be launched: {cause}"), &help),
        }
    }
    let arrays = params.iter().filter(|p| matches!(p.kind, OwnParamKind::Array { .. })).count();
    if arrays > MAX_ARRAYS || params.len() > MAX_KERNEL_ARGS {
        let cause = format!("`{name}` has {arrays} arrays and {} parameters", params.len());
        refuse(cause, &format!("use at most {MAX_ARRAYS} arrays and {MAX_KERNEL_ARGS} parameters"));
    }
    let ExternLaunch { grid, block, shared_bytes, .. } = *launch;
    let kernel = OwnKernel { name: name.clone(), params, grid, block, shared_bytes };
    if faults.is_empty() { Ok(kernel) } else { Err(faults) }
}

/// What a launch passes for a parameter, or why it cannot and what helps.
fn kind(param: &str, ty: &Type, bindings: &str) -> Result<OwnParamKind, (String, String)> {
    match ty {
        Type::Pointer => Err((
            format!("`{param}` is a pointer to an unknown number of elements"),
            format!("declare it as an array, const if it is only read: const float {param}[64]"),
        )),
        Type::Array { element, extents, written } => {
            let element = resolve(bindings, element);
            if !ELEMENTS.contains(&element.as_str()) {
                let cause = format!("`{param}` is an array of `{element}`");
                return Err((cause, "use float, double, int32_t, int64_t or uint8_t".into()));
            }
            if !(1..=MAX_EXTENTS).contains(&extents.len()) || extents.contains(&0) {
                let cause = format!("`{param}` has the extents {extents:?}");
                return Err((cause, format!("use one to {MAX_EXTENTS}, none of them 0")));
            }
            Ok(OwnParamKind::Array { element, extents: extents.clone(), written: *written })
        }
        Type::Value(path) => {
            let path = resolve(bindings, path);
            if SCALARS.contains(&path.as_str()) || path.starts_with("::std::os::raw::c_") {
                return Ok(OwnParamKind::Scalar(path));
            }
            Err((format!("`{param}` is a `{path}` by value"), "pass its members one by one: numbers or bool".into()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEC: &str = "schema = 1\n[targets]\ncuda = [\"sm_80\"]\n[[extern]]\nname = \"mine\"\nsource = \"mine.cu\"\n\
                        header = \"mine.h\"\n[extern.launch.scale]\ngrid = [4, 2]\nblock = [64]\nshared = 256\n";

    /// What becomes of the kernels of a header that bindgen reads like this.
    fn read(text: &str, bindings: &str) -> Result<Vec<OwnKernel>, Vec<String>> {
        let spec = Spec::parse(SPEC, "kernels.toml").unwrap();
        let header = Header { file: Path::new("mine.h"), text, bindings };
        kernels(&spec, &spec.externs[0], &header).map_err(|all| all.iter().map(Diagnostic::to_string).collect())
    }

    #[test]
    fn a_kernel_gets_its_launch_and_its_parameters() {
        let text = "\nextern \"C\" __global__ void scale(const real x[3][8], float y[24], int n, bool up, float dev);";
        let bindings = "pub type real = f32 ; unsafe extern \"C\" { pub fn scale (x : * mut [[real ; 8usize] ; 3usize] , \
                        y : * mut [f32 ; 24usize] , n : :: std :: os :: raw :: c_int , up : bool , dev : f32) ; }";
        let kernels = read(text, bindings).unwrap();
        let OwnKernel { grid, block, shared_bytes, params, .. } = &kernels[0];
        assert_eq!((*grid, *block, *shared_bytes), ([4, 2, 1], [64, 1, 1], 256));
        let array = |extents: &[u64], written| OwnParamKind::Array {
            element: "f32".into(),
            extents: extents.to_vec(),
            written,
        };
        let scalar = |ty: &str| OwnParamKind::Scalar(ty.into());
        let expected = [
            ("x", array(&[3, 8], false)),
            ("y", array(&[24], true)),
            ("n", scalar("::std::os::raw::c_int")),
            ("up", scalar("bool")),
            ("dev_4", scalar("f32")),
        ];
        assert_eq!(params.iter().map(|p| (p.name.as_str(), p.kind.clone())).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn everything_that_is_wrong_is_said_with_its_line() {
        let text = "\nvoid scal(int n);\nint launch(float *x);\n";
        let bindings = "unsafe extern \"C\" { pub fn scal (n : i32) ; pub fn launch (x : * mut f32) -> i32 ; }";
        assert_eq!(
            read(text, bindings).unwrap_err(),
            [
                "kernels.toml:8: \"mine.h\" declares no kernel `scale`; did you mean `scal`? Allowed: scal, launch",
                "mine.h:2: the spec has no launch of `scal`; add [extern.launch.scal] with its grid and block behind the \
                 [[extern]]; what is no kernel goes between #ifdef __CUDACC__ and #endif",
                "mine.h:3: the spec has no launch of `launch`; add [extern.launch.launch] with its grid and block behind \
                 the [[extern]]; what is no kernel goes between #ifdef __CUDACC__ and #endif",
            ]
        );
        let text = "\n\nint scale(float *x, half h[4], Config c, const float z[0]);\n";
        let bindings = "unsafe extern \"C\" { # [link_name = \"\\u{1}_Z5scale\"] pub fn scale (x : * mut f32 , h : * mut \
                        [half ; 4usize] , c : Config , z : * const [f32 ; 0usize]) -> i32 ; }";
        let help = "declare the kernel that it launches, and say grid and block in the spec; functions for the CPU are not \
                    supported";
        assert_eq!(
            read(text, bindings).unwrap_err(),
            [
                "mine.h:3: `scale` is declared with a name of C++; declare it extern \"C\", so that it can be found".into(),
                format!("mine.h:3: `scale` returns a value, so it is no kernel; {help}"),
                "mine.h:3: `scale` cannot be launched: `x` is a pointer to an unknown number of elements; declare it as an \
                 array, const if it is only read: const float x[64]"
                    .into(),
                "mine.h:3: `scale` cannot be launched: `h` is an array of `half`; use float, double, int32_t, int64_t or \
                 uint8_t"
                    .into(),
                "mine.h:3: `scale` cannot be launched: `c` is a `Config` by value; pass its members one by one: numbers or \
                 bool"
                    .into(),
                "mine.h:3: `scale` cannot be launched: `z` has the extents [0]; use one to 6, none of them 0".to_string(),
            ]
        );
        let nothing = read("", "").unwrap_err();
        assert_eq!(nothing.len(), 1);
        assert!(nothing[0].ends_with("declare it there: extern \"C\" __global__ void ..."), "{nothing:?}");
    }

    #[test]
    fn more_parameters_than_a_launch_passes_are_refused() {
        let arrays: Vec<String> = (0..13).map(|i| format!("a{i} : * mut [f32 ; 4usize]")).collect();
        let bindings = format!("unsafe extern \"C\" {{ pub fn scale ({}) ; }}", arrays.join(" , "));
        assert_eq!(
            read("void scale(", &bindings).unwrap_err(),
            ["mine.h:1: `scale` has 13 arrays and 13 parameters; use at most 12 arrays and 20 parameters"]
        );
    }
}

//! Which of a user's CFLAGS kernels are compiled with.
//!
//! Distributions and build systems set CFLAGS for everything. Most flags are right for kernels as well: optimisation for a
//! processor, hardening, debug information. [`sort`] takes out those that are not, so that a build neither fails nor computes
//! something else because of them, and refuses those that contradict the build. What is taken out:
//!
//! | flags | why |
//! |---|---|
//! | `-W...`, `-pedantic`, `-pedantic-errors` | warnings are for authors; with `-Werror` they end builds. They change no code |
//! | `-fsanitize=...`, `--coverage`, `-fprofile-...`, `-pg`, `-finstrument-functions` | instrumented objects need a runtime that Rust does not link |
//! | `-ffast-math`, `-Ofast` and the flags that these stand for, `-frounding-math`, `-mfpmath=`, `-mrecip` | kernels compute the numbers that the spec's `math` promises |
//! | `-fno-pic`, `-fpie` and their like | objects go into programs and libraries of any kind |
//! | `-mno-avx...`, `-mno-sse...`, `-mno-fma`, `-mno-f16c` | a kernel for such a processor is chosen when the program runs |
//!
//! All but warnings are told ([`Sorted::told`]).

use super::ToolError;
use std::ffi::OsString;

/// Flags, sorted.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Sorted {
    /// Those that stay, in their order.
    pub(super) kept: Vec<OsString>,
    /// A line for each kind that was taken out, warnings aside.
    pub(super) told: Vec<String>,
}

/// What is done with a flag.
enum Verdict {
    Keep,
    /// It changes nothing of the code.
    Drop,
    /// Why it is taken out.
    Tell(&'static str),
    /// What it does that nothing can be compiled with.
    Refuse(&'static str),
}

const NEEDS_RUNTIME: &str = "instrumented code needs a runtime that Rust's linker is not told of";
const CHANGES_NUMBERS: &str = "kernels compute what `math` in the spec promises";
const NOT_ANYWHERE: &str = "kernels are linked into programs and libraries of every kind";
const AT_RUN_TIME: &str = "which instructions are used is decided where the program runs";

/// Flags whose value is the next argument.
const TAKES_VALUE: [&str; 22] = [
    "-Xclang",
    "-Xassembler",
    "-Xpreprocessor",
    "-Xlinker",
    "-include",
    "-imacros",
    "-I",
    "-isystem",
    "-iquote",
    "-idirafter",
    "-isysroot",
    "--sysroot",
    "-D",
    "-U",
    "-arch",
    "-target",
    "--param",
    "-mllvm",
    "-L",
    "-B",
    "-z",
    "-T",
];

/// Sorts the arguments of a compiler for a target.
pub(super) fn sort(arguments: &[OsString], target: &str) -> Result<Sorted, ToolError> {
    let mut sorted = Sorted::default();
    let mut told: Vec<(&str, Vec<String>)> = vec![];
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let flag = argument.to_string_lossy();
        match classify(&flag, target) {
            Verdict::Keep => {
                sorted.kept.push(argument.clone());
                if TAKES_VALUE.contains(&&*flag) {
                    sorted.kept.extend(arguments.next().cloned());
                }
            }
            Verdict::Drop => {}
            Verdict::Tell(why) => match told.iter_mut().find(|(known, _)| *known == why) {
                Some((_, flags)) => flags.push(flag.into_owned()),
                None => told.push((why, vec![flag.into_owned()])),
            },
            Verdict::Refuse(reason) => {
                let (flag, reason, target) = (flag.into_owned(), reason.to_string(), target.to_string());
                return Err(ToolError::Flag { flag, reason, target });
            }
        }
    }
    let line = |(why, flags): (&str, Vec<String>)| {
        format!("the C compiler's flags `{}` are not used for kernels: {why}", flags.join(" "))
    };
    sorted.told = told.into_iter().map(line).collect();
    Ok(sorted)
}

fn classify(flag: &str, target: &str) -> Verdict {
    let starts = |all: &[&str]| all.iter().any(|start| flag.starts_with(start));
    if flag == "-pedantic" || flag == "-pedantic-errors" || flag.starts_with("-W") && !starts(&["-Wl,", "-Wa,", "-Wp,"])
    {
        return Verdict::Drop;
    }
    let instrumented = [
        "-fsanitize=",
        "--coverage",
        "-fprofile-",
        "-fcoverage-",
        "-fcs-profile-",
        "-finstrument-functions",
        "-fxray-instrument",
    ];
    if starts(&instrumented) || matches!(flag, "-coverage" | "-pg" | "-p" | "-ftest-coverage") {
        return Verdict::Tell(NEEDS_RUNTIME);
    }
    let numbers = [
        "-ffast-math",
        "-Ofast",
        "-funsafe-math-optimizations",
        "-fassociative-math",
        "-freciprocal-math",
        "-ffinite-math-only",
        "-fno-honor-nans",
        "-fno-honor-infinities",
        "-fno-signed-zeros",
        "-fapprox-func",
        "-frounding-math",
        "-fsingle-precision-constant",
        "-fcx-limited-range",
        "-ffp-model=",
        "-fdenormal-fp-math",
        "-ffp-eval-method",
        "-mfpmath=",
        "-mrecip",
        "-mdaz-ftz",
        "-fexcess-precision=",
    ];
    if starts(&numbers) {
        return Verdict::Tell(CHANGES_NUMBERS);
    }
    let position = ["-fno-pic", "-fno-PIC", "-fno-pie", "-fno-PIE", "-fpie", "-fPIE", "-no-pie"];
    if starts(&position) {
        return Verdict::Tell(NOT_ANYWHERE);
    }
    if starts(&["-mno-avx", "-mno-sse", "-mno-ssse", "-mno-fma", "-mno-f16c"]) {
        return Verdict::Tell(AT_RUN_TIME);
    }
    match flag {
        "-E" | "-S" | "-M" | "-MM" | "-fsyntax-only" => Verdict::Refuse("with which the compiler writes no object"),
        "-c" | "-o" => Verdict::Refuse("which says what is compiled to what, and the build says that"),
        "-m16" | "-m32" | "-mx32" | "-m64" if !flag_of_width(target).contains(&flag) => {
            Verdict::Refuse("which makes code for another kind of machine")
        }
        _ => Verdict::Keep,
    }
}

/// The flags that say how wide a target's words are, as it is.
fn flag_of_width(target: &str) -> &'static [&'static str] {
    let arch = target.split('-').next().unwrap_or_default();
    match arch.contains("64") || arch == "s390x" {
        true if target.ends_with("x32") => &["-mx32"],
        true => &["-m64"],
        false => &["-m32"],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const X86: &str = "x86_64-unknown-linux-gnu";

    fn of(text: &str) -> Vec<OsString> {
        text.split_whitespace().map(OsString::from).collect()
    }

    fn kept(text: &str) -> String {
        let kept = sort(&of(text), X86).unwrap().kept;
        kept.join(std::ffi::OsStr::new(" ")).into_string().unwrap()
    }

    /// What Debian, Fedora, Arch and Gentoo set, but for what is another program's business.
    #[test]
    fn flags_of_distributions_stay() {
        for text in [
            "-g -O2 -ffile-prefix-map=/build=. -fstack-protector-strong -fstack-clash-protection -fcf-protection -Wdate-time",
            "-O2 -flto=auto -fexceptions -g -grecord-gcc-switches -pipe -Wall -Wp,-D_FORTIFY_SOURCE=3 -m64 -march=x86-64-v2",
            "-march=native -O3 -pipe -fno-plt -Wl,-z,now -Wa,--noexecstack -mtune=generic -mprefer-vector-width=512",
            "-O3 -ffunction-sections -fdata-sections -fPIC -gdwarf-4 -fno-omit-frame-pointer -m64 -w",
        ] {
            let sorted = sort(&of(text), X86).unwrap();
            assert_eq!(sorted.told, Vec::<String>::new(), "{text}");
            let warnings = ["-Wdate-time", "-Wall"];
            let expected: Vec<&str> = text.split_whitespace().filter(|f| !warnings.contains(f)).collect();
            assert_eq!(kept(text), expected.join(" "));
        }
    }

    #[test]
    fn flags_that_would_break_a_build_or_its_numbers_are_taken_out_and_told_by_kind() {
        let text = "-O2 -fsanitize=address,undefined -Werror -Wconversion -pedantic-errors -ffinite-math-only --coverage \
                    -fno-pic -Ofast -mno-avx2 -fprofile-generate -g";
        let sorted = sort(&of(text), X86).unwrap();
        assert_eq!(sorted.kept, of("-O2 -g"));
        let told: Vec<&str> = sorted.told.iter().map(|line| line.split('`').nth(1).unwrap()).collect();
        let expected = [
            "-fsanitize=address,undefined --coverage -fprofile-generate",
            "-ffinite-math-only -Ofast",
            "-fno-pic",
            "-mno-avx2",
        ];
        assert_eq!(told, expected);
        assert!(sorted.told[0].ends_with(
            "are not used for kernels: instrumented code needs a runtime that Rust's linker is not told of"
        ));
    }

    #[test]
    fn the_value_of_a_flag_is_no_flag() {
        let text = "-include -Werror -Xclang -ffast-math -D -S -isystem -m32 -O2";
        assert_eq!(kept(text), text);
    }

    #[test]
    fn flags_for_another_machine_or_no_object_are_refused_with_the_flag() {
        for (flags, target, refused) in [
            ("-m64 -m32", X86, Some("-m32")),
            ("-mx32", X86, Some("-mx32")),
            ("-m64", X86, None),
            ("-m32", "i686-unknown-linux-gnu", None),
            ("-m64", "i686-unknown-linux-gnu", Some("-m64")),
            ("-mx32", "x86_64-unknown-linux-gnux32", None),
            ("-m64", "s390x-unknown-linux-gnu", None),
            ("-O2 -fsyntax-only", X86, Some("-fsyntax-only")),
            ("-S", X86, Some("-S")),
            ("-o x.o", X86, Some("-o")),
        ] {
            match (sort(&of(flags), target), refused) {
                (Ok(sorted), None) => assert_eq!(sorted.kept, of(flags)),
                (Err(error), Some(flag)) => {
                    let text = error.to_string();
                    assert!(
                        text.starts_with(&format!("the C compiler's flags for {target} have `{flag}`, w")),
                        "{text}"
                    );
                    assert!(text.contains("take it out of CFLAGS"), "{text}");
                }
                (result, _) => panic!("{flags} {target}: {result:?}"),
            }
        }
    }
}

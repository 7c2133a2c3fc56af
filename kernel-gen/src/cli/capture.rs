//! `kernel-gen capture`: lines of a spec for shapes that a program met.
//!
//! Shapes alone do not say strides or paddings. A captured call is taken for one of the kernel's workloads at another shape: the keys of
//! that workload that are shapes of tensors get the captured ones, and the result counts if the spec's own reader makes exactly the
//! captured shapes of it.

use super::output::{Failure, Output};
use super::project::SpecFile;
use crate::spec::{KernelSpec, Spec, WorkloadSpec};
use clap::Args;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

/// Writes lines of a spec for the shapes that a program had no kernel for
///
/// A program that runs with KERNEL_GEN_CAPTURE=FILE appends the shapes of each `_dyn` call that no workload fits to FILE. Paste what is
/// printed below the workloads of the kernel that is named.
#[derive(Args, Clone, Debug)]
pub(super) struct Arguments {
    /// What programs have written
    #[arg(value_name = "FILE")]
    captured: PathBuf,
    #[command(flatten)]
    spec: SpecFile,
}

/// From so many numbers of images or rows on they are one range.
const RANGE: usize = 3;

/// Tensors by name.
type Shapes = Vec<(String, Vec<i64>)>;

/// Calls that may be one range: the kernel, the workload that they are at another shape, and their shapes without the first extents.
type Group = (usize, usize, Vec<Vec<i64>>);

pub(super) fn run(arguments: &Arguments) -> Result<Output, Failure> {
    let read = |path: &PathBuf| fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()));
    let file = arguments.spec.given().cloned().unwrap_or_else(|| PathBuf::from("kernels.toml"));
    let (captured, text) = (read(&arguments.captured)?, read(&file)?);
    let spec = Spec::load(&file)?;
    let source = Source { spec: &spec, lines: text.lines().collect() };
    let mut errors = vec![];
    let mut found: BTreeMap<Group, Vec<Shapes>> = BTreeMap::new();
    for (number, line) in captured.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let place = || format!("{}:{}", arguments.captured.display(), number + 1);
        match source.place(line) {
            Ok(None) => {}
            Ok(Some((kernel, workload, shapes))) => {
                let rest = shapes.iter().map(|(_, shape)| shape.get(1..).unwrap_or_default().to_vec()).collect();
                let group = found.entry((kernel, workload, rest)).or_default();
                if !group.contains(&shapes) {
                    group.push(shapes);
                }
            }
            Err(why) => errors.push(format!("{}: {why}", place())),
        }
    }
    if !errors.is_empty() {
        return Err(Failure::Lines(errors));
    }
    let mut out = String::new();
    let mut last = None;
    for ((kernel, workload, _), mut group) in found {
        if last.replace(kernel) != Some(kernel) {
            let _ = writeln!(out, "# Below the workloads of the [[kernel]] `{}`:", spec.kernels[kernel].name);
        }
        group.sort();
        let range = (group.len() >= RANGE).then(|| source.range(kernel, workload, &group)).flatten();
        let single =
            |shapes: &Shapes| source.block(kernel, workload, &|param| whole(shapes, param)).unwrap_or_default();
        out += &range.unwrap_or_else(|| group.iter().map(single).collect());
    }
    if out.is_empty() {
        out = format!("{} has kernels for all that was captured\n", spec.file);
    }
    Ok(Output::success(out))
}

/// The shape of a tensor as a spec writes it.
fn whole(shapes: &Shapes, param: &str) -> Option<Vec<String>> {
    let (_, shape) = shapes.iter().find(|(name, _)| name == param)?;
    Some(shape.iter().map(i64::to_string).collect())
}

/// The tensors of a workload, of so many units if it is a range.
fn shapes_of(workload: &WorkloadSpec, units: Option<i64>) -> Shapes {
    let of = match (&workload.range, units) {
        (Some(range), Some(units)) => &range.at(&workload.workload, units),
        _ => &workload.workload,
    };
    workload.slices.params(of).into_iter().map(|p| (p.name.to_string(), p.shape)).collect()
}

/// Whether a workload has these shapes.
fn has(workload: &WorkloadSpec, shapes: &Shapes) -> bool {
    let Some(range) = &workload.range else { return shapes_of(workload, None) == *shapes };
    // The number of units is the first extent of what varies.
    let units = shapes.iter().filter_map(|(_, shape)| shape.first().copied());
    let mut units = units.filter(|units| (range.least..=range.most).contains(units));
    units.any(|units| shapes_of(workload, Some(units)) == *shapes)
}

/// A spec and its text.
struct Source<'a> {
    spec: &'a Spec,
    lines: Vec<&'a str>,
}

impl Source<'_> {
    /// The kernel that a captured line is of, which of its workloads it is at another shape, and the shapes; nothing if the spec has the
    /// shapes by now.
    fn place(&self, line: &str) -> Result<Option<(usize, usize, Shapes)>, String> {
        let wrong = || format!("`{line}` is no captured call; these look like `product a=3,4 b=4,5 y=3,5`");
        let mut words = line.split_whitespace();
        let function = words.next().ok_or_else(wrong)?;
        let shape = |word: &str| -> Option<(String, Vec<i64>)> {
            let (name, shape) = word.split_once('=')?;
            let extents = shape.split(',').filter(|e| !e.is_empty()).map(|e| e.parse().ok());
            Some((name.to_string(), extents.collect::<Option<_>>()?))
        };
        let shapes: Shapes = words.map(shape).collect::<Option<_>>().ok_or_else(wrong)?;
        let kernel = self.spec.kernels.iter().position(|kernel| kernel.name == function);
        let kernel = kernel.ok_or_else(|| format!("{} has no kernel `{function}`", self.spec.file))?;
        let workloads = &self.spec.kernels[kernel].workloads;
        if workloads.iter().any(|workload| has(workload, &shapes)) {
            return Ok(None);
        }
        let fits = |workload: &usize| {
            let block = self.block(kernel, *workload, &|param| whole(&shapes, param));
            block.and_then(|block| self.read(kernel, &block)).is_some_and(|read| has(&read, &shapes))
        };
        match (0..workloads.len()).find(fits) {
            Some(workload) => Ok(Some((kernel, workload, shapes))),
            None => Err(format!(
                "no workload of `{function}` has these shapes with tensors of other sizes; the strides, say, are others: write it by \
                 hand"
            )),
        }
    }

    /// One workload for several numbers of images or rows.
    fn range(&self, kernel: usize, workload: usize, group: &[Shapes]) -> Option<String> {
        let (first, last) = (group.first()?, group.last()?);
        let block = self.block(kernel, workload, &|param| {
            let (least, mut shape) = (whole(first, param)?, whole(last, param)?);
            if least != shape {
                shape[0] = format!("\"{}..{}\"", least[0], shape[0]);
            }
            Some(shape)
        })?;
        let read = self.read(kernel, &block)?;
        group.iter().all(|shapes| has(&read, shapes)).then_some(block)
    }

    /// A workload's lines, in which `shape` says what the keys that are shapes of tensors become. Names, counts and slices are the
    /// workload's own.
    fn block(&self, kernel: usize, workload: usize, shape: &dyn Fn(&str) -> Option<Vec<String>>) -> Option<String> {
        let workload = &self.spec.kernels[kernel].workloads[workload];
        let mut left = shapes_of(workload, None);
        let mut out = String::from("\n[[kernel.workload]]\n");
        for line in self.section(workload.line) {
            let Some((key, value)) = line.split_once('=') else { continue };
            if ["name", "count", "from", "into"].contains(&key.trim()) {
                continue;
            }
            let extents = value.trim().strip_prefix('[').and_then(|v| v.split_once(']'));
            let extents: Option<Vec<i64>> = extents.and_then(|(all, _)| {
                let most = |e: &str| e.trim().trim_matches('"').rsplit("..").next()?.parse().ok();
                all.split(',').filter(|e| !e.trim().is_empty()).map(most).collect()
            });
            match extents.and_then(|extents| left.iter().position(|(_, shape)| *shape == extents)) {
                Some(at) => {
                    let (param, _) = left.remove(at);
                    let _ = writeln!(out, "{} = [{}]", key.trim(), shape(&param)?.join(", "));
                }
                None => out += &format!("{line}\n"),
            }
        }
        Some(out)
    }

    /// The lines below a header, without comments.
    fn section(&self, header: usize) -> impl Iterator<Item = &str> {
        let below = self.lines.iter().skip(header).take_while(|line| !line.trim_start().starts_with('['));
        below.map(|line| line.trim()).filter(|line| !line.is_empty() && !line.starts_with('#'))
    }

    /// What the spec's reader makes of a workload of a kernel.
    fn read(&self, kernel: usize, block: &str) -> Option<WorkloadSpec> {
        let KernelSpec { line, .. } = &self.spec.kernels[kernel];
        let lines: Vec<&str> = self.section(*line).collect();
        let text = format!("schema = 1\n[[kernel]]\n{}\n{block}", lines.join("\n"));
        let spec = Spec::parse(&text, "captured").ok()?;
        spec.kernels.into_iter().next()?.workloads.into_iter().next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEC: &str = "schema = 1\n\n[[kernel]]\nname = \"conv\"\nop = \"conv2d\"\nlayout = \"NCHW\"\nepilogue = [\"bias\"]\n\
        [[kernel.workload]]\nname = \"first\"\ncount = 2\ninput = [1, 3, 9, 9]\nweight = [8, 3, 3, 3]\n# halves\nstride = [2, 2]\n\
        padding = [1, 1]\n\n[[kernel.workload]]\nname = \"second\"\ninput = [\"1..4\", 8, 5, 5]\nweight = [8, 8, 1, 1]\n\n\
        [[kernel]]\nname = \"product\"\nop = \"matmul\"\n[[kernel.workload]]\na = [4, 8]\nb = [8, 16]\n";

    fn capture(captured: &str) -> Result<String, String> {
        let folder = crate::toolchain::Temporary::new().unwrap();
        let (file, spec) = (folder.path().join("met"), folder.path().join("kernels.toml"));
        fs::write(&file, captured).unwrap();
        fs::write(&spec, SPEC).unwrap();
        let said = run(&Arguments { captured: file, spec: SpecFile::of(Some(&spec)) })
            .map(|output| output.text)
            .map_err(|e| e.to_string());
        let hide = |text: String| text.replace(&folder.path().display().to_string(), "DIR");
        said.map(hide).map_err(hide)
    }

    #[test]
    fn a_captured_call_is_a_workload_at_another_shape() {
        // Declared by now: of the range; not declared: another image, and a batch beyond the range.
        let text = capture(
            "conv x=3,8,5,5 w=8,8,1,1 bias=8 y=3,8,5,5\nconv x=1,3,33,17 w=4,3,5,5 bias=4 y=1,4,16,8\n\
             conv x=9,8,5,5 w=8,8,1,1 bias=8 y=9,8,5,5\nconv x=9,8,5,5 w=8,8,1,1 bias=8 y=9,8,5,5\n",
        );
        assert_eq!(
            text.unwrap(),
            "# Below the workloads of the [[kernel]] `conv`:\n\n[[kernel.workload]]\ninput = [1, 3, 33, 17]\n\
             weight = [4, 3, 5, 5]\nstride = [2, 2]\npadding = [1, 1]\n\n[[kernel.workload]]\ninput = [9, 8, 5, 5]\n\
             weight = [8, 8, 1, 1]\n"
        );
        assert_eq!(
            capture("conv x=3,8,5,5 w=8,8,1,1 bias=8 y=3,8,5,5\n").unwrap(),
            "DIR/kernels.toml has kernels for all that was captured\n"
        );
    }

    #[test]
    fn many_numbers_of_rows_are_a_range() {
        let lines: String = [7, 40, 3].map(|m| format!("product a={m},8 b=8,16 c={m},16\n")).concat();
        let text = capture(&lines).unwrap();
        assert_eq!(
            text,
            "# Below the workloads of the [[kernel]] `product`:\n\n[[kernel.workload]]\na = [\"3..40\", 8]\nb = [8, 16]\n"
        );
        // Of which more than the number of rows differs are not.
        let lines: String = [7, 40, 3].map(|m| format!("product a={m},8 b=8,{m} c={m},{m}\n")).concat();
        assert_eq!(capture(&lines).unwrap().matches("[[kernel.workload]]").count(), 3);
    }

    #[test]
    fn what_cannot_be_told_is_said_with_its_line() {
        let errors = capture(
            "product a=1,8 b=8,16 c=1,16\nother x=1\nproduct a=1,x\nconv x=1,3,9,9 w=8,3,3,3 bias=8 y=1,8,9,9\n",
        );
        let errors = errors.unwrap_err();
        let lines: Vec<&str> = errors.lines().collect();
        assert_eq!(lines[0], "DIR/met:2: DIR/kernels.toml has no kernel `other`");
        assert!(lines[1].starts_with("DIR/met:3: `product a=1,x` is no captured call"), "{errors}");
        assert!(lines[2].starts_with("DIR/met:4: no workload of `conv` has these shapes"), "{errors}");
        assert_eq!(lines.len(), 3);
    }
}

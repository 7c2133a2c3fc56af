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

/// At least this many different numbers of images or rows become one range.
const RANGE: usize = 3;

/// Tensors by name.
type Shapes = Vec<(String, Vec<i64>)>;

/// Calls that may be one range: the kernel, the workload that they are at another shape, and their shapes without the first extents.
type Group = (usize, usize, Vec<Vec<i64>>);

/// Lines for a kernel.
struct Edit {
    kernel: usize,
    /// The workloads that the lines replace.
    replaced: Vec<usize>,
    block: String,
}

pub(super) fn run(arguments: &Arguments) -> Result<Output, Failure> {
    let read = |path: &PathBuf| fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()));
    let file = arguments.spec.path();
    let (captured, text) = (read(&arguments.captured)?, read(&file)?);
    let spec = Spec::load(&file)?;
    let source = Source { spec: &spec, lines: text.lines().collect() };
    let edits = source.edits(&captured, &arguments.captured.display().to_string()).map_err(Failure::Lines)?;
    if edits.is_empty() {
        return Ok(Output::success(format!("{} has kernels for all that was captured\n", spec.file)));
    }
    if let Err(errors) = Spec::parse(&source.edited(&edits), &spec.file) {
        let why = errors.iter().map(|error| format!("{}; {}", error.cause, error.help));
        return Err(Failure::Lines(
            std::iter::once(format!("{}: what was captured must be written by hand, because", spec.file))
                .chain(why)
                .collect(),
        ));
    }
    let mut out = String::new();
    let mut last = None;
    for edit in edits {
        let kernel = &spec.kernels[edit.kernel];
        let line = |workload: &usize| format!("line {}", kernel.workloads[*workload].line);
        let lines: Vec<String> = edit.replaced.iter().map(line).collect();
        let gap = if out.is_empty() { "" } else { "\n" };
        if !lines.is_empty() {
            let _ = writeln!(
                out,
                "{gap}# In the [[kernel]] `{}`, replaces the workload of {}:",
                kernel.name,
                lines.join(" and of ")
            );
        } else if last != Some(edit.kernel) {
            let _ = writeln!(out, "{gap}# Below the workloads of the [[kernel]] `{}`:", kernel.name);
        }
        last = lines.is_empty().then_some(edit.kernel);
        out += &edit.block;
    }
    Ok(Output::success(out))
}

/// The shapes without the first extents.
fn rest(shapes: &Shapes) -> Vec<Vec<i64>> {
    shapes.iter().map(|(_, shape)| shape.get(1..).unwrap_or_default().to_vec()).collect()
}

/// The shape of a tensor as a spec writes it.
fn whole(shapes: &Shapes, param: &str) -> Option<Vec<String>> {
    let (_, shape) = shapes.iter().find(|(name, _)| name == param)?;
    Some(shape.iter().map(i64::to_string).collect())
}

/// The tensors of a workload; of a range, those of `units` images or rows.
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
    /// The lines that the spec lacks. `file` is where `captured` was read, for errors.
    fn edits(&self, captured: &str, file: &str) -> Result<Vec<Edit>, Vec<String>> {
        let mut errors = vec![];
        let mut found: BTreeMap<Group, Vec<Shapes>> = BTreeMap::new();
        for (number, line) in captured.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            match self.place(line) {
                Ok(None) => {}
                Ok(Some((kernel, workload, shapes))) => {
                    let group = found.entry((kernel, workload, rest(&shapes))).or_default();
                    if !group.contains(&shapes) {
                        group.push(shapes);
                    }
                }
                Err(why) => errors.push(format!("{file}:{}: {why}", number + 1)),
            }
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        let edits = found.into_iter().map(|((kernel, workload, rest), mut group)| {
            group.sort();
            self.range(kernel, workload, &rest, &group).unwrap_or_else(|| {
                let single = |shapes: &Shapes| {
                    self.block(kernel, workload, false, &|param| whole(shapes, param)).unwrap_or_default()
                };
                Edit { kernel, replaced: vec![], block: group.iter().map(single).collect() }
            })
        });
        // What replaces a workload comes last in its kernel: its heading is of its own lines only.
        let mut edits: Vec<Edit> = edits.collect();
        edits.sort_by_key(|edit| (edit.kernel, !edit.replaced.is_empty()));
        Ok(edits)
    }

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
            let block = self.block(kernel, *workload, false, &|param| whole(&shapes, param));
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

    /// One workload for several numbers of images or rows, if they are many or the spec has a range for some of them. A spec has one
    /// workload for shapes that differ in nothing else once one of them is a range, so this one replaces those that there are.
    fn range(&self, kernel: usize, workload: usize, same: &[Vec<i64>], group: &[Shapes]) -> Option<Edit> {
        let workloads = &self.spec.kernels[kernel].workloads;
        let replaced: Vec<usize> =
            (0..workloads.len()).filter(|w| rest(&shapes_of(&workloads[*w], None)) == same).collect();
        let is_range = replaced.iter().any(|w| workloads[*w].range.is_some());
        // A range has one name.
        let names = replaced.iter().filter(|w| workloads[**w].name.is_some()).count();
        if !is_range && group.len() < RANGE || names > 1 {
            return None;
        }
        let declared = replaced.iter().map(|w| &workloads[*w]).flat_map(|w| match &w.range {
            Some(range) => vec![shapes_of(w, Some(range.least)), shapes_of(w, Some(range.most))],
            None => vec![shapes_of(w, None)],
        });
        let mut all: Vec<Shapes> = declared.chain(group.iter().cloned()).collect();
        all.sort();
        let (first, last) = (all.first()?, all.last()?);
        let named = replaced.iter().find(|w| workloads[**w].name.is_some()).or(replaced.first());
        let block = self.block(kernel, *named.unwrap_or(&workload), named.is_some(), &|param| {
            let (least, mut shape) = (whole(first, param)?, whole(last, param)?);
            if least != shape {
                shape[0] = format!("\"{}..{}\"", least[0], shape[0]);
            }
            Some(shape)
        })?;
        let read = self.read(kernel, &block)?;
        // Shapes alone do not say strides and slices: each workload that is replaced must be one of the new range.
        let of_range = read.range.as_ref()?;
        let is_one = |w: &usize| {
            let declared = &workloads[*w];
            let units = declared.range.as_ref().map(|range| range.most).or_else(|| {
                let sizes = (of_range.least..=of_range.most).rev();
                sizes.into_iter().find(|units| shapes_of(&read, Some(*units)) == shapes_of(declared, None))
            });
            units.is_some_and(|units| of_range.at(&read.workload, units) == declared.workload)
                && read.slices == declared.slices
        };
        let is_right = all.iter().all(|shapes| has(&read, shapes)) && replaced.iter().all(is_one);
        is_right.then_some(Edit { kernel, replaced, block })
    }

    /// A workload's lines, in which `shape` says what the keys that are shapes of tensors become. Names, counts and slices are the
    /// workload's own, and kept only if the lines replace it.
    fn block(
        &self,
        kernel: usize,
        workload: usize,
        replaces: bool,
        shape: &dyn Fn(&str) -> Option<Vec<String>>,
    ) -> Option<String> {
        let workload = &self.spec.kernels[kernel].workloads[workload];
        let mut left = shapes_of(workload, None);
        let mut out = String::from("\n[[kernel.workload]]\n");
        for line in self.section(workload.line).1 {
            let Some((key, value)) = line.split_once('=') else { continue };
            if !replaces && ["name", "count", "from", "into"].contains(&key.trim()) {
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

    /// The lines below a header without comments, each with its whole value; and the number of lines to their end.
    fn section(&self, header: usize) -> (usize, Vec<String>) {
        let (mut end, mut lines, mut depth) = (header, Vec::<String>::new(), 0);
        for (at, line) in self.lines.iter().enumerate().skip(header) {
            let line = without_comment(line).trim();
            if depth == 0 && line.starts_with('[') {
                break;
            }
            if line.is_empty() {
                continue;
            }
            match lines.last_mut().filter(|_| depth > 0) {
                Some(last) => *last = format!("{last} {line}"),
                None => lines.push(line.to_string()),
            }
            depth += line.matches('[').count() as i64 - line.matches(']').count() as i64;
            end = at + 1;
        }
        (end, lines)
    }

    /// The text of the spec with the edits.
    fn edited(&self, edits: &[Edit]) -> String {
        let mut gone = vec![false; self.lines.len()];
        let mut below: BTreeMap<usize, String> = BTreeMap::new();
        for Edit { kernel, replaced, block } in edits {
            let workloads = &self.spec.kernels[*kernel].workloads;
            for header in replaced.iter().map(|workload| workloads[*workload].line) {
                gone[header - 1..self.section(header).0].fill(true);
            }
            let end = workloads.iter().map(|workload| self.section(workload.line).0).max();
            *below.entry(end.unwrap_or(self.lines.len())).or_default() += block;
        }
        let mut text = String::new();
        for (at, line) in self.lines.iter().enumerate() {
            if !gone[at] {
                text += &format!("{line}\n");
            }
            text += below.get(&(at + 1)).map_or("", String::as_str);
        }
        text
    }

    /// What the spec's reader makes of a workload of a kernel.
    fn read(&self, kernel: usize, block: &str) -> Option<WorkloadSpec> {
        let KernelSpec { line, .. } = &self.spec.kernels[kernel];
        let text = format!("schema = 1\n[[kernel]]\n{}\n{block}", self.section(*line).1.join("\n"));
        let spec = Spec::parse(&text, "captured").ok()?;
        spec.kernels.into_iter().next()?.workloads.into_iter().next()
    }
}

/// A line of TOML up to its comment.
fn without_comment(line: &str) -> &str {
    let mut quote = None;
    let comment = line.find(|c: char| {
        quote = match (quote, c) {
            (None, '"' | '\'') => Some(c),
            (Some(open), c) if open == c => None,
            (quote, _) => quote,
        };
        quote.is_none() && c == '#'
    });
    &line[..comment.unwrap_or(line.len())]
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

    /// The text of the spec with the lines for what was captured, which the spec's reader takes and finds nothing missing from.
    fn pasted(spec: &str, captured: &str) -> String {
        let edited = |text: &str| {
            let spec = Spec::parse(text, "kernels.toml").unwrap_or_else(|errors| panic!("{text}\n{errors:?}"));
            let source = Source { spec: &spec, lines: text.lines().collect() };
            source.edited(&source.edits(captured, "met").unwrap())
        };
        let text = edited(spec);
        assert_eq!(edited(&text), text);
        text
    }

    #[test]
    fn a_captured_call_is_a_workload_at_another_shape() {
        // Declared by now: of the range; not declared: another image, and a batch beyond the range.
        let captured = "conv x=3,8,5,5 w=8,8,1,1 bias=8 y=3,8,5,5\nconv x=1,3,33,17 w=4,3,5,5 bias=4 y=1,4,16,8\n\
             conv x=9,8,5,5 w=8,8,1,1 bias=8 y=9,8,5,5\nconv x=9,8,5,5 w=8,8,1,1 bias=8 y=9,8,5,5\n";
        assert_eq!(
            capture(captured).unwrap(),
            "# Below the workloads of the [[kernel]] `conv`:\n\n[[kernel.workload]]\ninput = [1, 3, 33, 17]\n\
             weight = [4, 3, 5, 5]\nstride = [2, 2]\npadding = [1, 1]\n\n\
             # In the [[kernel]] `conv`, replaces the workload of line 17:\n\n[[kernel.workload]]\nname = \"second\"\n\
             input = [\"1..9\", 8, 5, 5]\nweight = [8, 8, 1, 1]\n"
        );
        pasted(SPEC, captured);
        assert_eq!(
            capture("conv x=3,8,5,5 w=8,8,1,1 bias=8 y=3,8,5,5\n").unwrap(),
            "DIR/kernels.toml has kernels for all that was captured\n"
        );
    }

    #[test]
    fn many_numbers_of_rows_are_a_range() {
        let lines = |all: [i64; 3]| all.map(|m| format!("product a={m},8 b=8,16 c={m},16\n")).concat();
        // The declared size is one of them.
        assert_eq!(
            capture(&lines([7, 40, 3])).unwrap(),
            "# In the [[kernel]] `product`, replaces the workload of line 25:\n\n[[kernel.workload]]\na = [\"3..40\", 8]\nb = [8, 16]\n"
        );
        pasted(SPEC, &lines([7, 40, 3]));
        let others: String = lines([7, 40, 3]).replace(",16", ",32");
        assert_eq!(
            capture(&others).unwrap(),
            "# Below the workloads of the [[kernel]] `product`:\n\n[[kernel.workload]]\na = [\"3..40\", 8]\nb = [8, 32]\n"
        );
        pasted(SPEC, &others);
        // Of which more than the number of rows differs are not.
        let lines: String = [7, 40, 3].map(|m| format!("product a={m},8 b=8,{m} c={m},{m}\n")).concat();
        assert_eq!(capture(&lines).unwrap().matches("[[kernel.workload]]").count(), 3);
        pasted(SPEC, &lines);
    }

    #[test]
    fn values_over_several_lines_are_read_and_two_names_stay_two() {
        let spec = "schema = 1\n[[kernel]]\nname = \"product\"\nop = \"matmul\" # of # all\n\
            [[kernel.workload]]\nname = \"one\"\na = [\n  4, # rows\n  8,\n]\nb = [8, 16]\n\
            [[kernel.workload]]\nname = \"two\"\na = [5, 8]\nb = [8, 16]\n";
        let text = pasted(spec, "product a=1,8 b=8,32 c=1,32\nproduct a=9,16 b=16,16 c=9,16\n");
        assert!(text.ends_with("[[kernel.workload]]\na = [9, 16]\nb = [16, 16]\n"), "{text}");
        let all: String = [1, 2, 3].map(|m| format!("product a={m},8 b=8,16 c={m},16\n")).concat();
        assert_eq!(pasted(spec, &all).matches("[[kernel.workload]]").count(), 5);
    }

    #[test]
    fn a_workload_of_another_dilation_is_not_replaced() {
        let spec = "schema = 1\n[[kernel]]\nname = \"conv\"\nop = \"conv2d\"\nlayout = \"NCHW\"\n\
            [[kernel.workload]]\ninput = [1, 8, 9, 9]\nweight = [8, 8, 3, 3]\npadding = 1\n\
            [[kernel.workload]]\ninput = [2, 8, 9, 9]\nweight = [8, 8, 3, 3]\npadding = 2\ndilation = 2\n";
        let all: String = [3, 4, 5].map(|n| format!("conv x={n},8,9,9 w=8,8,3,3 y={n},8,9,9\n")).concat();
        let text = pasted(spec, &all);
        assert_eq!((text.matches("[[kernel.workload]]").count(), text.contains("..")), (5, false), "{text}");
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

//! `[extern.launch.<function>]`: how a CUDA kernel of the user's own is launched.

use super::names::illegal;
use crate::diagnostic::{Found, Report, Table};
use crate::target::Target;

/// Most blocks of a grid along x, y, z. Source: "CUDA C++ Programming Guide", section "Technical Specifications per
/// Compute Capability", as the two limits below.
const MAX_GRID: [i64; 3] = [2_147_483_647, 65_535, 65_535];
/// Most threads of a block along x, y, z.
const MAX_BLOCK: [i64; 3] = [1024, 1024, 64];
/// Most threads of a block.
const MAX_THREADS: i64 = 1024;

/// How a kernel is launched.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExternLaunch {
    /// The kernel's name in the header and in the source.
    pub kernel: String,
    /// Blocks of the grid along x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block along x, y, z.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory of a block.
    pub shared_bytes: u32,
    /// The line in the spec.
    pub line: usize,
}

impl ExternLaunch {
    /// Threads of a block.
    pub fn threads(&self) -> u32 {
        self.block.iter().product()
    }
}

/// Reads the launches of an `[[extern]]` whose source is CUDA: at least one.
pub(super) fn read_all(
    table: &mut Table<'_, '_>,
    report: &mut Report,
    targets: &[&'static Target],
) -> Option<Vec<ExternLaunch>> {
    let example = "[extern.launch.scale] with grid = [4] and block = [256], say, for each kernel of the header";
    table.require(report, "launch", example);
    let launches = table.table(report, "launch")?.named_tables(report, "extern.launch");
    // All of them, whatever is wrong with one.
    let all: Vec<Option<ExternLaunch>> =
        launches.into_iter().map(|(name, mut table)| read(name, &mut table, report, targets)).collect();
    all.into_iter().collect()
}

fn read(
    name: Found<&str>,
    table: &mut Table<'_, '_>,
    report: &mut Report,
    targets: &[&'static Target],
) -> Option<ExternLaunch> {
    let before = report.len();
    if let Some((cause, help)) = illegal(name.value) {
        report.error(&name.span, cause, help);
    } else if name.value == "raw" {
        report.error(&name.span, "`raw` is a module that is generated anyway", "give the kernel another name");
    }
    table.require(report, "grid", "grid = [4]: blocks along x, y, z");
    table.require(report, "block", "block = [256]: threads of a block along x, y, z");
    let grid = extents(table, report, "grid", MAX_GRID, "blocks");
    let block = extents(table, report, "block", MAX_BLOCK, "threads");
    let threads = block.map_or(1, |b| b.iter().map(|n| i64::from(*n)).product());
    if threads > MAX_THREADS {
        let cause = format!("`block` has {threads} threads");
        report.error(&table.span_of("block"), cause, format!("use at most {MAX_THREADS} threads a block"));
    }
    let shared = table.integer(report, "shared");
    let bytes = shared.as_ref().map_or(0, |s| s.value);
    if let Some(shared) = &shared {
        check_shared(report, shared, targets);
    }
    table.finish(report);
    let launch = ExternLaunch {
        kernel: name.value.to_string(),
        grid: grid?,
        block: block?,
        shared_bytes: u32::try_from(bytes).unwrap_or_default(),
        line: report.line(name.span.start),
    };
    (report.len() == before).then_some(launch)
}

/// One to three extents, the rest 1.
fn extents(
    table: &mut Table<'_, '_>,
    report: &mut Report,
    key: &'static str,
    most: [i64; 3],
    what: &str,
) -> Option<[u32; 3]> {
    let found = table.integers(report, key, &[1, 2, 3])?;
    if !found.value.iter().zip(most).all(|(n, most)| (1..=most).contains(n)) {
        let [x, y, z] = most;
        let help = format!("use at least 1 and at most {x}, {y} and {z} {what} along x, y and z");
        report.error(&found.span, format!("`{key}` is {:?}", found.value), help);
        return None;
    }
    let mut all = [1; 3];
    for (extent, n) in all.iter_mut().zip(&found.value) {
        *extent = u32::try_from(*n).ok()?;
    }
    Some(all)
}

/// Whether every target gives a block so much shared memory.
fn check_shared(report: &mut Report, shared: &Found<i64>, targets: &[&'static Target]) {
    let bytes = shared.value;
    if !(0..=i64::from(u32::MAX)).contains(&bytes) {
        report.error(&shared.span, format!("`shared` is {bytes}"), "say how many bytes a block gets");
        return;
    }
    let limits = targets.iter().filter_map(|t| t.cuda().map(|c| (c.shared_per_block_optin, &t.name)));
    if let Some((limit, target)) = limits.min().filter(|(limit, _)| bytes > *limit) {
        let cause = format!("`shared` is {bytes} bytes, and a block on {target} has at most {limit}");
        report.error(&shared.span, cause, format!("use less, or leave {target} out of `[targets] cuda`"));
    }
}

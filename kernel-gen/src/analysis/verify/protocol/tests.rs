//! What is found out beforehand changes no report: each kernel is run with a plan and without one.

use super::plan::{Detail, Reads};
use super::{Launch, applies, of_clusters};
use crate::analysis::verify::access::is_hardware;
use crate::ir::parse::parse;
use crate::ir::{Barrier, Gpu, Kernel, Stmt};
use std::fs;
use std::path::Path;

/// What is reported of each launch, and how many statements were run.
fn reports(kernel: &Kernel, detail: Detail) -> Vec<(Option<String>, u64)> {
    let launches = kernel.body.iter().filter(|s| matches!(s, Stmt::For(l) if is_hardware(l.kind) && applies(s)));
    let report = |s: &Stmt| {
        let mut steps = 0;
        let (fault, _) = of_clusters(kernel, &Launch::new(kernel, s, detail), &mut steps);
        (fault.map(|f| f.to_string()), steps)
    };
    launches.map(report).collect()
}

/// Both ways; whether there was a fault.
fn same(kernel: &Kernel) -> bool {
    let with = reports(kernel, Detail::Full);
    assert_eq!(with, reports(kernel, Detail::Plain), "{kernel}");
    with.iter().any(|(fault, _)| fault.is_some())
}

/// The kernel without its `nth` statement that orders something, if it has so many.
fn without(kernel: &Kernel, nth: usize) -> Option<Kernel> {
    fn remove(block: &mut Vec<Stmt>, left: &mut usize) -> bool {
        for at in 0..block.len() {
            let orders = match &block[at] {
                Stmt::Barrier(Barrier::Block | Barrier::Warp) => true,
                Stmt::Gpu(g) => matches!(
                    g,
                    Gpu::Commit(_)
                        | Gpu::Wait(..)
                        | Gpu::ClusterBarrier
                        | Gpu::FenceAsync
                        | Gpu::Mbarrier(..)
                        | Gpu::CopyAsync { .. }
                        | Gpu::StoreAt { .. }
                ),
                _ => false,
            };
            if orders && *left == 0 {
                block.remove(at);
                return true;
            }
            *left -= usize::from(orders);
            let found = match &mut block[at] {
                Stmt::For(l) => remove(&mut l.body, left),
                Stmt::If { then, otherwise, .. } => remove(then, left) || remove(otherwise, left),
                _ => false,
            };
            if found {
                return true;
            }
        }
        false
    }
    let (mut out, mut left) = (kernel.clone(), nth);
    remove(&mut out.body, &mut left).then_some(out)
}

#[test]
fn kernels_of_the_filetests_are_reported_alike() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../specs/filetests");
    let (mut launches, mut faults) = (0, 0);
    for name in ["good", "faults"] {
        for entry in fs::read_dir(folder.join(name)).expect("the folder of filetests") {
            let text = fs::read_to_string(entry.expect("an entry").path()).expect("a file");
            let Ok(kernel) = parse(&text) else { continue };
            if !crate::analysis::verify::structure::check(&kernel).is_empty() {
                continue;
            }
            launches += reports(&kernel, Detail::Full).len();
            faults += usize::from(same(&kernel));
        }
    }
    assert!(launches > 30 && faults > 20, "{launches} launches, {faults} with faults");
}

/// A ring of copies that the warps of two blocks fill and read, each its own, as in a convolution that splits its sum:
/// all lanes read the same pixels, groups of lanes other ones, and each lane weights of its own.
const RING: &str = "\
kernel ring {
  param x: f32[8, 2, 64] global read
  param w: f32[8, 2, 64] global read
  param y: f32[4, 32] global write
  for block in 0..2 grid.x {
    for warp in 0..2 thread.y {
      for lane in 0..32 thread.x {
        alloc pixels: f32[2, 2, 64] shared
        alloc weights: f32[2, 2, 64] shared
        for ahead in 0..2 {
          for part in 0..2 unrolled {
            copy_async pixels[warp: 1, ahead: 1, part * 32 + lane: 1] = x[ahead: 1, warp: 1, part * 32 + lane: 1]
          }
          copy_async weights[warp: 1, ahead: 1, lane * 2: 2] = w[ahead: 1, warp: 1, lane * 2: 2]
          commit copy
        }
        alloc acc: f32[4] register
        for a in 0..4 unrolled {
          acc[a] = 0.0f32
        }
        for k in 0..8 {
          let slot: i64 = k % 2
          wait copy 1
          barrier warp
          for own in 0..2 unrolled {
            alloc weight: f32[1] register
            weight[0] = weights[warp, slot, lane * 2 + own]
            for pixel in 0..16 unrolled {
              acc[pixel % 4] += weight[0] * pixels[warp, slot, own * 16 + pixel] init 0.0f32 over ()
            }
            for near in 0..8 unrolled {
              acc[near % 4] += weight[0] * pixels[warp, slot, lane / 8 * 8 + near] init 0.0f32 over ()
            }
          }
          barrier warp
          if k < 6 {
            for part_1 in 0..2 unrolled {
              copy_async pixels[warp: 1, slot: 1, part_1 * 32 + lane: 1] = x[k + 2: 1, warp: 1, part_1 * 32 + lane: 1]
            }
            copy_async weights[warp: 1, slot: 1, lane * 2: 2] = w[k + 2: 1, warp: 1, lane * 2: 2]
          }
          commit copy
        }
        y[block * 2 + warp, lane] = acc[0] + acc[1] + acc[2] + acc[3]
      }
    }
  }
}
";

#[test]
fn a_ring_without_any_one_of_its_statements_is_reported_alike() {
    let ring = parse(RING).expect("a kernel");
    assert!(!same(&ring));
    let mut faults = 0;
    let kernels: Vec<Kernel> = (0..).map_while(|nth| without(&ring, nth)).collect();
    for kernel in &kernels {
        faults += usize::from(same(kernel));
    }
    // Two copies whose source nobody waits for, and each barrier, commit and wait.
    assert!(kernels.len() >= 9 && faults >= 6, "{faults} of {} have faults", kernels.len());
    // Indices that meet the ring of the other warp, and those of another slot.
    for (from, to) in [
        ("pixels[warp, slot, own * 16 + pixel]", "pixels[1 - warp, slot, own * 16 + pixel]"),
        ("pixels[warp, slot, lane / 8 * 8 + near]", "pixels[warp, 1 - slot, lane / 8 * 8 + near]"),
        ("weights[warp, slot, lane * 2 + own]", "weights[1 - warp, slot, lane * 2 + own]"),
        ("if k < 6", "if k < 5"),
        ("let slot: i64 = k % 2", "let slot: i64 = k / 4"),
    ] {
        let changed = RING.replace(from, to);
        assert_ne!(changed, RING, "{from}");
        assert!(same(&parse(&changed).expect("a kernel")) || from.starts_with("if"), "{from} -> {to}");
    }
}

#[test]
fn what_a_warp_has_read_is_remembered_where_lanes_read_alike() {
    let ring = parse(RING).expect("a kernel");
    let launch = Launch::new(&ring, &ring.body[0], Detail::Full);
    // The pixels of all lanes, and those of groups of lanes. Weights are other ones in each lane.
    assert_eq!(launch.memos, 2);
    fn walks(block: &super::plan::Block<'_>) -> usize {
        let own = |n: &super::plan::Node<'_>| usize::from(matches!(n.reads, Reads::Walk));
        block.nodes.iter().map(|n| own(n) + n.inner.iter().map(walks).sum::<usize>()).sum()
    }
    assert_eq!(walks(&launch.plan), 0);
    let plain = Launch::new(&ring, &ring.body[0], Detail::Plain);
    assert!(plain.memos == 0 && walks(&plain.plan) > 0);
}

/// The fault of the only launch of a kernel.
fn run(text: &str) -> Option<String> {
    let kernel = parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let launch = kernel.body.iter().find(|s| applies(s)).expect("a launch");
    let (fault, _) = of_clusters(&kernel, &Launch::new(&kernel, launch, Detail::Full), &mut 0);
    fault.map(|f| f.to_string())
}

/// The texts with each replaced by the other, all of which are there.
fn changed(text: &str, by: &[(&str, &str)]) -> String {
    by.iter().fold(text.to_string(), |text, (from, to)| {
        assert!(text.contains(from), "{from}");
        text.replace(from, to)
    })
}

#[test]
fn a_long_ring_is_run_to_its_end_and_a_fault_in_any_turn_is_found() {
    let copies = changed(
        RING,
        &[
            ("f32[8, 2, 64]", "f32[60, 2, 64]"),
            ("0..8 {\n          let", "0..60 {\n          let"),
            ("k < 6", "k < 58"),
        ],
    );
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../specs/filetests/good/hopper_ring.kg");
    let hopper = fs::read_to_string(folder).expect("a filetest");
    let longer = [
        ("a: f16[128, 192]", "a: f16[128, 3840]"),
        ("b: f16[192, 128]", "b: f16[3840, 128]"),
        ("pk in 0..3", "pk in 0..60"),
        ("ck in 0..3", "ck in 0..60"),
        ("pt * 3", "pt * 60"),
        ("ct * 3", "ct * 60"),
    ];
    let mbarriers = changed(&hopper, &longer);
    for text in [&copies, &mbarriers] {
        assert_eq!(run(text), None);
    }
    let wait = "wait copy 1\n";
    for turn in [7, 31, 58] {
        // One wait is not there, one load announces too little, one slot is not given back, one index is another one.
        let without = format!("if k != {turn} {{\n wait copy 1\n }}\n");
        let faults = [
            (run(&changed(&copies, &[(wait, &without)])), format!("k = {turn}")),
            (
                run(&changed(
                    &mbarriers,
                    &[(
                        "mbarrier expect full[pi % 2] bytes 16384",
                        &format!("if pk != {turn} {{\n mbarrier expect full[pi % 2] bytes 16384\n }}"),
                    )],
                )),
                format!("ck = {turn}"),
            ),
            (
                run(&changed(
                    &mbarriers,
                    &[(
                        "if t == 0 {\n              mbarrier arrive",
                        &format!("if t == 0 && ck != {turn} {{\n              mbarrier arrive"),
                    )],
                )),
                String::new(),
            ),
            (
                run(&changed(
                    &mbarriers,
                    &[("+= sa[ci % 2: 1,", &format!("+= sa[(ci + select(ck < {turn}, 0, 1)) % 2: 1,"))],
                )),
                String::new(),
            ),
        ];
        for (at, (fault, place)) in faults.iter().enumerate() {
            let Some(fault) = fault else { panic!("turn {turn}, change {at}: no fault") };
            assert!(fault.contains(place), "turn {turn}: {fault}");
        }
    }
}

#[test]
fn what_is_passed_by_is_what_would_have_been_run() {
    let copies = |n: i64| {
        let (end, size) = (format!("0..{n} {{\n          let"), format!("f32[{n}, 2, 64]"));
        changed(
            RING,
            &[("f32[8, 2, 64]", &size), ("0..8 {\n          let", &end), ("k < 6", &format!("k < {}", n - 2))],
        )
    };
    for n in [9, 20, 101] {
        assert!(!same(&parse(&copies(n)).expect("a kernel")));
    }
}

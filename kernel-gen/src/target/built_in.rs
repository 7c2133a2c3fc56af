//! The targets that there are.

use super::device::{Cpu, Target};
use super::read;
use std::sync::OnceLock;

/// The data files. The order is that of [`Target::all`].
const FILES: [(&str, &str); 22] = [
    ("x86-64.toml", include_str!("data/x86-64.toml")),
    ("x86-64-v3.toml", include_str!("data/x86-64-v3.toml")),
    ("x86-64-v3-vnni.toml", include_str!("data/x86-64-v3-vnni.toml")),
    ("x86-64-v4.toml", include_str!("data/x86-64-v4.toml")),
    ("x86-64-v4-vnni.toml", include_str!("data/x86-64-v4-vnni.toml")),
    ("x86-64-v4-amx.toml", include_str!("data/x86-64-v4-amx.toml")),
    ("aarch64.toml", include_str!("data/aarch64.toml")),
    ("aarch64-dotprod.toml", include_str!("data/aarch64-dotprod.toml")),
    ("aarch64-i8mm.toml", include_str!("data/aarch64-i8mm.toml")),
    ("sm_70.toml", include_str!("data/sm_70.toml")),
    ("sm_75.toml", include_str!("data/sm_75.toml")),
    ("sm_80.toml", include_str!("data/sm_80.toml")),
    ("sm_86.toml", include_str!("data/sm_86.toml")),
    ("sm_87.toml", include_str!("data/sm_87.toml")),
    ("sm_89.toml", include_str!("data/sm_89.toml")),
    ("sm_90.toml", include_str!("data/sm_90.toml")),
    ("sm_90a.toml", include_str!("data/sm_90a.toml")),
    ("sm_100.toml", include_str!("data/sm_100.toml")),
    ("sm_103.toml", include_str!("data/sm_103.toml")),
    ("sm_110.toml", include_str!("data/sm_110.toml")),
    ("sm_120.toml", include_str!("data/sm_120.toml")),
    ("sm_121.toml", include_str!("data/sm_121.toml")),
];

impl Target {
    /// Every target: CPU levels first, each architecture's from the lowest up.
    pub fn all() -> &'static [Target] {
        static TARGETS: OnceLock<Vec<Target>> = OnceLock::new();
        // The files are part of the crate: a test reads each, so that none can be wrong here.
        TARGETS.get_or_init(|| {
            FILES
                .iter()
                .map(|(file, text)| {
                    read::target(file, text)
                        .unwrap_or_else(|faults| panic!("a built-in target is wrong: {}", faults[0]))
                })
                .collect()
        })
    }

    /// The target with that name.
    pub fn find(name: &str) -> Option<&'static Target> {
        Target::all().iter().find(|t| t.name == name)
    }

    /// The CPU levels of an architecture (as Rust calls it), best first, but those for integers alone.
    pub fn cpu_levels(arch: &str) -> Vec<&'static Target> {
        levels(arch, false)
    }

    /// The CPU levels of an architecture that only workloads on integers are compiled for, best first.
    pub fn integer_levels(arch: &str) -> Vec<&'static Target> {
        levels(arch, true)
    }
}

/// The CPU levels of an architecture, best first.
fn levels(arch: &str, integers_only: bool) -> Vec<&'static Target> {
    let wanted = |c: &&Cpu| c.arch == arch && c.integers_only == integers_only;
    let mut levels: Vec<(&Target, &Cpu)> =
        Target::all().iter().filter_map(|t| t.cpu().filter(wanted).map(|c| (t, c))).collect();
    levels.sort_by_key(|(_, c)| std::cmp::Reverse(c.level));
    levels.into_iter().map(|(t, _)| t).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::verify::Limits;

    #[test]
    fn every_data_file_reads_and_carries_its_own_name() {
        for ((file, text), target) in FILES.iter().zip(Target::all()) {
            assert_eq!(read::target(file, text).as_ref(), Ok(target));
            assert_eq!(*file, format!("{}.toml", target.name));
            assert_eq!(Target::find(&target.name), Some(target));
        }
    }

    #[test]
    fn levels_of_an_architecture_come_best_first() {
        let names = |arch| Target::cpu_levels(arch).iter().map(|t| t.name.as_str()).collect::<Vec<_>>();
        assert_eq!(names("x86_64"), ["x86-64-v4", "x86-64-v3", "x86-64"]);
        let integers = |arch| Target::integer_levels(arch).iter().map(|t| t.name.as_str()).collect::<Vec<_>>();
        assert_eq!(integers("x86_64"), ["x86-64-v4-amx", "x86-64-v4-vnni", "x86-64-v3-vnni"]);
        assert_eq!(integers("aarch64"), ["aarch64-i8mm", "aarch64-dotprod"]);
        assert_eq!(names("aarch64"), ["aarch64"]);
        assert!(names("riscv64").is_empty());
    }

    #[test]
    fn limits_are_those_of_the_data_files() {
        let limits = |name: &str| Target::find(name).unwrap().limits();
        assert_eq!(limits("sm_90a").shared_bytes, 232_448);
        assert_eq!(limits("sm_75").shared_bytes, 65_536);
        for target in Target::all().iter().filter(|t| t.cuda().is_some()) {
            // No device has less than what kernels for any of them may use.
            assert!(target.limits().shared_bytes >= Limits::cuda().shared_bytes, "{}", target.name);
            let common = Limits { shared_bytes: Limits::cuda().shared_bytes, ..target.limits() };
            assert_eq!(common, Limits { opaque_fragments: target.name == "sm_70", ..Limits::cuda() });
        }
        assert_eq!(limits("x86-64-v3").vector_bytes, 32);
        assert_eq!(limits("aarch64").threads_per_block, 0);
    }

    #[test]
    fn peak_rates_are_those_of_the_datasheets() {
        let tflops = |name: &str| {
            let c = Target::find(name).and_then(Target::cuda).unwrap();
            (c.f32_flops_per_sm_clock * c.sm_count * c.clock_mhz) as f64 * 1e6 / 1e12
        };
        assert!((tflops("sm_80") - 19.5).abs() < 0.1);
        assert!((tflops("sm_89") - 91.6).abs() < 0.1);
        assert_eq!(Target::find("x86-64-v4").unwrap().cpu().unwrap().f32_flops_per_cycle(), 64);
    }

    #[test]
    fn occupancy_is_that_of_the_calculator() {
        let a100 = Target::find("sm_80").and_then(Target::cuda).unwrap();
        assert_eq!(a100.blocks_resident(256, 32, 0), 8);
        assert_eq!(a100.blocks_resident(256, 64, 0), 4);
        assert_eq!(a100.blocks_resident(256, 255, 0), 1);
        // 48 KiB and the reserved KiB: three fit into 164 KiB.
        assert_eq!(a100.blocks_resident(128, 32, 48 * 1024), 3);
        assert_eq!(a100.blocks_resident(32, 16, 0), 32);
        assert_eq!(a100.blocks_resident(2048, 16, 0), 0);
        assert_eq!(a100.blocks_resident(128, 16, 164 * 1024), 0);
    }
}

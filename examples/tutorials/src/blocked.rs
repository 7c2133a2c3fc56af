//! The three templates of "Writing Tunable Templates and Using the Auto-tuner" (Lianmin Zheng, Apache TVM), on a CPU.
//!
//! All of them are one schedule, a blocked product. They differ in who chooses the tile:
//!
//! | template | `tile_y`, `tile_x` | space for 512 x 512 |
//! |---|---|---|
//! | `matmul_v0` | 8, 8 | one config |
//! | `matmul_v1` | a list of candidates each: 1, 2, 4, 8, 16 | 25 configs |
//! | `matmul` | all splits of the extent into two factors | 100 configs |

use kernel_gen::ir::Scope;
use kernel_gen::schedule::{Schedule, ScheduleError, Tail};
use kernel_gen::space::{Config, Space, Split};
use kernel_gen::target::Target;
use kernel_gen::templates::{Scheduled, Template, TemplateError};
use kernel_gen::workload::{Matmul, Workload, naive};

/// Candidates of `matmul_v1`.
const CANDIDATES: [i64; 5] = [1, 2, 4, 8, 16];

/// One of the tutorial's templates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Blocked {
    /// Constant tiles: `matmul_v0`.
    V0,
    /// Tiles from a list of candidates, `define_knob`: `matmul_v1`.
    V1,
    /// Tiles that divide, `define_split`: `matmul`.
    Split,
}

impl Blocked {
    /// All three, in the tutorial's order.
    pub const ALL: [Blocked; 3] = [Blocked::V0, Blocked::V1, Blocked::Split];

    /// Rows and columns of the tile that a config says.
    pub fn tile(self, config: &Config) -> Result<[i64; 2], TemplateError> {
        Ok(match self {
            Blocked::V0 => [8, 8],
            Blocked::V1 => [config.int("tile_y")?, config.int("tile_x")?],
            Blocked::Split => [config.split("tile_y")?[1], config.split("tile_x")?[1]],
        })
    }
}

/// The tutorial's schedule: `yo, xo, k, yi, xi`.
#[allow(non_snake_case, reason = "the tutorial's names")]
pub fn schedule(workload: &Workload, [tile_y, tile_x]: [i64; 2]) -> Result<Schedule, ScheduleError> {
    let mut s = Schedule::new(naive(workload));
    let [sum, C] = [s.stage("acc")?, s.stage("c")?];

    // schedule according to config
    let [y, x] = s.axes(C)?;
    let [yo, yi] = s.split(y, tile_y, Tail::Guard)?;
    let [xo, xi] = s.split(x, tile_x, Tail::Guard)?;
    s.reorder(&[yo, xo, yi, xi])?;

    // The sums are a stage of their own here: a tile of them at a time, with `k` around it.
    s.set_scope(sum, Scope::Local)?;
    s.compute_at(sum, xo)?;
    let [yi, xi, k] = s.axes(sum)?;
    s.reorder(&[k, yi, xi])?;
    Ok(s)
}

fn problem(workload: &Workload, target: &Target) -> Result<Matmul, String> {
    target.cpu().ok_or("for CPUs")?;
    match workload.matmul() {
        Some(m) if m.batch == 1 => Ok(*m),
        _ => Err("for products of two matrices".to_string()),
    }
}

impl Template for Blocked {
    fn name(&self) -> &str {
        match self {
            Blocked::V0 => "matmul_v0",
            Blocked::V1 => "matmul_v1",
            Blocked::Split => "matmul",
        }
    }

    fn version(&self) -> u32 {
        1
    }

    fn applies(&self, workload: &Workload, target: &Target) -> Result<(), String> {
        problem(workload, target).map(drop)
    }

    fn space(&self, workload: &Workload, target: &Target) -> Result<Space, TemplateError> {
        let m = problem(workload, target).map_err(TemplateError::Limit)?;
        let space = match self {
            Blocked::V0 => Space::builder(),
            Blocked::V1 => Space::builder().knob("tile_y", CANDIDATES).knob("tile_x", CANDIDATES),
            Blocked::Split => {
                Space::builder().split("tile_y", Split::factors(m.m, 2)).split("tile_x", Split::factors(m.n, 2))
            }
        };
        Ok(space.build()?)
    }

    fn default_config(&self, workload: &Workload, target: &Target) -> Result<Config, TemplateError> {
        let space = self.space(workload, target)?;
        let all = (0..space.range_len()).filter_map(|index| space.get(index));
        let expected = |config: &Config| self.cost(workload, target, config);
        let best = all.min_by(|a, b| expected(a).total_cmp(&expected(b)));
        best.ok_or_else(|| TemplateError::Limit("the space is empty".into()))
    }

    /// A core multiplies and adds at one element a cycle of 1 GHz; each product of a tile loads its share of a row and of a
    /// column, and a tile above the caches loads its sums, too.
    fn cost(&self, workload: &Workload, _: &Target, config: &Config) -> f64 {
        let Ok([tile_y, tile_x]) = self.tile(config) else { return f64::INFINITY };
        let loads = 1.0 / tile_y as f64 + 1.0 / tile_x as f64;
        let sums = if tile_y * tile_x > 1024 { 1.0 } else { 0.0 };
        workload.flops() as f64 / 2e3 * (1.0 + loads + sums)
    }

    fn schedule(&self, workload: &Workload, target: &Target, config: &Config) -> Result<Scheduled, TemplateError> {
        problem(workload, target).map_err(TemplateError::Limit)?;
        Ok(Scheduled { schedule: schedule(workload, self.tile(config)?)?, packs: vec![] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel_gen::interp::{self, Mode, Values};
    use kernel_gen::templates::Registry;
    use kernel_gen::workload::bound::reference_with_bounds;
    use kernel_gen::workload::sample::{self, Rng};

    fn target() -> &'static Target {
        Target::find("x86-64-v3").unwrap()
    }

    #[test]
    fn the_spaces_are_the_tutorials() {
        let workload = Workload::f32(Matmul::new(512, 512, 512));
        let space = |template: Blocked| template.space(&workload, target()).unwrap();
        assert_eq!(Blocked::ALL.map(|template| space(template).len()), [1, 25, 100]);
        assert_eq!(
            space(Blocked::V1).to_string(),
            "ConfigSpace (len=25, range_length=25, space_map=\n   0 tile_y: OtherOption([1, 2, 4, 8, 16]) len=5\n   1 tile_x: \
             OtherOption([1, 2, 4, 8, 16]) len=5\n)"
        );
        // The trials 2, 6 and 25 of its log.
        for (index, text) in [(1, "tile_y=2 tile_x=1"), (5, "tile_y=1 tile_x=2"), (24, "tile_y=16 tile_x=16")] {
            assert_eq!(space(Blocked::V1).get(index).unwrap().to_string(), text);
        }
        // Of 512 = 2^9 there are ten splits in two.
        assert_eq!(space(Blocked::Split).get(99).unwrap().to_string(), "tile_y=[-1,512] tile_x=[-1,512]");
    }

    #[test]
    fn every_config_computes_the_product() {
        // No candidate but 1 divides 15 and 9.
        let workload = Workload::f32(Matmul::new(15, 9, 7));
        let inputs = sample::inputs(&workload, &mut Rng::new(1));
        let views: Vec<&[f64]> = inputs.iter().map(Vec::as_slice).collect();
        let reference = reference_with_bounds(&workload, &views);
        let values: Values = workload.params().iter().zip(&inputs).map(|(p, v)| (p.name.into(), v.clone())).collect();
        for template in Blocked::ALL {
            let space = template.space(&workload, target()).unwrap();
            let default = template.default_config(&workload, target()).unwrap();
            assert!(space.index_of(&default).is_ok(), "{default} is not in its own space");
            for index in 0..space.range_len() {
                let what = format!("{} {}", template.name(), space.get(index).unwrap());
                let scheduled = template.schedule(&workload, target(), &space.get(index).unwrap()).expect(&what);
                let mut outputs = interp::run(&scheduled.schedule.kernel, &values, Mode::Declared).expect(&what);
                reference.check(outputs.remove("c").unwrap()).unwrap_or_else(|e| panic!("{what}: {e}"));
            }
        }
    }

    #[test]
    fn a_registry_with_them_has_them_by_the_tutorials_names() {
        let registry = Blocked::ALL.into_iter().fold(Registry::builtin(), Registry::with);
        let (workload, target) = (Workload::f32(Matmul::new(64, 64, 64)), target());
        for name in ["matmul_v0", "matmul_v1", "matmul"] {
            let template = registry.find(name).expect(name);
            assert_eq!(template.applies(&workload, target), Ok(()));
        }
        let gpu = Target::find("sm_80").unwrap();
        assert_eq!(Blocked::V1.applies(&workload, gpu), Err("for CPUs".to_string()));
    }
}

use super::*;

/// The space of AutoTVM's conv2d tutorial: the last convolution of ResNet-18 on 7x7 pixels.
fn tutorial() -> Space {
    Space::builder()
        .split("tile_f", Split::factors(512, 4))
        .split("tile_y", Split::factors(7, 4))
        .split("tile_x", Split::factors(7, 4))
        .split("tile_rc", Split::factors(512, 3))
        .split("tile_ry", Split::factors(3, 3))
        .split("tile_rx", Split::factors(3, 3))
        .knob("auto_unroll_max_step", [0, 512, 1500])
        .knob("unroll_explicit", [0, 1])
        .build()
        .unwrap()
}

#[test]
fn the_tutorials_space_prints_as_it_did() {
    let expected = "\
ConfigSpace (len=10454400, range_length=10454400, space_map=
   0 tile_f: Split(policy=factors, product=512, num_outputs=4) len=220
   1 tile_y: Split(policy=factors, product=7, num_outputs=4) len=4
   2 tile_x: Split(policy=factors, product=7, num_outputs=4) len=4
   3 tile_rc: Split(policy=factors, product=512, num_outputs=3) len=55
   4 tile_ry: Split(policy=factors, product=3, num_outputs=3) len=3
   5 tile_rx: Split(policy=factors, product=3, num_outputs=3) len=3
   6 auto_unroll_max_step: OtherOption([0, 512, 1500]) len=3
   7 unroll_explicit: OtherOption([0, 1]) len=2
)";
    assert_eq!(tutorial().to_string(), expected);
}

#[test]
fn the_tutorials_indices_are_its_entities() {
    let space = tutorial();
    // What the tutorial printed: index and entities of twenty trials, 4881186 (the best) and 2440616 among them.
    let trials = include_str!("autotvm_tutorial.txt");
    assert_eq!(trials.lines().count(), 20);
    for line in trials.lines() {
        let (index, text) = line.split_once(' ').unwrap();
        let index: u64 = index.parse().unwrap();
        let config = space.get(index).unwrap();
        assert_eq!(config.to_string(), text);
        assert_eq!(space.index_of(&config), Ok(index));
        assert_eq!(Config::parse(text).map(|c| space.index_of(&c)), Ok(Ok(index)));
    }
    assert_eq!(space.get(10_454_400), None);
}

#[test]
fn points_and_indices_are_inverse() {
    let space = tutorial();
    let mut rng = Rng::new(5);
    for _ in 0..200 {
        let index = rng.below(space.range_len());
        assert_eq!(space.index_of_point(&space.point_of(index)), index);
        assert_eq!(space.index_of(&space.get(index).unwrap()), Ok(index));
    }
}

#[test]
fn a_space_of_many_billion_points_costs_nothing() {
    let mut builder = Space::builder();
    for name in ["a", "b", "c", "d"] {
        builder = builder.split(name, Split::factors(1 << 25, 4));
    }
    let space = builder.filter("odd", |c| c.split("a").is_ok_and(|s| s[3] > 1)).build().unwrap();
    assert_eq!(space.range_len(), 3276u64.pow(4));
    assert!(space.to_string().starts_with("ConfigSpace (len=~"));
    let (index, config) = space.sample(1).next().unwrap();
    assert_eq!(space.index_of(&config), Ok(index));
}

/// The facts file's filtered space: an 8x8 split pair with 32 <= y * x < 1024.
fn filtered() -> Space {
    let inner = |c: &Config, k: &str| c.split(k).map_or(0, |s| s[1]);
    Space::builder()
        .split("tile_y", Split::factors(128, 2))
        .split("tile_x", Split::factors(128, 2))
        .filter("32 <= tile_y * tile_x < 1024", move |c| {
            (32..1024).contains(&(inner(c, "tile_y") * inner(c, "tile_x")))
        })
        .build()
        .unwrap()
}

#[test]
fn joint_constraints_count_as_autotvms_multi_filter() {
    let space = filtered();
    assert_eq!((space.len(), space.range_len(), space.dims()), (34, 64, vec![8, 8]));
    assert!(space.to_string().starts_with("ConfigSpace (len=34, range_length=64, space_map=\n"));
    assert!(!space.is_valid(0) && space.is_valid(15) && space.get(0).is_none());
    assert_eq!(space.refused_by(0), Some("32 <= tile_y * tile_x < 1024"));
    assert_eq!((space.count_in(0..32), space.count_in(16..32), space.count_in(16..16)), (17, 10, 0));
    assert_eq!((space.point_of(12), space.index_of_point(&[4, 1])), (vec![4, 1], 12));
    let next = |i, n| space.next_valid(i, n);
    assert_eq!((next(0, 1), next(0, 2), next(63, -1), next(63, -2)), (Some(5), Some(6), Some(58), Some(57)));
    assert_eq!((next(60, 1), next(0, -1)), (None, None));
}

#[test]
fn sampling_visits_every_config_once_and_depends_on_the_seed_only() {
    let space = filtered();
    let visit = |seed| space.sample(seed).map(|(i, _)| i).collect::<Vec<_>>();
    let mut all = visit(7);
    assert_eq!(all, visit(7));
    assert_ne!(all, visit(8));
    all.sort_unstable();
    assert_eq!(all, (0..64).filter(|i| space.is_valid(*i)).collect::<Vec<_>>());
    // Of a limited number of indices, what the whole order begins with.
    let some: Vec<u64> = space.sample(7).within(20).map(|(i, _)| i).collect();
    assert!(!some.is_empty() && some.len() < 20 && visit(7).starts_with(&some), "{some:?}");
    let large = ["a", "b", "c", "d"].iter().fold(Space::builder(), |space, name| space.knob(name, 0..1000));
    let nothing = large.filter("nothing", |_| false).build().unwrap();
    assert_eq!(nothing.sample(7).within(1000).next(), None);
    // Proposals of a seed are part of what a log can be resumed from.
    assert_eq!(tutorial().sample(1).take(4).map(|(i, _)| i).collect::<Vec<_>>(), [4566921, 9323255, 2330669, 7613263]);
}

#[test]
fn neighbours_and_random_steps_change_one_knob_and_stay_valid() {
    let space = filtered();
    let mut rng = Rng::new(3);
    for index in (0..64).filter(|i| space.is_valid(*i)) {
        let neighbours: Vec<u64> = space.neighbours(index).collect();
        for n in &neighbours {
            let (a, b) = (space.point_of(index), space.point_of(*n));
            assert!(space.is_valid(*n) && a.iter().zip(&b).filter(|(x, y)| x != y).count() == 1);
        }
        assert!(neighbours.contains(&space.random_step(index, &mut rng).unwrap()));
    }
    assert_eq!(Space::builder().knob("one", [1]).build().unwrap().random_step(0, &mut rng), None);
}

#[test]
fn a_config_of_another_space_is_refused_by_name() {
    let space = Space::builder()
        .split("tile", Split::factors(128, 3))
        .knob("unroll", [0, 16])
        .knob("pack", [false, true])
        .filter("no packing of unrolled loops", |c| !(c.bool("pack") == Ok(true) && c.int("unroll") == Ok(16)))
        .build()
        .unwrap();
    let message = |text: &str| space.index_of(&Config::parse(text).unwrap()).unwrap_err().to_string();
    assert_eq!(
        message("tile=[-1,8,4] unroll=0 pack=true tile_q=1"),
        "there is no knob `tile_q`; the knobs are tile, unroll, pack"
    );
    assert_eq!(message("tile=[-1,8,4] pack=true"), "the config has no value for the knob `unroll`");
    assert_eq!(
        message("tile=[-1,8,4] unroll=8 pack=true"),
        "the knob `unroll` cannot be 8: it is OtherOption([0, 16]) len=2"
    );
    assert_eq!(
        message("tile=[-1,8,5] unroll=0 pack=true"),
        "the knob `tile` cannot be [-1,8,5]: it is Split(policy=factors, product=128, num_outputs=3) len=36"
    );
    assert_eq!(message("tile=8 unroll=0 pack=true"), "the knob `tile` takes a value of kind split, not 8 (integer)");
    assert_eq!(
        message("tile=[-1,8,4] unroll=16 pack=true"),
        "the config `tile=[-1,8,4] unroll=16 pack=true` breaks the constraint `no packing of unrolled loops`"
    );
    let loose = Config::parse("pack=true unroll=0 tile=[4,8,4]").unwrap();
    assert_eq!(space.normalise(&loose).unwrap().to_string(), "tile=[-1,8,4] unroll=0 pack=true");
}

#[test]
fn the_fingerprint_covers_names_kinds_parameters_and_order() {
    let print = |b: SpaceBuilder| b.build().unwrap().fingerprint();
    let base = || Space::builder().split("a", Split::factors(64, 2)).knob("b", [1, 2]);
    assert_eq!(print(base()), print(base()));
    assert_eq!(print(base()), print(base().filter("anything", |_| true)));
    let others = [
        print(base().knob("c", [1])),
        print(Space::builder().knob("b", [1, 2]).split("a", Split::factors(64, 2))),
        print(Space::builder().split("a", Split::factors(64, 3)).knob("b", [1, 2])),
        print(Space::builder().split("a", Split::factors(64, 2).max_factor(32)).knob("b", [1, 2])),
        print(Space::builder().split("a", Split::factors(64, 2)).knob("b", ["1", "2"])),
        print(Space::builder().split("x", Split::factors(64, 2)).knob("b", [1, 2])),
    ];
    assert!(others.iter().all(|o| *o != print(base())));
    assert_eq!(Fingerprint::parse(&print(base()).to_string()), Some(print(base())));
    assert_eq!(Fingerprint::parse("12"), None);
    // Pinned: checked-in records hold it.
    assert_eq!(tutorial().fingerprint().to_string(), "62200bf14ee3a873");
}

#[test]
fn mistakes_in_a_definition_are_named() {
    let message = |b: SpaceBuilder| b.build().unwrap_err().to_string();
    assert_eq!(message(Space::builder().knob("a", [1]).knob("a", [2])), "knob `a` is defined twice");
    assert_eq!(message(Space::builder().knob("a", Vec::<i64>::new())), "knob `a`: it has no values");
    assert_eq!(message(Space::builder().knob("a", [1, 2, 1])), "knob `a`: the value 1 is listed twice");
    assert_eq!(
        message(Space::builder().knob("a", [Value::Int(1), Value::Bool(true)])),
        "knob `a`: it mixes 1 (integer) and true (bool)"
    );
    assert!(message(Space::builder().knob("a b", [1])).starts_with("knob `a b`: a name is letters"));
    let mut huge = Space::builder();
    for i in 0..8 {
        huge = huge.split(&format!("s{i}"), Split::factors(1 << 25, 4));
    }
    assert_eq!(message(huge), "the space has more than 2^64 points; bound its knobs");
}

#[test]
fn every_kind_of_knob_lives_in_one_space() {
    let axes = ["a", "b", "c"];
    let space = Space::builder()
        .reorder("order", &axes, Reorder::All)
        .annotate("ann", &axes, Annotate::TryUnrollVec)
        .knob("algorithm", ["direct", "gemm"])
        .knob("pack", [false, true])
        .build()
        .unwrap();
    assert_eq!(space.range_len(), 6 * 20 * 2 * 2);
    assert_eq!(
        space.to_string(),
        "ConfigSpace (len=480, range_length=480, space_map=\n   0 order: Reorder(policy=all) len=6\n   \
         1 ann: Annotate(policy=try_unroll_vec) len=20\n   2 algorithm: OtherOption([direct, gemm]) len=2\n   \
         3 pack: OtherOption([False, True]) len=2\n)"
    );
    for index in 0..space.range_len() {
        assert_eq!(space.index_of(&space.get(index).unwrap()), Ok(index));
    }
}

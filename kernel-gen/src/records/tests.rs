use super::*;
use crate::space::{Annotation, Config, ConfigError, Fingerprint, Space, Split, Value};
use std::fs;
use std::path::{Path, PathBuf};

fn space() -> Space {
    Space::builder()
        .split("tile", Split::factors(128, 2))
        .knob("unroll", [0, 16])
        .filter("no long unrolled tiles", |c| {
            !(c.int("unroll") == Ok(16) && c.split("tile").is_ok_and(|s| s[1] == 128))
        })
        .build()
        .unwrap()
}

fn record() -> Record {
    Record {
        workload: "matmul-f32-m128n128k128-nn".into(),
        target: "x86-64-v3".into(),
        device: "Some CPU \"@\" 3 GHz".into(),
        threads: 1,
        template: "gemm".into(),
        template_version: 2,
        space: space().fingerprint(),
        config: Config::new().with_split("tile", &[-1, 8]).with("unroll", 16),
        time_us: 81.25,
        gflops: 51.6,
        core_gflops: None,
        floor_us: None,
        max_error: 1.2e-7,
        verified: true,
        generator: "0.1.0".into(),
    }
}

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("kernel-gen-records-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    folder
}

#[test]
fn a_record_is_small_sorted_text() {
    let text = record().to_toml();
    assert_eq!(
        text,
        "\
# The fastest verified kernel for one workload. Written by kernel-gen; keep it in version control.
schema = 1
workload = \"matmul-f32-m128n128k128-nn\"
target = \"x86-64-v3\"
device = \"Some CPU \\\"@\\\" 3 GHz\"
threads = 1
template = \"gemm\"
template_version = 2
space = \"56e583029914c63f\"
generator = \"0.1.0\"
time_us = 81.25
gflops = 51.6
max_error = 1.2e-7
verified = true

[config]
tile = [-1, 8]
unroll = 16
"
    );
    assert_eq!(record().relative_path(), "x86-64-v3/matmul-f32-m128n128k128-nn-46eb0b51.toml");
}

#[test]
fn every_kind_of_value_and_text_reads_back() {
    let mut record = record();
    record.device = "GPU \\ \"x\" \u{e9}".into();
    record.config = Config::new()
        .with("a", Value::Annotate(vec![Annotation::None, Annotation::Vec]))
        .with("b.c", Value::Perm(vec![1, 0]))
        .with("d", Value::Int(i64::MIN))
        .with("e", true)
        .with("f", "two words\n")
        .with("g", Value::Split(vec![-1, 3]));
    for (time_us, gflops, max_error) in [(0.001234, 0.0, 0.0), (1e9, 1.235e5, 1.1e-16), (1.0, 2.0, f64::MAX)] {
        (record.time_us, record.gflops, record.max_error) = (time_us, gflops, max_error);
        record.core_gflops = Some(256.0 * time_us).filter(|g| *g < 1e9);
        record.floor_us = Some(time_us).filter(|us| *us > 1.0);
        let text = record.to_toml();
        let back = Record::parse(&text, "r.toml").unwrap_or_else(|e| panic!("{e:?}\n{text}"));
        assert_eq!(back.to_toml(), text);
        assert_eq!((&back.config, &back.device, back.time_us), (&record.config, &record.device, time_us));
        assert_eq!(back.core_gflops.is_some(), record.core_gflops.is_some(), "{text}");
        assert_eq!(back.floor_us, record.floor_us, "{text}");
    }
}

#[test]
fn records_of_several_devices_and_threads_lie_side_by_side() {
    let folder = folder("side-by-side");
    let (one, mut two, mut other) = (record(), record(), record());
    two.threads = 2;
    other.device = "Other CPU".into();
    for r in [&one, &two, &other] {
        r.write(&folder).unwrap();
    }
    let all = BestRecords::load(&folder).unwrap();
    assert_eq!((all.len(), all.folders_read().len(), all.files_read().len()), (3, 2, 3));
    for (file, r) in all.iter() {
        assert_eq!(fs::read_to_string(file).unwrap(), r.to_toml());
    }
    // Writing again changes nothing, not even the time of the file.
    let path = one.write(&folder).unwrap();
    let before = fs::metadata(&path).unwrap().modified().unwrap();
    one.write(&folder).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), before);
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_record_in_the_wrong_place_is_named() {
    let folder = folder("misplaced");
    let path = record().write(&folder).unwrap();
    let wrong_name = path.with_file_name("mine.toml");
    fs::rename(&path, &wrong_name).unwrap();
    let message = |folder: &Path| BestRecords::load(folder).unwrap_err()[0].to_string();
    let expected = format!(
        "the file's name does not belong to its workload, device and threads; call it {}",
        record().file_name()
    );
    assert!(message(&folder).ends_with(&expected), "{}", message(&folder));
    fs::rename(path.parent().unwrap(), folder.join("x86-64-v4")).unwrap();
    assert!(message(&folder).ends_with(&format!("move it to {}", record().relative_path())), "{}", message(&folder));
    fs::remove_dir_all(&folder).unwrap();
    // Compiled code lies beside the records, with an index that is none.
    fs::create_dir_all(folder.join(ARTIFACTS)).unwrap();
    fs::write(folder.join(ARTIFACTS).join("artifacts.toml"), "schema = 1\n[[artifact]]\n").unwrap();
    assert_eq!(BestRecords::load(&folder).unwrap().len(), 0);
    fs::remove_dir_all(folder).unwrap();
}

fn look(records: &[Record], query: &Query<'_>) -> Lookup {
    let mut best = BestRecords::new();
    for r in records {
        best.insert(r.clone());
    }
    let space = space();
    lookup(&best, query, &[Offer { template: "gemm", version: 2, space: &space }])
}

fn query() -> Query<'static> {
    Query::new("matmul-f32-m128n128k128-nn", "x86-64-v3")
}

#[test]
fn the_exact_record_is_found_and_says_so() {
    let found = look(&[record()], &query()).found.unwrap();
    assert_eq!(found.config.to_string(), "tile=[-1,8] unroll=16");
    assert!(matches!(&found.origin, Origin::SameTarget { threads: 1, .. }));
    let other = Query { workload: "matmul-f32-m1n1k1-nn", ..query() };
    assert_eq!(look(&[record()], &other), Lookup { found: None, refusals: vec![] });
}

#[test]
fn device_then_threads_then_time_decide() {
    let make = |device: &str, threads, time_us| Record { device: device.into(), threads, time_us, ..record() };
    let records = [make("A", 1, 90.0), make("B", 1, 80.0), make("B", 2, 45.0), make("B", 8, 15.0)];
    let pick = |q: Query<'_>| {
        let r = look(&records, &q).found.unwrap().record;
        (r.device, r.threads)
    };
    // Nobody said how many: what was tuned for most has work for all.
    assert_eq!(pick(query()), ("B".into(), 8));
    assert_eq!(pick(Query { threads: Some(1), ..query() }), ("B".into(), 1));
    assert_eq!(pick(Query { device: Some("A"), threads: Some(2), ..query() }), ("A".into(), 1));
    assert_eq!(pick(Query { threads: Some(3), ..query() }), ("B".into(), 2));
    assert_eq!(pick(Query { device: Some("C"), threads: Some(64), ..query() }), ("B".into(), 8));
}

#[test]
fn a_related_target_serves_where_its_config_is_within_the_limits_here() {
    let v4 = Record { target: "x86-64-v4".into(), ..record() };
    // Its space may be another one, as long as the config is in the space here.
    let foreign = Record { space: Fingerprint(1), ..v4.clone() };
    let beyond = Record { config: record().config.with_split("tile", &[-1, 128]), ..foreign.clone() };
    let older = Record { template_version: 1, ..v4.clone() };
    let q = Query { related_targets: &["x86-64-v4"], ..query() };
    assert!(matches!(look(std::slice::from_ref(&v4), &q).found.unwrap().origin, Origin::OtherTarget { .. }));
    assert!(matches!(look(&[foreign], &q).found.unwrap().origin, Origin::OtherTarget { .. }));
    for other in [beyond, older] {
        assert_eq!(look(&[other], &q), Lookup { found: None, refusals: vec![] });
    }
    assert_eq!(look(&[v4], &query()).found, None);
}

#[test]
fn the_order_is_device_then_capability_then_architecture() {
    let of = |target: &str, device: &str, time_us| Record {
        target: target.into(),
        device: device.into(),
        time_us,
        ..record()
    };
    let all = [of("sm_90a", "H100", 9.0), of("sm_90a", "H200", 8.0), of("sm_90", "H20", 7.0), of("sm_89", "L4", 1.0)];
    let q = |device| Query { target: "sm_90a", related_targets: &["sm_90", "sm_89"], device, ..query() };
    let origin = |records: &[Record], device| look(records, &q(device)).found.unwrap().origin;
    // Of two devices with equally many records the first by name, and not the faster one; then the one with more.
    assert!(matches!(origin(&all, None), Origin::SameTarget { device, .. } if device == "H100"));
    let another = Record { workload: "matmul-f32-m64n64k64-nn".into(), ..of("sm_90a", "H200", 2.0) };
    let more = [&all[..], &[another]].concat();
    assert!(matches!(origin(&more, None), Origin::SameTarget { device, .. } if device == "H200"));
    assert!(matches!(origin(&more, Some("H100")), Origin::Exact { device, .. } if device == "H100"));
    assert!(matches!(origin(&all, Some("H100")), Origin::Exact { device, .. } if device == "H100"));
    let other = origin(&all[1..], Some("H100"));
    assert!(matches!(&other, Origin::SameTarget { device, .. } if device == "H200"));
    assert_eq!((other.word(), other.is_measured(), other.time_us()), ("same-target", true, 8.0));
    assert!(other.to_string().ends_with(" of this target, 8.0 us on H200 with 1 thread"), "{other}");
    assert!(matches!(origin(&all[2..], None), Origin::SameCapability { target, .. } if target == "sm_90"));
    assert!(matches!(origin(&all[3..], None), Origin::OtherTarget { target, .. } if target == "sm_89"));
}

#[test]
fn every_refusal_names_the_file_and_the_reason() {
    let reason = |change: fn(&mut Record), line: &str| {
        let mut r = record();
        change(&mut r);
        let Lookup { found, refusals } = look(std::slice::from_ref(&r), &query());
        assert_eq!((found, refusals.len()), (None, 1));
        let text = refusals[0].to_string();
        // The line is that of the key that is to blame.
        let number = r.to_toml().lines().position(|l| l == line).unwrap() + 1;
        assert!(text.starts_with(&format!("{}:{number}: the record is not used: ", r.relative_path())), "{text}");
        assert!(text.ends_with(&format!("; {}", refusals[0].reason.rule().help)), "{text}");
        refusals[0].reason.to_string()
    };
    assert_eq!(reason(|r| r.verified = false, "verified = false"), "its result was never checked");
    assert_eq!(
        reason(|r| r.template = "winograd".into(), "template = \"winograd\""),
        "its template `winograd` does not apply here; those that do: gemm"
    );
    assert_eq!(
        reason(|r| r.template_version = 1, "template_version = 1"),
        "it was made for version 1 of the template `gemm`, which is now 2"
    );
    assert_eq!(
        reason(|r| r.space = Fingerprint(5), "space = \"0000000000000005\""),
        format!("it was made in another config space (0000000000000005, now {})", space().fingerprint())
    );
    assert_eq!(
        reason(|r| r.config.set("vector", Value::Int(8)), "vector = 8"),
        "there is no knob `vector`; the knobs are tile, unroll"
    );
    assert_eq!(
        reason(|r| r.config = Config::new().with("unroll", 0), "[config]"),
        "the config has no value for the knob `tile`"
    );
    assert_eq!(
        reason(|r| r.config.set("unroll", Value::Int(8)), "unroll = 8"),
        "the knob `unroll` cannot be 8: it is OtherOption([0, 16]) len=2"
    );
    assert_eq!(
        reason(|r| r.config.set("tile", Value::Split(vec![-1, 128])), "[config]"),
        "the config `tile=[-1,128] unroll=16` breaks the constraint `no long unrolled tiles`"
    );
}

#[test]
fn a_usable_record_is_taken_beside_refused_ones() {
    let stale = Record { threads: 2, template_version: 1, ..record() };
    let Lookup { found, refusals } = look(&[stale, record()], &query());
    assert_eq!((found.unwrap().record.threads, refusals.len()), (1, 1));
    assert!(matches!(refusals[0].reason, Mismatch::OtherVersion { recorded: 1, current: 2, .. }));
    assert!(!matches!(refusals[0].reason, Mismatch::Knob(ConfigError::Missing { .. })));
}

#[test]
fn names_of_a_record_hold_no_control_characters() {
    let controls = (0..0x20u8).chain([0x7f]).map(char::from).chain('\u{80}'..='\u{9f}');
    for c in controls.chain(['\u{2028}', '\u{2029}', '\u{202e}']) {
        for (key, set) in [
            ("device", (|r: &mut Record, t: String| r.device = t) as fn(&mut Record, String)),
            ("template", |r, t| r.template = t),
            ("generator", |r, t| r.generator = t),
        ] {
            let mut record = record();
            set(&mut record, format!("x{c}y"));
            let wrong = Record::parse(&record.to_toml(), "r.toml").unwrap_err();
            assert_eq!(wrong.len(), 1, "{wrong:?}");
            assert_eq!(wrong[0].line, record.line_of(key));
            assert_eq!(wrong[0].cause, format!("`{key}` holds the control character U+{:04X}", c as u32));
        }
    }
}

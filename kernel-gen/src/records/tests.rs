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
        spread: None,
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

/// A record as files of schema 1 have it.
const OLD: &str = "\
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
";

#[test]
fn a_record_is_a_line_of_sorted_text() {
    let other = Record { workload: "matmul-f32-m1n1k1-nn".into(), floor_us: Some(80.0), ..record() };
    let folder = folder("text");
    let files = write_records(&folder, [&other, &Record { threads: 2, ..record() }, &record()]).unwrap();
    assert_eq!(files, [folder.join("x86-64-v3/some-cpu-3-ghz.toml")]);
    assert_eq!(
        fs::read_to_string(&files[0]).unwrap(),
        "\
# The fastest verified kernel for each workload: `\"workload\".threads`. Written by kernel-gen; keep it in version control.
schema = 2
target = \"x86-64-v3\"
device = \"Some CPU \\\"@\\\" 3 GHz\"

[records]
\"matmul-f32-m128n128k128-nn\".1 = { template = \"gemm\", template_version = 2, config = { tile = [-1, 8], unroll = 16 }, \
 time_us = 81.25, gflops = 51.6, max_error = 1.2e-7, verified = true, space = \"56e583029914c63f\", generator = \"0.1.0\" }
\"matmul-f32-m128n128k128-nn\".2 = { template = \"gemm\", template_version = 2, config = { tile = [-1, 8], unroll = 16 }, \
 time_us = 81.25, gflops = 51.6, max_error = 1.2e-7, verified = true, space = \"56e583029914c63f\", generator = \"0.1.0\" }
\"matmul-f32-m1n1k1-nn\".1 = { template = \"gemm\", template_version = 2, config = { tile = [-1, 8], unroll = 16 }, \
 time_us = 81.25, gflops = 51.6, floor_us = 80.0, max_error = 1.2e-7, verified = true, space = \"56e583029914c63f\", \
 generator = \"0.1.0\" }
"
        .replace(", \n ", ", ")
    );
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_file_of_one_record_is_read_and_is_gone_when_its_record_is_written() {
    let folder = folder("old");
    let path = folder.join("x86-64-v3/matmul-f32-m128n128k128-nn-46eb0b51.toml");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, OLD).unwrap();
    let all = BestRecords::load(&folder).unwrap();
    assert_eq!(all.iter().collect::<Vec<_>>(), [&record()]);
    // If a record is in both forms, the faster one is used.
    let faster = Record { time_us: 70.0, ..record() };
    write_records(&folder, [&faster]).unwrap();
    assert!(!path.exists());
    fs::write(&path, OLD).unwrap();
    assert_eq!(BestRecords::load(&folder).unwrap().iter().collect::<Vec<_>>(), [&faster]);
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn only_wanted_lines_are_read_and_keep_their_numbers() {
    let folder = folder("wanted");
    let other = Record { workload: "matmul-f32-m1n1k1-nn".into(), ..record() };
    let file = write_records(&folder, [&record(), &other]).unwrap().remove(0);
    let text = fs::read_to_string(&file).unwrap().replacen("\"gemm\"", "7", 1);
    fs::write(&file, text).unwrap();
    let wrong = BestRecords::load(&folder).unwrap_err();
    assert_eq!((wrong.len(), wrong[0].line), (1, 7), "{wrong:?}");
    let some = BestRecords::load_some(&folder, &|workload| workload == other.workload).unwrap();
    // What was left out counts where devices are compared.
    let b = Record { device: "B".into(), ..other.clone() };
    let mut two = some.clone();
    for record in [b.clone(), Record { workload: "matmul-f32-m2n2k2-nn".into(), ..b }] {
        two.insert(record);
    }
    assert_eq!(two.main_device("x86-64-v3", false), Some("B"));
    assert_eq!((two.main_devices().len(), some.main_device("x86-64-v3", false)), (1, Some(record().device.as_str())));
    assert_eq!(some.entries().map(|e| (e.line, &e.record)).collect::<Vec<_>>(), [(8, &other)]);
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn the_users_records_lie_over_those_that_were_shipped() {
    let shipped = |record: &Record| {
        let text = super::text::list(&record.target, &record.device, [record]);
        BestRecords::shipped(&[("x86-64-v3/some.toml", text.as_str())], &|_| true).unwrap()
    };
    let look = |own: &[Record], under: &Record, q: &Query<'_>| {
        let mut best = BestRecords::new();
        own.iter().for_each(|r| drop(best.insert(r.clone())));
        lookup(&best.over(shipped(under)), q, &[Offer { template: "gemm", version: 2, space: &space() }]).found.unwrap()
    };
    // Of one slot, of another device with more threads, and a faster one: the user's own comes first.
    let other = Record { device: "Other".into(), threads: 8, time_us: 1.0, ..record() };
    for under in [&record(), &other] {
        let found = look(&[Record { time_us: 90.0, ..record() }], under, &query());
        assert_eq!((found.record.time_us, found.origin.word()), (90.0, "same-target"));
    }
    // A shipped one of the device that was named comes before the user's of another device.
    let named = Query { device: Some("Other"), ..query() };
    let found = look(&[record()], &other, &named);
    assert_eq!((found.record.device.as_str(), found.origin.word()), ("Other", "shipped-exact"));
    assert_eq!(found.origin.to_string(), "shipped exact record, 1.0 us on Other with 8 threads");
    assert_eq!(look(&[], &record(), &query()).origin.word(), "shipped-same-target");
    // One of the user's that is of another version of its template is refused, and hides none of the same slot that ships.
    let found = look(&[Record { template_version: 1, ..record() }], &record(), &query());
    assert_eq!(found.origin.word(), "shipped-same-target");
}

#[test]
fn devices_that_share_a_path_are_never_mixed() {
    let folder = folder("mixed");
    let (one, other) = (Record { device: "X 1".into(), ..record() }, Record { device: "X-1".into(), ..record() });
    let error = write_records(&folder, [&one, &other]).unwrap_err().to_string();
    assert!(error.contains("x-1.toml: records of `X 1` for x86-64-v3 and of `X-1` for x86-64-v3 would lie"), "{error}");
    assert!(BestRecords::load(&folder).unwrap().is_empty());
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_record_that_an_editor_spread_over_lines_is_read() {
    let folder = folder("spread");
    let other = Record { workload: "matmul-f32-m1n1k1-nn".into(), ..record() };
    let file = write_records(&folder, [&record(), &other]).unwrap().remove(0);
    let text = fs::read_to_string(&file).unwrap().replacen("[-1, 8]", "[\n  -1,\n  8\n]", 1);
    fs::write(&file, text.replace("schema = 2", "schema = 2 # the second")).unwrap();
    for all in [true, false] {
        let read = BestRecords::load_some(&folder, &|workload| all || workload == other.workload).unwrap();
        assert_eq!(read.iter().collect::<Vec<_>>(), [&record(), &other]);
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn what_a_file_holds_is_not_lost_where_it_cannot_be_read() {
    let folder = folder("kept");
    let file = write_records(&folder, [&record()]).unwrap().remove(0);
    let text = fs::read_to_string(&file).unwrap() + "nonsense\n";
    fs::write(&file, &text).unwrap();
    let other = Record { workload: "matmul-f32-m1n1k1-nn".into(), ..record() };
    let error = write_records(&folder, [&other]).unwrap_err().to_string();
    assert!(error.contains("some-cpu-3-ghz.toml:8: not valid TOML"), "{error}");
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
    // Two devices whose names differ in what a path leaves out.
    fs::write(&file, text.replace("nonsense\n", "")).unwrap();
    let error = write_records(&folder, [&Record { device: "some CPU (3 GHz)".into(), ..record() }]).unwrap_err();
    assert!(
        error.to_string().contains("some-cpu-3-ghz.toml: records of `some CPU (3 GHz)` for x86-64-v3 and of `Some CPU")
    );
    fs::remove_dir_all(folder).unwrap();
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
        record.spread = Some(1.25).filter(|_| time_us > 1.0);
        let text = super::text::list(&record.target, &record.device, [&record]);
        let back = parse(&text, "r.toml").unwrap_or_else(|e| panic!("{e:?}\n{text}")).remove(0);
        assert_eq!(super::text::list(&back.target, &back.device, [&back]), text);
        assert_eq!((&back.config, &back.device, back.time_us), (&record.config, &record.device, time_us));
        assert_eq!(back.core_gflops.is_some(), record.core_gflops.is_some(), "{text}");
        assert_eq!((back.floor_us, back.spread), (record.floor_us, record.spread), "{text}");
    }
}

#[test]
fn records_of_several_devices_and_threads_lie_side_by_side() {
    let folder = folder("side-by-side");
    let (one, mut two, mut other) = (record(), record(), record());
    two.threads = 2;
    other.device = "Other CPU".into();
    write_records(&folder, [&one, &two, &other]).unwrap();
    let all = BestRecords::load(&folder).unwrap();
    assert_eq!(all.iter().collect::<Vec<_>>(), [&other, &one, &two]);
    assert_eq!(all.entries().map(|e| e.line).collect::<Vec<_>>(), [7, 7, 8]);
    // Writing again changes nothing, not even the time of the file.
    let path = write_records(&folder, [&one]).unwrap().remove(0);
    let before = fs::metadata(&path).unwrap().modified().unwrap();
    write_records(&folder, [&one]).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), before);
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn runs_that_write_at_once_lose_no_record() {
    let folder = folder("at-once");
    let named = |n: usize| Record { workload: format!("matmul-f32-m{n}n1k1-nn"), ..record() };
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let folder = &folder;
            scope.spawn(move || {
                (0..20).for_each(|n| drop(write_records(folder, [&named(writer * 100 + n + 1)]).unwrap()))
            });
        }
    });
    assert_eq!(BestRecords::load(&folder).unwrap().len(), 80);
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn records_in_the_wrong_place_are_named() {
    let folder = folder("misplaced");
    let path = write_records(&folder, [&record()]).unwrap().remove(0);
    let message = |folder: &Path| BestRecords::load(folder).unwrap_err()[0].to_string();
    let help = format!("move it to {}", path.display());
    fs::rename(&path, path.with_file_name("mine.toml")).unwrap();
    assert!(message(&folder).ends_with(&help), "{}", message(&folder));
    fs::rename(path.parent().unwrap(), folder.join("x86-64-v4")).unwrap();
    assert!(message(&folder).ends_with(&help), "{}", message(&folder));
    fs::remove_file(folder.join("x86-64-v4/mine.toml")).unwrap();
    fs::write(folder.join("x86-64-v4/mine.toml"), OLD).unwrap();
    let help = "move it to x86-64-v3/matmul-f32-m128n128k128-nn-46eb0b51.toml";
    assert!(message(&folder).ends_with(help), "{}", message(&folder));
    fs::rename(folder.join("x86-64-v4"), folder.join("x86-64-v3")).unwrap();
    let help = "call it matmul-f32-m128n128k128-nn-46eb0b51.toml";
    assert!(message(&folder).ends_with(help), "{}", message(&folder));
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
    assert!(matches!(&found.origin, Origin::SameTarget(Measurement { threads: 1, .. })));
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
    assert!(matches!(look(std::slice::from_ref(&v4), &q).found.unwrap().origin, Origin::OtherTarget(_)));
    assert!(matches!(look(&[foreign], &q).found.unwrap().origin, Origin::OtherTarget(_)));
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
    assert!(matches!(origin(&all, None), Origin::SameTarget(Measurement { device, .. }) if device == "H100"));
    let another = Record { workload: "matmul-f32-m64n64k64-nn".into(), ..of("sm_90a", "H200", 2.0) };
    let more = [&all[..], &[another]].concat();
    assert!(matches!(origin(&more, None), Origin::SameTarget(Measurement { device, .. }) if device == "H200"));
    assert!(matches!(origin(&more, Some("H100")), Origin::Exact(Measurement { device, .. }) if device == "H100"));
    assert!(matches!(origin(&all, Some("H100")), Origin::Exact(Measurement { device, .. }) if device == "H100"));
    let other = origin(&all[1..], Some("H100"));
    assert!(matches!(&other, Origin::SameTarget(Measurement { device, .. }) if device == "H200"));
    assert_eq!((other.word(), other.measured().is_some(), other.time_us()), ("same-target", true, 8.0));
    assert_eq!(other.to_string(), "record of this target, 8.0 us on H200 with 1 thread");
    assert!(matches!(origin(&all[2..], None), Origin::SameCapability(Measurement { target, .. }) if target == "sm_90"));
    assert!(matches!(origin(&all[3..], None), Origin::OtherTarget(Measurement { target, .. }) if target == "sm_89"));
}

#[test]
fn every_refusal_names_the_file_and_the_reason() {
    let reason = |change: fn(&mut Record)| {
        let mut r = record();
        change(&mut r);
        let Lookup { found, refusals } = look(std::slice::from_ref(&r), &query());
        assert_eq!((found, refusals.len()), (None, 1));
        let text = refusals[0].to_string();
        let file = r.slot().relative_path();
        assert!(text.starts_with(&format!("{file}:1: the record is not used: ")), "{text}");
        assert!(text.ends_with(&format!("; {}", refusals[0].reason.rule().help)), "{text}");
        refusals[0].reason.to_string()
    };
    assert_eq!(reason(|r| r.verified = false), "its result was never checked");
    assert_eq!(
        reason(|r| r.template = "winograd".into()),
        "its template `winograd` does not apply here; those that do: gemm"
    );
    assert_eq!(reason(|r| r.template_version = 1), "it was made for version 1 of the template `gemm`, which is now 2");
    assert_eq!(
        reason(|r| r.space = Fingerprint(5)),
        format!("it was made in another config space (0000000000000005, now {})", space().fingerprint())
    );
    assert_eq!(
        reason(|r| r.config.set("vector", Value::Int(8))),
        "there is no knob `vector`; the knobs are tile, unroll"
    );
    assert_eq!(reason(|r| r.config = Config::new().with("unroll", 0)), "the config has no value for the knob `tile`");
    assert_eq!(
        reason(|r| r.config.set("unroll", Value::Int(8))),
        "the knob `unroll` cannot be 8: it is OtherOption([0, 16]) len=2"
    );
    assert_eq!(
        reason(|r| r.config.set("tile", Value::Split(vec![-1, 128]))),
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
            let wrong = parse(&super::text::list(&record.target, &record.device, [&record]), "r.toml").unwrap_err();
            assert_eq!(wrong.len(), 1, "{wrong:?}");
            assert_eq!(wrong[0].line, if key == "device" { 4 } else { 7 });
            assert_eq!(wrong[0].cause, format!("`{key}` holds the control character U+{:04X}", c as u32));
        }
    }
}

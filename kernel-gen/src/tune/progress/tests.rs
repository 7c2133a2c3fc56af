use super::lines::Lines;
use super::*;
use crate::records::{Failure, FailureKind, Outcome, Timing, Trial};
use crate::space::Config;
use crate::tune::session::{Candidate, Ended, Group, Source, Standing, Summary, Verdict};
use std::time::Duration;

fn timed(us: f64) -> Outcome {
    Outcome::Timed(Timing { samples_us: vec![us], ..Timing::default() })
}

fn config(at: i64) -> Config {
    Config::new().with("knob", at)
}

/// Two workloads; the second has two templates.
fn board() -> Board {
    let group = |name: &str, entries: Vec<usize>| Group {
        name: name.to_string(),
        weight: 1.0,
        flops: 2e9,
        floor_us: 40.0,
        entries,
    };
    let mut direct = Standing::new(0, "conv2d_direct", 100.0);
    let mut packed = Standing::new(1, "matmul_packed", 100.0);
    let mut plain = Standing::new(1, "plain", 900.0);
    for (at, us) in [120.0, 90.0, 80.0].into_iter().enumerate() {
        direct.take(&Trial { index: at as u64, config: config(at as i64), outcome: timed(us) });
    }
    packed.take(&Trial { index: 0, config: config(0), outcome: timed(64.25) });
    for kind in [FailureKind::Build, FailureKind::WrongAnswer, FailureKind::Build] {
        let outcome = Outcome::Failed(Failure { kind, detail: "planted".into() });
        plain.take(&Trial { index: 9, config: config(9), outcome });
    }
    let standings = vec![direct, packed, plain];
    let elapsed = Duration::from_secs(14);
    let searched = elapsed;
    let groups = vec![group("layer1_conv", vec![0]), group("classifier", vec![1, 2])];
    Board { groups, standings, elapsed, searched, budget: 200, seconds: None, fleet: None }
}

fn candidate(entry: usize, at: i64, source: Source, us: f64) -> Candidate {
    Candidate {
        entry,
        config: config(at),
        source,
        is_default: source == Source::Default,
        outcome: timed(us),
        floor_us: None,
        spread: None,
    }
}

#[test]
fn the_table_says_what_was_found_and_what_failed() {
    let won = Verdict::Won {
        candidates: vec![
            candidate(0, 5, Source::Incumbent, 100.0),
            candidate(0, 0, Source::Default, 120.0),
            candidate(0, 2, Source::Search, 80.0),
        ],
        winner: 2,
        incumbent: Some(0),
    };
    let kept = Verdict::Kept {
        candidates: vec![candidate(1, 0, Source::Incumbent, 64.0), candidate(1, 1, Source::Search, 63.9)],
        incumbent: 0,
    };
    let summary =
        Summary { board: board(), verdicts: vec![won, kept], ended: Ended::Trials, uncompared: 0, doubts: vec![] };
    assert_eq!(
        table(&summary),
        "\
workload     trials  valid  best us  GFLOP/s  roofline  vs default  vs record  chosen
layer1_conv       3  100 %    80.00    25000      50 %       1.50x      1.25x  conv2d_direct: found
classifier        4   25 %    64.00    31250      62 %           -      1.00x  matmul_packed: the record stays
failed: 2 build, 1 wrong_answer
7 trials in 14 s, 30 a minute; all trials are spent
"
    );
}

#[test]
fn the_table_of_a_stopped_session_shows_what_is_known() {
    let verdicts = vec![Verdict::NotDecided, Verdict::Nothing { candidates: vec![] }];
    let mut board = board();
    board.standings[0].earlier = 2;
    let text = table(&Summary { board, verdicts, ended: Ended::Stopped, uncompared: 0, doubts: vec![] });
    assert!(
        text.contains("layer1_conv       3  100 %    80.00    25000      50 %           -          -  not decided\n")
    );
    assert!(text.contains("nothing ran\n"), "{text}");
    assert!(text.ends_with("5 trials in 14 s, 21 a minute, and 2 of earlier runs; stopped by the user\n"), "{text}");
}

#[test]
fn lines_come_every_few_seconds_and_name_what_got_faster() {
    let mut lines = Lines::new(vec![], "");
    let mut board = board();
    board.elapsed = Duration::ZERO;
    lines.event(&board, Event::Started);
    let trial = Trial { index: 2, config: config(2), outcome: timed(80.0) };
    for ms in [1000, 4900, 5100, 6000, 9000, 10_200] {
        board.elapsed = Duration::from_millis(ms);
        board.searched = board.elapsed;
        let best = ms == 4900;
        lines.event(&board, Event::Trial { entry: 0, trial: &trial, best, cost: None, worker: None });
    }
    lines.event(&board, Event::Comparing { group: 1, candidates: 3 });
    let kept = Verdict::Kept { candidates: vec![candidate(1, 0, Source::Incumbent, 64.0)], incumbent: 0 };
    lines.event(&board, Event::Decided { group: 1, verdict: &kept });
    assert_eq!(
        String::from_utf8(lines.into_text()).unwrap(),
        "\
2 workloads, 3 tasks, 200 trials
5 s: 7 of 200 trials, 3 failed, 82 a minute; layer1_conv: 80.00 us, 25000 GFLOP/s, 50 % of the roofline
10 s: 7 of 200 trials, 3 failed, 41 a minute
classifier: the best 3 once more, side by side
classifier: the record stays, 64.00 us
"
    );
}

#[test]
fn time_left_follows_the_pace_and_the_limit() {
    let mut board = board();
    assert_eq!(board.left(), None, "seven trials are no pace");
    board.standings[0].trials += 1;
    // Eight trials in 14 s; 192 to go.
    assert_eq!(board.left().map(|d| d.as_secs()), Some(336));
    board.seconds = Some(20.0);
    assert_eq!(board.left().map(|d| d.as_secs()), Some(6));
}

#[test]
fn numbers_read_well() {
    assert_eq!(
        [us(1.23456), us(12.3456), us(123.456), us(1234.56), us(f64::NAN)],
        ["1.235", "12.35", "123.5", "1235", "-"]
    );
    assert_eq!([rate(1.234), rate(12.34), rate(61_234.0)], ["1.23", "12.3", "61234"]);
    assert_eq!([percent(0.456), percent(f64::INFINITY)], ["46 %", "-"]);
    let spans = [300, 7_000, 200_000, 7_500_000].map(|ms| span(Duration::from_millis(ms)));
    assert_eq!(spans, ["0.3 s", "7 s", "3 min 20 s", "2 h 5 min"]);
    assert_eq!(short("conv2d-nchw-f32-n1c512h7w7", 11), "conv2…2h7w7");
    assert_eq!(short("conv", 11), "conv");
}

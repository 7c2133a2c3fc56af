//! A report as JSON. `docs/bench.md` says what each key is.

use crate::cli::project::{choice_json, config_json};
use crate::records::Outcome;
use crate::tune::bench::{Candidate, Mean, Measured, Report, Row};
use crate::tune::measure::{Peer, PeerTiming};
use serde_json::{Value as Json, json};

/// The version of the format.
const SCHEMA: u32 = 1;

/// Everything that was measured.
pub(super) fn report(report: &Report) -> Json {
    let summary = report.summary();
    let mean = |mean: Option<Mean>| mean.map(|m| json!({ "ratio": m.ratio, "workloads": m.workloads }));
    json!({
        "schema": SCHEMA,
        "provenance": report.provenance,
        "rows": report.rows.iter().map(row).collect::<Vec<_>>(),
        "summary": {
            "workloads": summary.workloads,
            "recorded": summary.recorded,
            "failed": summary.failed,
            "default_to_record": mean(summary.default),
            "others_to_record": mean(summary.others),
            "ranged_to_now": mean(summary.ranged),
            "now_to_recorded": mean(summary.again),
            "now_to_recorded_at_clock": mean(summary.again_at_clock),
            "floor_to_recorded": mean(summary.floor_again),
            "peer_to_now": mean(summary.peer),
            "cold_peer_to_now": mean(summary.cold_peer),
            "peer_to_apart": mean(summary.apart_peer),
            "cold_peer_to_apart": mean(summary.cold_apart_peer),
            "sums_us": summary.sums.map(|s| json!({ "chosen": s.chosen, "default": s.default, "peer": s.peer })),
            "confirmed": summary.counts.confirmed,
            "slower": summary.counts.slower,
            "faster": summary.counts.faster,
        },
    })
}

fn row(row: &Row) -> Json {
    let mut object = json!({ "name": row.name, "weight": row.weight, "workload": row.workload });
    match &row.result {
        Err(why) => object["not_measured"] = json!(why),
        Ok(measured) => {
            object["recorded_us"] = json!(measured.recorded_us());
            object["now_to_recorded"] = json!(measured.again());
            if let Some(clock) = measured.clock() {
                object["clock_to_recorded"] = json!(clock);
            }
            if let Some(floor) = measured.floor_again() {
                object["floor_to_recorded"] = json!(floor);
            }
            for (column, one) in measured.candidates() {
                object[column.name()] = candidate(measured, one);
            }
            if !measured.peers.is_empty() {
                object["peers"] = measured.peers.iter().map(|(name, result)| peer(measured, *name, result)).collect();
            }
        }
    }
    object
}

fn peer(measured: &Measured, peer: Peer, result: &Result<PeerTiming, String>) -> Json {
    match result {
        Err(why) => json!({ "peer": peer.name(), "failure": why }),
        Ok(timing) => json!({
            "peer": peer.name(),
            "way": timing.way,
            "tried": timing.tried,
            "us": timing.median_us(),
            "samples_us": timing.samples_us,
            "cold_us": timing.cold_median_us(),
            "accuracy": timing.accuracy,
            "to_chosen": measured.chosen.us().map(|us| timing.median_us() / us),
        }),
    }
}

fn candidate(measured: &Measured, candidate: &Candidate) -> Json {
    let choice = choice_json(&candidate.choice);
    let mut object = json!({
        "template": candidate.choice.template,
        "config": config_json(&candidate.choice.config),
        "origin": choice["origin"],
        "origin_text": choice["origin_text"],
        "expected_us": choice["time_us"],
        "refused": choice["refused"],
    });
    match &candidate.outcome {
        Outcome::Timed(timing) => {
            object["us"] = json!(timing.median_us());
            object["samples_us"] = json!(timing.samples_us);
            if let Some(cold) = candidate.cold_us() {
                object["cold_us"] = json!(cold);
            }
            if let [Some(warm), Some(cold)] = candidate.apart_us() {
                object["apart_us"] = json!(warm);
                object["apart_cold_us"] = json!(cold);
            }
            if let Some(floor) = candidate.floor_us {
                object["floor_us"] = json!(floor);
            }
            object["max_error"] = json!(timing.max_error);
            object["accuracy"] = json!(timing.accuracy);
            object["to_chosen"] = json!(measured.relative(candidate));
        }
        Outcome::Failed(failure) => {
            object["failure"] = json!({ "kind": failure.kind.name(), "detail": failure.detail });
        }
    }
    object
}

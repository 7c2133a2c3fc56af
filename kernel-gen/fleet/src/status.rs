//! How a fleet does, and what a worker replied taken back.

use crate::meeting::{Kind, Meeting, runtime};
use async_nats::jetstream::consumer::{DeliverPolicy, pull};
use futures_util::{StreamExt, TryStreamExt};
use kernel_gen::tune::fleet::Place;
use kernel_gen::tune::fleet::wire::{Presence, Reply, parse};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::Duration;

/// Subjects without workers that are named.
const MOST_SUBJECTS: usize = 5;

/// Workers, queues, and what could not be read.
pub(crate) fn status(place: &Place) -> Result<String, String> {
    runtime()?.block_on(async {
        let meeting = Meeting::at(place).await?;
        let present: Vec<Presence> = meeting.present().await?.into_values().collect();
        let mut kinds: BTreeMap<Kind, Vec<&Presence>> = BTreeMap::new();
        for presence in &present {
            kinds.entry(Kind::of(&presence.provenance)).or_default().push(presence);
        }
        let mut text = format!("{}, {}\n", meeting.place.shown(), meeting.place.stream);
        let mut queues = BTreeSet::new();
        // Writing to a string cannot fail.
        for (kind, workers) in kinds {
            queues.insert(meeting.to_jobs(&kind));
            let mut queue = meeting.queue(&kind).await?;
            let info = queue.info().await.map_err(|e| e.to_string())?;
            let replies = meeting.count_of(&meeting.to_results(&kind)).await?;
            let _ = writeln!(text, "{} on {}", kind.target, kind.device);
            let _ = writeln!(
                text,
                "  {} requests wait, {} are with workers, {} of them again; {replies} replies",
                info.num_pending, info.num_ack_pending, info.num_redelivered
            );
            for Presence { worker, provenance, capacity, .. } in workers {
                let unit = provenance.uuid.as_deref().map(|uuid| format!(", {uuid}")).unwrap_or_default();
                let _ = writeln!(text, "  worker {worker}{unit}: takes {capacity} at a time, {provenance}");
            }
        }
        if present.is_empty() {
            text += "no workers\n";
        }
        let jobs = format!("{}.jobs.>", meeting.place.stream);
        let waiting: Vec<(String, usize)> = match meeting.jobs.info_with_subjects(&jobs).await {
            Ok(subjects) => subjects.try_collect().await.map_err(|e| e.to_string())?,
            Err(error) => return Err(error.to_string()),
        };
        let mut unclaimed: Vec<(String, usize)> =
            waiting.into_iter().filter(|(subject, _)| !queues.contains(subject)).collect();
        unclaimed.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        let rest = unclaimed.split_off(unclaimed.len().min(MOST_SUBJECTS));
        for (subject, number) in unclaimed {
            let _ = writeln!(text, "{number} requests wait at {subject}, for which no worker is there");
        }
        if !rest.is_empty() {
            let number: usize = rest.iter().map(|(_, number)| number).sum();
            let _ = writeln!(text, "{number} requests wait at {} other subjects without workers", rest.len());
        }
        let _ = writeln!(text, "{} messages that nobody could read", meeting.count_of(&meeting.to_dead()).await?);
        Ok(text)
    })
}

/// Deletes a worker's replies.
pub(crate) fn forget(worker: &str, place: &Place) -> Result<u64, String> {
    runtime()?.block_on(async {
        let meeting = Meeting::at(place).await?;
        if meeting.present().await?.values().any(|presence| presence.worker == worker) {
            return Err(format!("{worker} is still there, and would reply again; end it first"));
        }
        let config = pull::OrderedConfig {
            deliver_policy: DeliverPolicy::All,
            filter_subject: format!("{}.results.>", meeting.place.stream),
            ..pull::OrderedConfig::default()
        };
        let consumer = meeting.results.create_consumer(config).await.map_err(|e| e.to_string())?;
        let mut left = consumer.cached_info().num_pending;
        let mut messages = consumer.messages().await.map_err(|e| e.to_string())?;
        let mut forgotten = 0;
        while left > 0 {
            let next = tokio::time::timeout(Duration::from_secs(10), messages.next()).await;
            // Nothing comes where the last ones were deleted meanwhile.
            let Some(message) = next.ok().flatten() else { break };
            let message = message.map_err(|e| e.to_string())?;
            let (sequence, pending) =
                message.info().map(|info| (info.stream_sequence, info.pending)).map_err(|e| e.to_string())?;
            left = pending;
            if parse::<Reply>(&message.payload).is_ok_and(|reply| reply.worker == worker) {
                meeting.results.delete_message(sequence).await.map_err(|e| e.to_string())?;
                forgotten += 1;
            }
        }
        Ok(forgotten)
    })
}

//! The replies of a kind of device, one after the other, on their way to a session.

use crate::meeting::{Kind, Meeting};
use async_nats::jetstream::Message;
use async_nats::jetstream::consumer::push::Ordered;
use async_nats::jetstream::consumer::{DeliverPolicy, push};
use futures_util::StreamExt;
use kernel_gen::stable::fnv1a_128;
use kernel_gen::tune::fleet::wire::{Reply, parse};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::Duration;

/// What the server has to say.
pub(crate) enum Said {
    /// A reply, of this session or of one before it, and its bytes.
    Reply(Box<Reply>, usize),
    /// A request, by its name, that no worker could read, or whose reply nobody can.
    Unreadable(String, String),
    /// All replies that were there when the session began have been given.
    CaughtUp,
    /// It cannot begin.
    Failed(String),
}

/// Hands something to the session, which may have others to take first. False where it has ended.
pub(crate) async fn hand(tell: &SyncSender<Said>, said: Said) -> bool {
    let mut said = said;
    loop {
        match tell.try_send(said) {
            Ok(()) => return true,
            Err(TrySendError::Disconnected(_)) => return false,
            Err(TrySendError::Full(back)) => said = back,
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// How far the replies have been read.
struct Reader {
    meeting: Meeting,
    ours: String,
    dead: String,
    /// The first message that was not read.
    next: u64,
    caught_up: bool,
    tell: SyncSender<Said>,
}

/// Hands on all replies of the kind, from the first that the server has, until the session ends.
pub(crate) async fn read(meeting: Meeting, kind: Kind, tell: SyncSender<Said>) {
    let (ours, dead) = (meeting.to_results(&kind), meeting.to_dead());
    let mut reader = Reader { meeting, ours, dead, next: 1, caught_up: false, tell };
    // The server may go away and come back.
    while reader.read_on().await != Some(Ended) {
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

/// The session has.
#[derive(PartialEq)]
struct Ended;

impl Reader {
    /// Reads until the server stops giving, or the session ends.
    async fn read_on(&mut self) -> Option<Ended> {
        // A stream that was made anew begins at 1 again.
        let mut results = self.meeting.results.clone();
        if results.info().await.ok()?.state.last_sequence + 1 < self.next {
            self.next = 1;
        }
        let config = push::OrderedConfig {
            deliver_subject: self.meeting.server.client().new_inbox(),
            deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: self.next },
            filter_subjects: vec![self.ours.clone(), self.dead.clone()],
            ..push::OrderedConfig::default()
        };
        let consumer = self.meeting.results.create_consumer(config).await.ok()?;
        let mut left = consumer.cached_info().num_pending;
        let mut messages: Ordered = consumer.messages().await.ok()?;
        loop {
            if left == 0 && !std::mem::replace(&mut self.caught_up, true) && !hand(&self.tell, Said::CaughtUp).await {
                return Some(Ended);
            }
            // The last ones may be deleted before they are given: then the server is asked again how many there are.
            let patience = if self.caught_up { Duration::MAX } else { Duration::from_secs(5) };
            let message = tokio::time::timeout(patience, messages.next()).await.ok()??.ok()?;
            let Ok((sequence, pending)) = message.info().map(|info| (info.stream_sequence, info.pending)) else {
                continue;
            };
            left = pending;
            // A consumer that the client made again may begin at the beginning.
            if sequence < self.next {
                continue;
            }
            self.next = sequence + 1;
            let said = self.said(message, sequence).await;
            if !hand(&self.tell, said).await {
                return Some(Ended);
            }
        }
    }

    /// What a message says. A reply that nobody can read is put where such messages are kept, so that it is read no more.
    async fn said(&self, message: Message, sequence: u64) -> Said {
        let name = message.headers.as_ref().and_then(|h| h.get("Nats-Msg-Id")).map(|name| name.to_string());
        let name = name.unwrap_or_default();
        if message.subject.as_str() == self.dead {
            let id = name.trim_start_matches('j').split('.').next().unwrap_or_default().to_string();
            return Said::Unreadable(id, "no worker can read the request".to_string());
        }
        match parse::<Reply>(&message.payload) {
            Ok(reply) => Said::Reply(Box::new(reply), message.payload.len()),
            Err(cause) => {
                let id = name.split('.').next().unwrap_or_default().to_string();
                self.meeting.bury(&format!("r{:032x}", fnv1a_128(&message.payload)), &message.payload).await;
                let _ = self.meeting.results.delete_message(sequence).await;
                Said::Unreadable(id, format!("nobody can read the reply: {cause}"))
            }
        }
    }
}

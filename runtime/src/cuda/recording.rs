//! What is remembered of a stream while its launches are captured, and who may use it meanwhile.
//!
//! A stream that is being captured takes everything into the graph that anyone queues on it. So while one thread captures:
//!
//! - other threads, and other devices made of the same stream, are refused whatever they would queue there: it would run
//!   with each replay, on buffers that the graph does not own, and for another device in workspace that goes with that one;
//! - the thread itself may launch on the device that it captures and on no other, whose launches would run at once;
//! - it may not allocate, copy or wait by way of that device, and replay no other graph there.
//!
//! What is queued by other means than this crate's, with cudarc or a library, cannot be refused. It is seen by where the capture
//! ends: a launch that finds it elsewhere than the launch before it left it does not begin early.

use super::CudaError;
use std::cell::Cell;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

thread_local! {
    /// The device whose launches this thread captures ([`Recording::begin`]); 0 for none.
    static CAPTURING: Cell<usize> = const { Cell::new(0) };
}

/// What all devices of one stream share.
#[derive(Default)]
pub(super) struct Recording {
    /// Whether the stream is being captured by way of a device. Held while something is queued, so that a capture begins
    /// before all of that or behind it.
    captured: RwLock<bool>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Whether launches may overlap.
    overlap: bool,
    /// Addresses that the latest launch writes.
    written: Vec<Range<u64>>,
    /// Where the capture ended behind the latest launch: the graph's node, as a number. None before the first, and where
    /// that is not known.
    last: Option<usize>,
    counts: Counts,
}

/// Launches of a capture.
#[derive(Clone, Copy, Default)]
pub(super) struct Counts {
    pub(super) launches: usize,
    pub(super) overlapped: usize,
}

/// Leave to queue something on a stream: as long as this lives, no capture of it begins or ends.
pub(super) struct Turn<'a> {
    recording: &'a Recording,
    captured: RwLockReadGuard<'a, bool>,
}

/// The launches of a program that is to be recorded.
pub(super) struct Queued<'a> {
    /// How many there are.
    pub(super) launches: usize,
    /// How many of those behind the first can begin early.
    pub(super) able: usize,
    /// What the first reads before it waits, if it can begin early.
    pub(super) early: Option<&'a [Range<u64>]>,
    /// Where the capture ends in front of it.
    pub(super) front: Option<usize>,
}

/// Which launches of a program begin before the one in front of them has ended, if their kernels can.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Starts {
    pub(super) first: bool,
    /// Those behind it: what they read early is a parameter that no launch of their program writes.
    pub(super) others: bool,
}

impl Starts {
    /// On a stream that is not captured, where nobody knows what is in front.
    pub(super) const BY_ITSELF: Starts = Starts { first: false, others: true };
}

impl Recording {
    /// Begins a capture by way of `device`, a number that its clones have and nobody else; `start` has the driver begin.
    pub(super) fn begin(
        &self,
        device: usize,
        overlap: bool,
        start: impl FnOnce() -> Result<(), CudaError>,
    ) -> Result<(), CudaError> {
        if CAPTURING.get() != 0 {
            return Err(CudaError::NotCapturable);
        }
        let mut captured = self.captured.write().unwrap_or_else(PoisonError::into_inner);
        if *captured {
            return Err(CudaError::Captured { call: "Cuda::capture" });
        }
        start()?;
        *self.state() = State { overlap, ..State::default() };
        *captured = true;
        CAPTURING.set(device);
        Ok(())
    }

    /// Ends the capture that this thread began; `stop` has the driver end it.
    pub(super) fn end<R>(&self, stop: impl FnOnce() -> R) -> (R, Counts) {
        let mut captured = self.captured.write().unwrap_or_else(PoisonError::into_inner);
        let result = stop();
        *captured = false;
        CAPTURING.set(0);
        (result, std::mem::take(&mut *self.state()).counts)
    }

    /// Leave to launch `workload` by way of a device.
    #[inline]
    pub(super) fn launch(&self, device: usize, workload: &'static str) -> Result<Turn<'_>, CudaError> {
        let captured = self.captured.read().unwrap_or_else(PoisonError::into_inner);
        let here = CAPTURING.get();
        match (here == device, here != 0, *captured) {
            (true, ..) | (false, false, false) => Ok(Turn { recording: self, captured }),
            (false, true, _) => Err(CudaError::LaunchElsewhere { workload }),
            (false, false, true) => Err(CudaError::Captured { call: workload }),
        }
    }

    /// Leave for what no graph can hold, by way of a device.
    pub(super) fn outside(&self, device: usize, call: &'static str) -> Result<Turn<'_>, CudaError> {
        let captured = self.captured.read().unwrap_or_else(PoisonError::into_inner);
        match (*captured, CAPTURING.get() == device) {
            (false, _) => Ok(Turn { recording: self, captured }),
            (true, true) => Err(CudaError::NotCapturable),
            (true, false) => Err(CudaError::Captured { call }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn<'_> {
    /// Whether what is queued goes into a graph of ours.
    #[inline]
    pub(super) fn captured(&self) -> bool {
        *self.captured
    }

    /// Records a program of a capture; `written` is all that it writes. Which of its launches begin early?
    #[cold]
    pub(super) fn record(&self, program: &Queued<'_>, written: impl Iterator<Item = Range<u64>>) -> Starts {
        let mut state = self.recording.state();
        let meets = |a: &Range<u64>, b: &Range<u64>| a.start < b.end && b.start < a.end;
        // The first launch of a capture has nothing in front of it that it could overlap with.
        let follows = state.last.is_some() && state.last == program.front;
        let clear = |early: &[Range<u64>]| !early.iter().any(|e| state.written.iter().any(|w| meets(e, w)));
        let first = state.overlap && follows && program.early.is_some_and(clear);
        let starts = Starts { first, others: state.overlap };
        state.written = written.collect();
        state.last = None;
        state.counts.launches += program.launches;
        state.counts.overlapped += usize::from(first) + if starts.others { program.able } else { 0 };
        starts
    }

    /// Says where the capture ends now that the program is queued.
    #[cold]
    pub(super) fn recorded(&self, end: Option<usize>) {
        self.recording.state().last = end;
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "lists of one range are meant")]
mod tests {
    use super::*;

    /// A stream whose captures end at a node that counts.
    #[derive(Default)]
    struct Stream {
        recording: Recording,
        nodes: Cell<usize>,
    }

    const DEVICE: usize = 1;
    const OTHER: usize = 2;

    impl Stream {
        fn captured(overlap: bool) -> Stream {
            let stream = Stream::default();
            stream.recording.begin(DEVICE, overlap, || Ok(())).unwrap();
            stream
        }

        fn program(&self, launches: usize, early: Option<&[Range<u64>]>, written: &[Range<u64>]) -> Starts {
            let turn = self.recording.launch(DEVICE, "program").unwrap();
            assert!(turn.captured());
            let queued = Queued { launches, able: launches - 1, early, front: Some(self.nodes.get()) };
            let starts = turn.record(&queued, written.iter().cloned());
            self.foreign();
            turn.recorded(Some(self.nodes.get()));
            starts
        }

        fn launch(&self, early: Option<&[Range<u64>]>, written: &[Range<u64>]) -> bool {
            self.program(1, early, written).first
        }

        /// Something that this crate knows nothing of.
        fn foreign(&self) {
            self.nodes.set(self.nodes.get() + 1);
        }

        fn end(&self) -> Counts {
            self.recording.end(|| ()).1
        }
    }

    #[test]
    fn a_launch_begins_early_unless_the_one_in_front_writes_its_weight() {
        let stream = Stream::captured(true);
        assert!(!stream.launch(Some(&[]), &[0..8]), "the first");
        assert!(stream.launch(Some(&[8..16]), &[16..24]), "its weight is its own");
        assert!(!stream.launch(Some(&[23..32]), &[0..8]), "its weight is written by the one in front");
        assert!(stream.launch(Some(&[16..24]), &[0..8]), "its weight is written by the one before that");
        assert!(!stream.launch(None, &[]), "its kernel does not wait by itself");
        assert!(stream.launch(Some(&[0..8]), &[]));
        let counts = stream.end();
        assert_eq!((counts.launches, counts.overlapped), (6, 3));
        assert!(!stream.recording.launch(DEVICE, "x").unwrap().captured(), "the capture has ended");
    }

    #[test]
    fn what_others_queued_in_front_may_write_anything() {
        let stream = Stream::captured(true);
        stream.launch(Some(&[]), &[]);
        stream.foreign();
        assert!(!stream.launch(Some(&[8..16]), &[]), "behind something unknown");
        assert!(stream.launch(Some(&[8..16]), &[]), "behind a launch again");
        // Where a launch failed, or the driver did not say, nothing is known either.
        stream.recording.launch(DEVICE, "x").unwrap().recorded(None);
        assert!(!stream.launch(Some(&[]), &[]));
        stream.end();
    }

    #[test]
    fn where_nothing_may_overlap_nothing_does_within_a_program_either() {
        let stream = Stream::captured(false);
        let none = Starts { first: false, others: false };
        assert!((0..3).all(|_| stream.program(2, Some(&[]), &[]) == none));
        let counts = stream.end();
        assert_eq!((counts.launches, counts.overlapped), (6, 0));
        let stream = Stream::captured(true);
        assert_eq!(stream.program(3, None, &[]), Starts { first: false, others: true });
        assert_eq!(stream.program(3, Some(&[]), &[]), Starts { first: true, others: true });
        assert_eq!(stream.end().overlapped, 5);
    }

    #[test]
    fn other_threads_and_other_devices_stay_out_of_a_capture() {
        let stream = Stream::captured(true);
        let recording = &stream.recording;
        let elsewhere = CudaError::LaunchElsewhere { workload: "relu" };
        assert_eq!(recording.launch(OTHER, "relu").err(), Some(elsewhere.clone()), "another device of this stream");
        assert_eq!(Recording::default().launch(OTHER, "relu").err(), Some(elsewhere), "a device of another stream");
        assert_eq!(recording.outside(DEVICE, "zeros").err(), Some(CudaError::NotCapturable));
        assert_eq!(Recording::default().begin(OTHER, true, || Ok(())).err(), Some(CudaError::NotCapturable));
        assert!(Recording::default().outside(OTHER, "zeros").is_ok(), "another stream takes copies meanwhile");
        let captured = |call| Some(CudaError::Captured { call });
        std::thread::scope(|s| {
            let other = s.spawn(|| {
                assert_eq!(recording.launch(DEVICE, "relu").err(), captured("relu"));
                assert_eq!(recording.outside(DEVICE, "zeros").err(), captured("zeros"));
                assert_eq!(recording.begin(DEVICE, true, || Ok(())).err(), captured("Cuda::capture"));
                assert!(Recording::default().launch(OTHER, "relu").is_ok(), "streams of their own");
            });
            other.join().unwrap();
        });
        assert!(recording.launch(DEVICE, "relu").is_ok());
        stream.end();
        assert!(recording.launch(OTHER, "relu").is_ok_and(|turn| !turn.captured()));
        assert!(recording.outside(OTHER, "zeros").is_ok());
    }

    #[test]
    fn a_capture_that_does_not_begin_leaves_the_stream_as_it_was() {
        let recording = Recording::default();
        assert_eq!(recording.begin(DEVICE, true, || Err(CudaError::NoDevice)), Err(CudaError::NoDevice));
        assert!(recording.launch(OTHER, "relu").is_ok_and(|turn| !turn.captured()));
        assert_eq!(recording.begin(OTHER, true, || Ok(())), Ok(()));
        recording.end(|| ());
    }

    #[test]
    fn a_capture_waits_until_what_is_being_queued_is_queued() {
        let recording = Recording::default();
        let turn = recording.launch(DEVICE, "relu").unwrap();
        std::thread::scope(|s| {
            let capture = s.spawn(|| {
                recording.begin(OTHER, true, || Ok(())).unwrap();
                recording.end(|| ());
            });
            assert!(!turn.captured() && !capture.is_finished());
            drop(turn);
            capture.join().unwrap();
        });
    }
}

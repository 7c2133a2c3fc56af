//! What is remembered of a stream while its launches are captured, and who may use it meanwhile.
//!
//! A stream that is being captured takes everything into the graph that anyone queues on it. So while one thread captures:
//!
//! - other threads, and other devices made of the same stream, are refused whatever they would queue there: it would run
//!   with each replay, on buffers that the graph does not own, and for another device in workspace that goes with that one;
//! - the thread itself may launch on the device that it captures and on no other, whose launches would run at once;
//! - it may not allocate, copy or wait by way of that device, and replay no other graph there.
//!
//! What is queued by other means than this crate's, with cudarc or a library, cannot be refused when it is queued. It is seen
//! by where the capture ends: a launch that finds it elsewhere than the launch before it left it does not begin early. When the
//! capture ends, the graph's nodes are compared with the launches that were counted here.
//!
//! Each launch leaves claims on the memory of its arguments, which the graph keeps.

use super::CudaError;
use super::driver;
use super::owned::{Claim, Claimed};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::ops::Range;
use std::sync::Arc;
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
    allowed: Allowed,
    /// Addresses that the latest launch writes.
    written: Vec<Range<u64>>,
    /// Where the capture ended behind the latest launch: the graph's node, as a number. None before the first, and where
    /// that is not known.
    last: Option<usize>,
    capture: Capture,
}

/// What a capture allows.
#[derive(Clone, Copy, Default)]
pub(super) struct Allowed {
    /// Launches may overlap.
    pub(super) overlap: bool,
    /// Launches may use memory that the graph cannot keep: its caller answers for that.
    pub(super) unowned: bool,
}

/// What was captured.
#[derive(Default)]
pub(super) struct Capture {
    /// Kernels that were queued.
    pub(super) launches: usize,
    /// How many of them begin early.
    pub(super) overlapped: usize,
    /// The memory that they use, by its place.
    kept: BTreeMap<usize, Claim>,
}

impl Capture {
    /// Whether a graph of these nodes (`CUgraphNodeType`) is what was counted here, so that all memory that it uses is kept.
    pub(super) fn check(&self, nodes: &[c_int], allowed: Allowed) -> Result<(), CudaError> {
        if nodes.iter().any(|kind| [driver::MEMORY_ALLOCATION, driver::MEMORY_FREE].contains(kind)) {
            return Err(CudaError::NotCapturable);
        }
        let kernels = nodes.iter().filter(|kind| **kind == driver::KERNEL).count();
        // Each launch of this crate's is one kernel of the graph.
        let foreign = nodes.len() - kernels + kernels.abs_diff(self.launches);
        if foreign == 0 || allowed.unowned { Ok(()) } else { Err(CudaError::ForeignNodes { nodes: foreign }) }
    }

    /// Claims on the memory that the launches use.
    pub(super) fn into_claims(self) -> Vec<Claim> {
        self.kept.into_values().collect()
    }
}

/// Leave to queue something on a stream: as long as this lives, no capture of it begins or ends.
pub(super) struct Turn<'a> {
    recording: &'a Recording,
    captured: RwLockReadGuard<'a, bool>,
}

/// A program that is to be recorded.
pub(super) struct Queued<'a> {
    /// What its first launch reads before it waits, if it can begin early.
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
        allowed: Allowed,
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
        *self.state() = State { allowed, ..State::default() };
        *captured = true;
        CAPTURING.set(device);
        Ok(())
    }

    /// Ends the capture that this thread began; `stop` has the driver end it.
    pub(super) fn end<R>(&self, stop: impl FnOnce() -> R) -> (R, Capture) {
        let mut captured = self.captured.write().unwrap_or_else(PoisonError::into_inner);
        let result = stop();
        *captured = false;
        CAPTURING.set(0);
        (result, std::mem::take(&mut *self.state()).capture)
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

    /// Has the graph keep an argument's memory. `memory` is none if the graph cannot; `refused` is the error then, unless the
    /// capture allows it.
    #[cold]
    pub(super) fn keep(
        &self,
        memory: Option<&dyn Claimed>,
        refused: impl FnOnce() -> CudaError,
    ) -> Result<(), CudaError> {
        let mut state = self.recording.state();
        let Some(memory) = memory else {
            return if state.allowed.unowned { Ok(()) } else { Err(refused()) };
        };
        let claim = memory.claim();
        state.capture.kept.entry(Arc::as_ptr(&claim).addr()).or_insert(claim);
        Ok(())
    }

    /// Records a program of a capture; `written` is all that it writes. Which of its launches may begin early?
    #[cold]
    pub(super) fn record(&self, program: &Queued<'_>, written: impl Iterator<Item = Range<u64>>) -> Starts {
        let mut state = self.recording.state();
        let meets = |a: &Range<u64>, b: &Range<u64>| a.start < b.end && b.start < a.end;
        // The first launch of a capture has nothing in front of it that it could overlap with.
        let follows = state.last.is_some() && state.last == program.front;
        let clear = |early: &[Range<u64>]| !early.iter().any(|e| state.written.iter().any(|w| meets(e, w)));
        let overlap = state.allowed.overlap;
        let first = overlap && follows && program.early.is_some_and(clear);
        state.written = written.collect();
        state.last = None;
        Starts { first, others: overlap }
    }

    /// Counts a launch that the driver took; `early` says whether it begins early.
    #[cold]
    pub(super) fn count(&self, early: bool) {
        let mut state = self.recording.state();
        state.capture.launches += 1;
        state.capture.overlapped += usize::from(early);
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
    use super::super::owned::Owned;
    use super::*;

    /// A stream whose captures end at a node that counts.
    #[derive(Default)]
    struct Stream {
        recording: Recording,
        nodes: Cell<usize>,
    }

    const DEVICE: usize = 1;
    const OTHER: usize = 2;
    const OVERLAP: Allowed = Allowed { overlap: true, unowned: false };

    impl Stream {
        fn captured(overlap: bool) -> Stream {
            let stream = Stream::default();
            let allowed = Allowed { overlap, unowned: false };
            stream.recording.begin(DEVICE, allowed, || Ok(())).unwrap();
            stream
        }

        fn program(&self, launches: usize, early: Option<&[Range<u64>]>, written: &[Range<u64>]) -> Starts {
            let turn = self.recording.launch(DEVICE, "program").unwrap();
            assert!(turn.captured());
            let queued = Queued { early, front: Some(self.nodes.get()) };
            let starts = turn.record(&queued, written.iter().cloned());
            (0..launches).for_each(|i| turn.count(if i == 0 { starts.first } else { starts.others }));
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

        fn end(&self) -> Capture {
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
        assert_eq!(Recording::default().begin(OTHER, OVERLAP, || Ok(())).err(), Some(CudaError::NotCapturable));
        assert!(Recording::default().outside(OTHER, "zeros").is_ok(), "another stream takes copies meanwhile");
        let captured = |call| Some(CudaError::Captured { call });
        std::thread::scope(|s| {
            let other = s.spawn(|| {
                assert_eq!(recording.launch(DEVICE, "relu").err(), captured("relu"));
                assert_eq!(recording.outside(DEVICE, "zeros").err(), captured("zeros"));
                assert_eq!(recording.begin(DEVICE, OVERLAP, || Ok(())).err(), captured("Cuda::capture"));
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
    fn a_capture_keeps_the_memory_of_its_launches() {
        let memories = [Arc::new(1), Arc::new(2)];
        let owners: Vec<_> = memories.iter().map(|m| Owned::new(Arc::clone(m))).collect();
        let used = || memories.each_ref().map(Arc::strong_count);
        let stream = Stream::captured(false);
        let refusal = CudaError::Unowned { workload: "relu", param: "x" };
        let turn = || stream.recording.launch(DEVICE, "relu").unwrap();
        for owner in owners.iter().chain(&owners) {
            turn().keep(Some(owner), || unreachable!()).unwrap();
        }
        assert_eq!(turn().keep(None, || refusal.clone()), Err(refusal), "a view has no owner");
        drop(owners);
        assert_eq!(used(), [2, 2], "the capture keeps what its owners dropped");
        let claims = stream.end().into_claims();
        assert_eq!((claims.len(), used()), (2, [2, 2]), "once each, and the graph keeps it");
        drop(claims);
        assert_eq!(used(), [1, 1]);
        let unowned = Allowed { overlap: false, unowned: true };
        stream.recording.begin(DEVICE, unowned, || Ok(())).unwrap();
        assert_eq!(turn().keep(None, || unreachable!()), Ok(()), "the caller keeps it");
        assert_eq!(stream.end().into_claims().len(), 0, "the next capture keeps nothing of the last one");
    }

    #[test]
    fn what_was_queued_by_other_means_is_no_part_of_a_graph() {
        const COPY: c_int = 1;
        let unowned = Allowed { overlap: true, unowned: true };
        let stream = Stream::captured(true);
        stream.program(2, None, &[]);
        let capture = stream.end();
        let check = |nodes: &[c_int], allowed| capture.check(nodes, allowed).err();
        let foreign = |nodes| Some(CudaError::ForeignNodes { nodes });
        let kernel = driver::KERNEL;
        assert_eq!(check(&[kernel, kernel], OVERLAP), None);
        assert_eq!(check(&[kernel, COPY, kernel], OVERLAP), foreign(1));
        assert_eq!(check(&[kernel; 3], OVERLAP), foreign(1), "another stream was joined, or cudarc launched");
        assert_eq!(check(&[kernel, COPY], OVERLAP), foreign(2), "a launch is missing");
        assert_eq!(check(&[kernel, COPY, kernel, kernel], unowned), None);
        for memory in [driver::MEMORY_ALLOCATION, driver::MEMORY_FREE] {
            for allowed in [OVERLAP, unowned] {
                assert_eq!(check(&[kernel, memory, kernel], allowed), Some(CudaError::NotCapturable));
            }
        }
    }

    #[test]
    fn a_capture_that_does_not_begin_leaves_the_stream_as_it_was() {
        let recording = Recording::default();
        assert_eq!(recording.begin(DEVICE, OVERLAP, || Err(CudaError::NoDevice)), Err(CudaError::NoDevice));
        assert!(recording.launch(OTHER, "relu").is_ok_and(|turn| !turn.captured()));
        assert_eq!(recording.begin(OTHER, OVERLAP, || Ok(())), Ok(()));
        recording.end(|| ());
    }

    #[test]
    fn a_capture_waits_until_what_is_being_queued_is_queued() {
        let recording = Recording::default();
        let turn = recording.launch(DEVICE, "relu").unwrap();
        std::thread::scope(|s| {
            let capture = s.spawn(|| {
                recording.begin(OTHER, OVERLAP, || Ok(())).unwrap();
                recording.end(|| ());
            });
            assert!(!turn.captured() && !capture.is_finished());
            drop(turn);
            capture.join().unwrap();
        });
    }
}

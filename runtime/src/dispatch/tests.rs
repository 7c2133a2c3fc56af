//! Launches of hand-made tables whose "C functions" are Rust.

use super::*;
use crate::generated::v2;
use crate::{Cpu, DynView, DynViewMut, Executor};
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

const N: usize = 1000;

/// `y[i] = 2 * wp[i] + x[i]`, after a first phase that leaves 2 in the shared workspace.
unsafe fn first(_: *const *mut u8, ws: *mut u8, worker: i64, begin: i64, end: i64) {
    assert_eq!((worker, begin, end), (0, 0, 1));
    // SAFETY: the program states 64 bytes of workspace.
    unsafe { ws.cast::<f32>().write(2.0) }
}

unsafe fn second(args: *const *mut u8, ws: *mut u8, worker: i64, begin: i64, end: i64) {
    // SAFETY: three arguments of N floats, 64 shared bytes, 128 bytes a worker; the range is within N.
    unsafe {
        let own = ws.add(64 + 128 * worker as usize).cast::<i64>();
        own.write(begin);
        let (x, w, y) = ((*args).cast::<f32>(), (*args.add(1)).cast::<f32>(), (*args.add(2)).cast::<f32>());
        assert_eq!(w as usize % 64, 0, "packed weights are aligned");
        for i in begin as usize..end as usize {
            *y.add(i) = *ws.cast::<f32>() * *w.add(N - 1 - i) + *x.add(i);
        }
        assert_eq!(own.read(), begin, "another worker has written this one's part");
    }
}

/// Packing reverses.
unsafe fn pack(args: *const *mut u8, _: *mut u8, _: i64, begin: i64, end: i64) {
    // SAFETY: two arguments of N floats.
    unsafe {
        let (w, packed) = ((*args).cast::<f32>(), (*args.add(1)).cast::<f32>());
        for i in begin as usize..end as usize {
            *packed.add(N - 1 - i) = *w.add(i);
        }
    }
}

const BY_HAND: Choice =
    Choice { template: "hand", config: "none", origin: "test", origin_detail: "made by hand", cost_us: None };

const fn program(phases: &'static [Phase], workspace_bytes: usize, worker_bytes: usize) -> Program {
    // SAFETY: each function of this file keeps to the sizes that it is used with.
    unsafe { v2::program(phases, workspace_bytes, worker_bytes) }
}

const fn phase(func: PhaseFn, extent: usize) -> Phase {
    // SAFETY: as above.
    unsafe { v2::phase(func, extent, None) }
}

const fn packs(bytes: usize, program: Program) -> Pack {
    // SAFETY: as above; all pack the second parameter.
    unsafe { v2::pack(1, bytes, program) }
}

const fn variant(isa: Isa, program: Program, packs: &'static [Pack]) -> Variant {
    // SAFETY: the functions are compiled for any machine.
    unsafe { v2::variant(isa, 1, program, packs, BY_HAND, "second") }
}

const fn entry(name: &'static str, params: &'static [Param], weight: usize, variants: &'static [Variant]) -> Entry {
    let no_code = "it was built for documentation only";
    let about = About { name, workload: "y = 2 w + x", flops: 2 * N as u64, bytes: 12 * N as u64, no_code };
    // SAFETY: each variant of this file is used with parameters that its functions take.
    unsafe { v2::entry(about, params, Some(weight), None, variants, crate::cuda_table!(&[])) }
}

const fn param(name: &'static str, access: Access) -> Param {
    v2::param(name, DType::F32, &[1, N], access)
}

const PARAMS: &[Param] = &[param("x", Access::Read), param("w", Access::Read), param("y", Access::Write)];

const fn saxpy(isa: Isa) -> Variant {
    const PHASES: &[Phase] = &[phase(first, 1), phase(second, N)];
    const PACK: &[Phase] = &[phase(pack, N)];
    const PACKS: &[Pack] = &[packs(N * 4, program(PACK, 0, 0))];
    variant(isa, program(PHASES, 64, 128), PACKS)
}

#[cfg(target_arch = "aarch64")]
static VARIANTS: [Variant; 1] = [saxpy(Isa::Aarch64)];
#[cfg(not(target_arch = "aarch64"))]
static VARIANTS: [Variant; 2] = [saxpy(Isa::X86_64V4), saxpy(Isa::X86_64)];

static ENTRY: Entry = entry("saxpy_1000", PARAMS, 1, &VARIANTS);
static TWIN: Entry = entry("saxpy_1000_strided", PARAMS, 1, &[]);

static ONE: Function = v2::function("saxpy", &[&ENTRY]);
static TWO: Function = v2::function("saxpy", &[&ENTRY, &TWIN]);

fn data() -> (Vec<f32>, Vec<f32>, Vec<f32>) {
    let x: Vec<f32> = (0..N).map(|i| i as f32).collect();
    let w: Vec<f32> = (0..N).map(|i| (i * i % 17) as f32).collect();
    let y = x.iter().zip(&w).map(|(x, w)| 2.0 * w + x).collect();
    (x, w, y)
}

#[test]
fn packed_and_unpacked_launches_agree_on_any_number_of_threads() {
    let (x, w, expected) = data();
    for threads in [1, 2, 5] {
        let dev = Cpu::with_threads(threads);
        let mut y = vec![0.0f32; N];
        ENTRY.launch(&dev, &[Arg::read(&x), Arg::read(&w), Arg::write(&mut y)]).unwrap();
        assert_eq!(y, expected);
        let packed = ENTRY.pack_weight(&dev, Arg::read(&w)).unwrap();
        y.fill(0.0);
        ENTRY.launch(&dev, &[Arg::read(&x), Arg::packed(&packed), Arg::write(&mut y)]).unwrap();
        assert_eq!(y, expected);
        let held = dev.workspace_bytes();
        ENTRY.launch(&dev, &[Arg::read(&x), Arg::read(&w), Arg::write(&mut y)]).unwrap();
        assert_eq!(dev.workspace_bytes(), held, "a launch that was seen before allocates nothing");
    }
}

/// A launch writes nothing if its workspace cannot be allocated, and the device is as good as before.
#[cfg(target_pointer_width = "64")]
#[test]
fn a_workspace_that_does_not_fit_in_memory_is_an_error() {
    const PHASES: &[Phase] = &[phase(first, 1), phase(second, N)];
    const PACK: &[Phase] = &[phase(pack, N)];
    const HUGE: usize = 1 << 60;
    static SHARED: [Variant; 1] = [variant(Isa::LOWEST, program(PHASES, HUGE, 0), &[])];
    static OWN: [Variant; 1] = [variant(Isa::LOWEST, program(PHASES, 64, HUGE), &[])];
    static TOO_LARGE: [Variant; 1] = [variant(Isa::LOWEST, program(PHASES, 64, usize::MAX), &[])];
    const PACKS: &[Pack] = &[packs(HUGE, program(PACK, 0, 0))];
    static PACKED: [Variant; 1] = [variant(Isa::LOWEST, program(PHASES, 64, 128), PACKS)];
    static ENTRIES: [(Entry, usize); 4] = [
        (entry("shared", PARAMS, 1, &SHARED), HUGE),
        (entry("own", PARAMS, 1, &OWN), 2 * HUGE + 64),
        (entry("too_large", PARAMS, 1, &TOO_LARGE), usize::MAX),
        (entry("packed", PARAMS, 1, &PACKED), HUGE + 64 + 2 * 128),
    ];
    let (x, w, expected) = data();
    let dev = Cpu::with_threads(2);
    let mut y = vec![0.0f32; N];
    for (entry, bytes) in &ENTRIES {
        let launched = entry.launch(&dev, &[Arg::read(&x), Arg::read(&w), Arg::write(&mut y)]);
        assert_eq!(launched, Err(Error::OutOfMemory { bytes: *bytes }), "{}", entry.about.name);
        assert!(y.iter().all(|y| *y == 0.0));
    }
    let packed = ENTRIES[3].0.pack_weight(&dev, Arg::read(&w));
    assert_eq!(packed.err(), Some(Error::OutOfMemory { bytes: HUGE }));
    ENTRY.launch(&dev, &[Arg::read(&x), Arg::read(&w), Arg::write(&mut y)]).unwrap();
    assert_eq!(y, expected);
}

#[test]
fn launches_from_several_threads_do_not_disturb_each_other() {
    let (x, w, expected) = data();
    let dev = Cpu::with_threads(2);
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                for _ in 0..50 {
                    let mut y = vec![0.0f32; N];
                    ENTRY.launch(&dev, &[Arg::read(&x), Arg::read(&w), Arg::write(&mut y)]).unwrap();
                    assert_eq!(y, expected);
                }
            });
        }
    });
}

/// An executor of one worker the first time that it is asked, and of 4096 from then on.
struct Grows(&'static AtomicUsize);

impl Executor for Grows {
    fn workers(&self) -> usize {
        if self.0.fetch_add(1, Ordering::Relaxed) == 0 { 1 } else { 4096 }
    }

    fn run(&self, workers: usize, body: &(dyn Fn(usize) + Sync)) {
        (0..workers).for_each(body);
    }
}

/// The highest worker that [`watched`] has run as.
static HIGHEST: AtomicI64 = AtomicI64::new(-1);

unsafe fn watched(_: *const *mut u8, _: *mut u8, worker: i64, _: i64, _: i64) {
    HIGHEST.fetch_max(worker, Ordering::Relaxed);
}

#[test]
fn workers_never_pass_the_number_that_the_workspace_was_sized_for() {
    static ASKED: [AtomicUsize; 3] = [const { AtomicUsize::new(0) }; 3];
    const PHASES: &[Phase] = &[phase(watched, 4096)];
    const PACKS: &[Pack] = &[packs(64, program(PHASES, 0, 1 << 20))];
    static WATCHED: [Variant; 1] = [variant(Isa::LOWEST, program(PHASES, 0, 1 << 20), PACKS)];
    static WATCH: Entry = entry("watch", PARAMS, 1, &WATCHED);
    let (x, w, _) = data();
    let mut y = vec![0.0f32; N];
    let launch = Cpu::with_executor(Grows(&ASKED[0]));
    WATCH.launch(&launch, &[Arg::read(&x), Arg::read(&w), Arg::write(&mut y)]).unwrap();
    let pack = Cpu::with_executor(Grows(&ASKED[1]));
    WATCH.pack_weight(&pack, Arg::read(&w)).unwrap();
    assert_eq!(HIGHEST.load(Ordering::Relaxed), 0, "both were sized for one worker");
    let each = Cpu::with_executor(Grows(&ASKED[2]));
    each.on_each_thread(&|worker| assert_eq!(worker, 0));
    assert!(ASKED.iter().all(|asked| asked.load(Ordering::Relaxed) == 1), "each call asks once: {ASKED:?}");
}

#[test]
fn a_weight_that_is_packed_is_not_taken_for_one_that_is_not() {
    let dev = Cpu::with_threads(1);
    // A table with the same parameter that packs nothing: what it is given it would copy.
    const PHASES: &[Phase] = &[phase(watched, 1)];
    const SHORT: &[Param] = &[v2::param("w", DType::F32, &[1], Access::Read)];
    static PLAIN: [Variant; 1] = [variant(Isa::LOWEST, program(PHASES, 0, 0), &[])];
    static SMALL: Entry = entry("small", SHORT, 0, &PLAIN);
    let small = SMALL.pack_weight(&dev, Arg::read(&[1.0f32])).unwrap();
    let error = ENTRY.pack_weight(&dev, Arg::packed(&small)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`saxpy_1000`: parameter `w` holds 1000 elements of f32, but the argument holds 4 of u8"
    );
}

#[test]
fn arguments_are_held_against_the_parameters() {
    let dev = Cpu::with_threads(1);
    let (x, w, mut y) = (vec![0.0f32; N], vec![0.0f32; N - 1], vec![0.0f32; N]);
    let error = ENTRY.launch(&dev, &[Arg::read(&x), Arg::read(&w), Arg::write(&mut y)]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`saxpy_1000`: parameter `w` holds 1000 elements of f32, but the argument holds 999 of f32"
    );
    let x = vec![0i32; N];
    assert!(ENTRY.launch(&dev, &[Arg::read(&x), Arg::read(&y.clone()), Arg::write(&mut y)]).is_err());
}

#[test]
fn no_code_and_foreign_packs_are_errors_that_say_why() {
    let dev = Cpu::with_threads(1);
    let (x, w, _) = data();
    let mut y = vec![0.0f32; N];
    let error = TWIN.launch(&dev, &[Arg::read(&x), Arg::read(&w), Arg::write(&mut y)]).unwrap_err();
    assert_eq!(error.to_string(), "there is no code for `saxpy_1000_strided`: it was built for documentation only");
    let packed = ENTRY.pack_weight(&dev, Arg::read(&w)).unwrap();
    let error = TWIN.launch(&dev, &[Arg::read(&x), Arg::packed(&packed), Arg::write(&mut y)]).unwrap_err();
    assert!(matches!(error, Error::ForeignPack { packed_by: "saxpy_1000", .. }));
}

fn call(function: &Function, x: &[usize], y: &[usize]) -> Result<()> {
    let dev = Cpu::with_threads(1);
    let elements = |s: &[usize]| s.iter().product::<usize>();
    let (xs, ws, mut ys) = (vec![0.0f32; elements(x)], vec![0.0f32; N], vec![0.0f32; elements(y)]);
    function.launch_dyn(
        &dev,
        [
            DynArg::read(DynView::new(&xs, x))?,
            DynArg::read(DynView::new(&ws, &[1, N]))?,
            DynArg::write(DynViewMut::new(&mut ys, y))?,
        ],
    )
}

#[test]
fn the_dynamic_form_finds_the_workload_or_lists_what_exists() {
    call(&ONE, &[1, N], &[1, N]).unwrap();
    let error = call(&ONE, &[2, N], &[2, N]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`saxpy` is not declared for x [2, 1000] w [1, 1000] y [2, 1000]; the spec declares:\n  \
         saxpy_1000: x [1, 1000], w [1, 1000], y [1, 1000]"
    );
    let error = call(&TWO, &[1, N], &[1, N]).unwrap_err();
    assert!(error.to_string().ends_with("`saxpy_1000::launch_unpacked` or `saxpy_1000_strided::launch_unpacked`"));
}

#[test]
fn an_empty_batch_does_nothing() {
    call(&ONE, &[0, N], &[0, N]).unwrap();
    assert!(call(&ONE, &[0, N - 1], &[0, N]).is_err());
    assert!(call(&ONE, &[0, N], &[1, N]).is_err());
}

#[test]
fn a_weight_packed_for_another_level_is_refused_or_used_with_its_own_code() {
    if !Isa::detect().runs(Isa::X86_64V4) {
        eprintln!("[SKIP] needs a machine with AVX-512");
        return;
    }
    let high = Cpu::with_threads(1).with_isa(Isa::X86_64V4).unwrap();
    let low = high.with_isa(Isa::X86_64).unwrap();
    let (x, w, expected) = data();
    let mut y = vec![0.0f32; N];
    let packed_high = ENTRY.pack_weight(&high, Arg::read(&w)).unwrap();
    let error = ENTRY.launch(&low, &[Arg::read(&x), Arg::packed(&packed_high), Arg::write(&mut y)]).unwrap_err();
    assert!(matches!(error, Error::PackedFor { .. }));
    let packed_low = ENTRY.pack_weight(&low, Arg::read(&w)).unwrap();
    ENTRY.launch(&high, &[Arg::read(&x), Arg::packed(&packed_low), Arg::write(&mut y)]).unwrap();
    assert_eq!(y, expected);
}

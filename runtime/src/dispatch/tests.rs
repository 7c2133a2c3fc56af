//! Launches of hand-made tables whose "C functions" are Rust.

use super::*;
use crate::{Cpu, DynView, DynViewMut};

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

const VARIANT: Variant = Variant {
    isa: Isa::X86_64,
    program: Program {
        // SAFETY: the functions keep to the sizes that are stated here.
        phases: unsafe { &[Phase::new(first, 1), Phase::new(second, N)] },
        workspace_bytes: 64,
        worker_bytes: 128,
    },
    packs: &[Pack {
        param: 1,
        bytes: N * 4,
        // SAFETY: as above.
        program: Program { phases: unsafe { &[Phase::new(pack, N)] }, workspace_bytes: 0, worker_bytes: 0 },
    }],
    template: "hand",
    config: "none",
    origin: "test",
    origin_detail: "made by hand",
    cost_us: None,
    symbol: "second",
};

const fn param(name: &'static str, access: Access) -> Param {
    Param { name, dtype: DType::F32, shape: &[1, N], access }
}

const PARAMS: &[Param] = &[param("x", Access::Read), param("w", Access::Read), param("y", Access::Write)];

static ENTRY: Entry = Entry {
    name: "saxpy_1000",
    workload: "y = 2 w + x",
    params: PARAMS,
    weight: Some(1),
    flops: 2 * N as u64,
    bytes: 12 * N as u64,
    variants: if cfg!(target_arch = "aarch64") {
        &[Variant { isa: Isa::Aarch64, ..VARIANT }]
    } else {
        &[Variant { isa: Isa::X86_64V4, ..VARIANT }, VARIANT]
    },
    cuda: crate::cuda_table!(&[]),
    no_code: "",
};

static TWIN: Entry = Entry {
    name: "saxpy_1000_strided",
    workload: "",
    params: PARAMS,
    weight: Some(1),
    flops: 0,
    bytes: 0,
    variants: &[],
    cuda: crate::cuda_table!(&[]),
    no_code: "it was built for documentation only",
};

static ONE: Function = Function { name: "saxpy", entries: &[&ENTRY] };
static TWO: Function = Function { name: "saxpy", entries: &[&ENTRY, &TWIN] };

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
    if Isa::detect() != Isa::X86_64V4 {
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

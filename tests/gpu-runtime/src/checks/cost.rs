//! What a typed launch costs the host, beside the bare call of the driver.

use crate::suite::Check;

pub(super) fn checks() -> Vec<Check> {
    vec![
        #[cfg(feature = "hand")]
        Check { name: "host cost of a typed launch", run: measured::beside_the_driver },
        Check { name: "heap allocations of generated launches", run: generated_allocates_nothing },
    ]
}

fn generated_allocates_nothing(dev: &kernel_gen_runtime::Cuda) -> crate::suite::Checked {
    use crate::suite::{Outcome, ensure};
    use kernel_gen_runtime::{D1, D2, Device};
    let (a, b) = (dev.zeros::<f32, D2<64, 64>>()?, dev.zeros::<f32, D2<64, 64>>()?);
    let bias = dev.zeros::<f32, D1<64>>()?;
    let mut c = dev.zeros::<f32, D2<64, 64>>()?;
    crate::kernels::product(dev, &a, &b, &bias, &mut c)?;
    let before = crate::counting::allocations();
    for _ in 0..1000 {
        crate::kernels::product(dev, &a, &b, &bias, &mut c)?;
    }
    let count = crate::counting::allocations() - before;
    ensure(count == 0, || format!("{count} heap allocations in 1000 launches"))?;
    Ok(Outcome::Passed("0 in 1000 launches".into()))
}

#[cfg(feature = "hand")]
mod measured {
    use crate::suite::{Checked, Outcome, ensure};
    use crate::{counting, hand};
    use kernel_gen_runtime::cuda::cudarc::driver::{CudaSlice, CudaStream, DevicePtr, result, sys};
    use kernel_gen_runtime::{Cuda, D1, Device};
    use std::ffi::{CString, c_void};
    use std::time::Instant;

    /// What a typed launch may cost more than the bare call.
    const MOST_NS: f64 = 1000.0;
    /// Launches that are timed together, few enough that the queue does not fill up.
    const BATCH: usize = 200;
    const BATCHES: usize = 101;

    /// The same code as the typed function's, launched by hand.
    struct Bare {
        function: sys::CUfunction,
        stream: sys::CUstream,
    }

    impl Bare {
        fn load(stream: &CudaStream) -> Result<Bare, Box<dyn std::error::Error>> {
            const PTX: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/increment.ptx"));
            if PTX.is_empty() {
                return Err("it was built without a CUDA compiler".into());
            }
            stream.context().bind_to_thread()?;
            // SAFETY: the PTX ends in 0; the module stays loaded to the end of the program.
            let function = unsafe {
                let module = result::module::load_data(PTX.as_ptr().cast())?;
                result::module::get_function(module, CString::new("increment")?)?
            };
            Ok(Bare { function, stream: stream.cu_stream() })
        }

        fn launch(&self, mut x: u64, mut y: u64) -> Result<(), result::DriverError> {
            let mut params: [*mut c_void; 2] = [(&raw mut x).cast(), (&raw mut y).cast()];
            let config = sys::CUlaunchConfig {
                gridDimX: 8,
                gridDimY: 1,
                gridDimZ: 1,
                blockDimX: 128,
                blockDimY: 1,
                blockDimZ: 1,
                sharedMemBytes: 0,
                hStream: self.stream,
                attrs: std::ptr::null_mut(),
                numAttrs: 0,
            };
            // SAFETY: the kernel takes two addresses of 1000 floats.
            unsafe { sys::cuLaunchKernelEx(&config, self.function, params.as_mut_ptr(), std::ptr::null_mut()).result() }
        }
    }

    /// Nanoseconds a launch: the median over batches, and heap allocations in all of them.
    struct Cost {
        ns: f64,
        allocations: usize,
    }

    /// Times two ways to launch, batch by batch in turn.
    fn in_turn(
        dev: &Cuda,
        mut one: impl FnMut() -> Result<(), Box<dyn std::error::Error>>,
        mut other: impl FnMut() -> Result<(), Box<dyn std::error::Error>>,
    ) -> Result<[Cost; 2], Box<dyn std::error::Error>> {
        let mut times = [vec![0.0; 0], vec![0.0; 0]];
        let mut allocations = [0; 2];
        for round in 0..BATCHES + 5 {
            for which in 0..2 {
                dev.synchronize()?;
                let (before, start) = (counting::allocations(), Instant::now());
                for _ in 0..BATCH {
                    if which == 0 { one()? } else { other()? }
                }
                let ns = start.elapsed().as_nanos() as f64 / BATCH as f64;
                // The first rounds warm up.
                if round >= 5 {
                    allocations[which] += counting::allocations() - before;
                    times[which].push(ns);
                }
            }
        }
        dev.synchronize()?;
        let mut which = 0;
        Ok(times.map(|mut t| {
            t.sort_by(f64::total_cmp);
            which += 1;
            Cost { ns: t[t.len() / 2], allocations: allocations[which - 1] }
        }))
    }

    fn address(slice: &CudaSlice<f32>, stream: &CudaStream) -> u64 {
        slice.device_ptr(stream).0
    }

    pub(super) fn beside_the_driver(dev: &Cuda) -> Checked {
        let mut report = vec![];
        // On the default stream of a program with one stream; then on a stream of its own, where cudarc orders streams
        // by events; then the same with that turned off, as programs do that order their streams themselves.
        let (default, events, plain) = ("one stream", "streams ordered by events", "streams ordered by the program");
        for mode in [default, events, plain] {
            let dev = match mode {
                m if m == default => dev.clone(),
                _ => Cuda::from_stream(dev.stream().context().new_stream()?)?,
            };
            let context = dev.stream().context().clone();
            if mode == plain {
                dev.synchronize()?;
                // SAFETY: everything below runs on one stream.
                unsafe { context.disable_event_tracking() };
            }
            let bare = Bare::load(dev.stream())?;
            let x = dev.zeros::<f32, D1<1000>>()?;
            let mut y = dev.zeros::<f32, D1<1000>>()?;
            let (px, py) = (address(x.as_slice(), dev.stream()), address(y.as_slice(), dev.stream()));
            let [typed, driver] =
                in_turn(&dev, || Ok(hand::increment(&dev, &x, &mut y)?), || Ok(bare.launch(px, py)?))?;
            drop((x, y));
            if mode == plain {
                dev.synchronize()?;
                // SAFETY: nothing that was made without events is left.
                unsafe { context.enable_event_tracking() };
            }
            ensure(typed.allocations == 0, || {
                format!("{mode}: {} heap allocations in {} launches", typed.allocations, BATCH * BATCHES)
            })?;
            let more = typed.ns - driver.ns;
            if mode != events {
                ensure(more <= MOST_NS, || {
                    format!("{mode}: {:.0} ns typed and {:.0} ns bare, {more:.0} ns more", typed.ns, driver.ns)
                })?;
            }
            report.push(format!("{mode}: {:.0} ns typed, {:.0} ns bare", typed.ns, driver.ns));
        }
        Ok(Outcome::Passed(format!("{}; 0 heap allocations", report.join("; "))))
    }
}

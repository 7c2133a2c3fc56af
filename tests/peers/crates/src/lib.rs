//! What a Rust program would pick without C libraries: tract, rten, candle and gemm, behind the C interface that
//! `tests/peers` opens with `--crates`.
//!
//! Everything that can be done once is done before any time is taken: models optimised, weights packed, threads made.

mod candle;
mod gemm;
mod interface;
mod rten;
mod tract;

use interface::{Layer, Library, Tensor, Text};
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;
use std::sync::Mutex;

/// A crate that is ready for a layer: computes it and, if there is somewhere to put it, copies the result there.
type Peer = Box<dyn FnMut(Option<&mut [f32]>) -> Result<(), String>>;

/// Threads of every crate, as `open` was told.
static THREADS: Mutex<usize> = Mutex::new(1);

/// The values of a tensor of the caller.
fn values(tensor: &Tensor) -> &'static [f32] {
    // SAFETY: the interface has the caller keep as many values there, unchanged, for as long as whoever was made of the
    // layer lives, and nobody here keeps them for longer.
    unsafe { std::slice::from_raw_parts(tensor.data, tensor.shape().iter().product()) }
}

/// The layer's model.
fn model(layer: &Layer) -> &'static [u8] {
    // SAFETY: as for tensors.
    unsafe { std::slice::from_raw_parts(layer.model, layer.model_length) }
}

/// The inputs of the layer's model in their order.
fn inputs(layer: &Layer) -> Vec<Tensor> {
    [layer.x, layer.residual].into_iter().filter(|tensor| tensor.rank > 0).collect()
}

/// Copies a result out, if there is somewhere to put it.
fn copy(out: Option<&mut [f32]>, result: &[f32]) -> Result<(), String> {
    match out {
        Some(out) if out.len() != result.len() => Err(format!("{} values instead of {}", result.len(), out.len())),
        Some(out) => {
            out.copy_from_slice(result);
            Ok(())
        }
        None => Ok(()),
    }
}

/// Whatever goes wrong, in words.
fn words(error: impl std::fmt::Display) -> String {
    format!("{error:#}")
}

/// A pool of threads, the first of them on the first core and so on.
fn pool(cores: &[usize]) -> rayon::ThreadPoolBuilder {
    let cores = cores.to_vec();
    rayon::ThreadPoolBuilder::new().num_threads(cores.len()).start_handler(move |i| pin(cores[i]))
}

/// Keeps the calling thread on one core.
fn pin(core: usize) {
    // SAFETY: `cpu_set_t` is a plain array of bits, for which all zeros is a value; the call only reads it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
    }
}

/// Runs something that may fail or panic; the words of either go into the text.
fn attempt<T>(text: &mut Text, what: impl FnOnce() -> Result<T, String>) -> Option<T> {
    let result = catch_unwind(AssertUnwindSafe(what)).unwrap_or_else(|payload| {
        let message = payload.downcast_ref::<String>().map(String::as_str).or(payload.downcast_ref::<&str>().copied());
        Err(format!("panic: {}", message.unwrap_or("without words")))
    });
    result.map_err(|message| text.set(&message)).ok()
}

/// The functions of this library.
#[unsafe(no_mangle)]
extern "C" fn peer_crates() -> Library {
    Library { open, create, run, destroy }
}

unsafe extern "C" fn open(cores: *const usize, threads: usize, text: &mut Text) -> bool {
    // SAFETY: the caller has a core for each thread there.
    let cores = unsafe { std::slice::from_raw_parts(cores, threads) };
    let opened = attempt(text, || {
        *THREADS.lock().map_err(words)? = threads;
        // The last has candle's second pool sleep at once: while its threads spin, its first pool lacks their cores, and most
        // layers take up to twice as long.
        let count = threads.to_string();
        let variables = [
            ("RAYON_NUM_THREADS", count.as_str()),
            ("RTEN_NUM_THREADS", &count),
            ("CANDLE_BARRIER_POOL_SPIN_LIMIT", "1"),
        ];
        for (name, value) in variables {
            // SAFETY: the caller has no other thread as yet.
            unsafe { std::env::set_var(name, value) };
        }
        // candle and gemm use the global pool.
        pool(cores).build_global().map_err(words)?;
        candle::open(cores);
        tract::open(cores)?;
        rten::open(cores)
    });
    opened.is_some()
}

unsafe extern "C" fn create(peer: usize, layer: &Layer, text: &mut Text) -> *mut c_void {
    let made = attempt(text, || {
        let threads = *THREADS.lock().map_err(words)?;
        match interface::NAMES.get(peer) {
            Some(&"tract") => tract::peer(layer, threads),
            Some(&"rten") => rten::peer(layer),
            Some(&"candle") => candle::peer(layer),
            Some(&"gemm") => gemm::peer(layer, threads),
            _ => Err(format!("there is no crate {peer}")),
        }
    });
    made.map_or(null_mut(), |peer| Box::into_raw(Box::new(peer)).cast())
}

unsafe extern "C" fn run(peer: *mut c_void, y: *mut f32, length: usize, text: &mut Text) -> bool {
    // SAFETY: a pointer that `create` gave and `destroy` has not had; one call at a time.
    let peer: &mut Peer = unsafe { &mut *peer.cast() };
    // SAFETY: the caller has room for that many values there, if there is any.
    let out = (!y.is_null()).then(|| unsafe { std::slice::from_raw_parts_mut(y, length) });
    attempt(text, || peer(out)).is_some()
}

unsafe extern "C" fn destroy(peer: *mut c_void) {
    // SAFETY: a pointer that `create` gave, which the caller gives back once.
    drop(unsafe { Box::from_raw(peer.cast::<Peer>()) });
}

//! What passes between `peers` and the library of crates, which are built on their own: both include this file. Fields are
//! of C's layout, since two builds need not agree on Rust's.

use std::ffi::c_void;
use std::ptr::null;

/// The crates, in the order of their columns.
pub(crate) const NAMES: [&str; 4] = ["tract", "rten", "candle", "gemm"];

/// The symbol of the library that gives its [`Library`]: a function of the type [`Enter`].
#[allow(dead_code, reason = "only who opens the library looks for it")]
pub(crate) const ENTER: &[u8] = b"peer_crates\0";

/// Gives the library's functions.
#[allow(dead_code, reason = "only who opens the library calls it")]
pub(crate) type Enter = extern "C" fn() -> Library;

/// A tensor of `f32` in row-major order.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Tensor {
    /// As many values as the shape says.
    pub(crate) data: *const f32,
    /// Extents, the outermost first; only the first `rank` count.
    pub(crate) shape: [usize; 4],
    /// Number of extents; 0 for a tensor that a layer does not have.
    pub(crate) rank: usize,
}

impl Tensor {
    /// A tensor of that shape, of at most four extents.
    #[allow(dead_code, reason = "only who opens the library describes layers")]
    pub(crate) fn new(data: *const f32, extents: &[usize]) -> Tensor {
        let mut shape = [1; 4];
        shape[..extents.len()].copy_from_slice(extents);
        Tensor { data, shape, rank: extents.len() }
    }

    /// No tensor.
    #[allow(dead_code, reason = "only who opens the library describes layers")]
    pub(crate) fn none() -> Tensor {
        Tensor { data: null(), shape: [1; 4], rank: 0 }
    }

    /// The extents.
    #[allow(dead_code, reason = "only the library, and tests, look at them")]
    pub(crate) fn shape(&self) -> &[usize] {
        &self.shape[..self.rank]
    }
}

/// A layer with its arguments, which must stay where they are for as long as a peer made of it lives.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Layer {
    /// The layer as an ONNX model: inputs `x` and, if there is one, `residual`; output `y`.
    pub(crate) model: *const u8,
    /// Bytes of the model.
    pub(crate) model_length: usize,
    /// Activations: `[n, c, h, w]`, or the left matrix.
    pub(crate) x: Tensor,
    /// `[co, ci / groups, kh, kw]`, or the right matrix.
    pub(crate) w: Tensor,
    /// A value for each output channel or column.
    pub(crate) bias: Tensor,
    /// Added to the result.
    pub(crate) residual: Tensor,
    /// A convolution; otherwise a product.
    pub(crate) convolution: bool,
    /// Down and right.
    pub(crate) stride: [usize; 2],
    /// Top, left, bottom, right.
    pub(crate) padding: [usize; 4],
    /// Down and right.
    pub(crate) dilation: [usize; 2],
    /// Groups of channels.
    pub(crate) groups: usize,
    /// The left matrix is stored transposed.
    pub(crate) trans_a: bool,
    /// The right matrix is stored transposed.
    pub(crate) trans_b: bool,
    /// The function at the end: 0 none, 1 ReLU, 2 ReLU6.
    pub(crate) activation: u32,
}

/// What went wrong, in words.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Text {
    bytes: [u8; 512],
    length: usize,
}

impl Text {
    /// No words.
    #[allow(dead_code, reason = "only who opens the library waits for words")]
    pub(crate) fn new() -> Text {
        Text { bytes: [0; 512], length: 0 }
    }

    /// Keeps as much of the words as fits.
    #[allow(dead_code, reason = "only the library says anything")]
    pub(crate) fn set(&mut self, words: &str) {
        self.length = words.len().min(self.bytes.len());
        self.bytes[..self.length].copy_from_slice(&words.as_bytes()[..self.length]);
    }

    /// The words.
    #[allow(dead_code, reason = "only who opens the library reads them")]
    pub(crate) fn get(&self) -> String {
        String::from_utf8_lossy(&self.bytes[..self.length]).into_owned()
    }
}

/// The library's functions. Those that may fail say in a [`Text`] why.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Library {
    /// Gives every crate that many threads, each on one of as many cores; whether it worked. To be called once,
    /// before anything else, by a process of one thread.
    pub(crate) open: unsafe extern "C" fn(cores: *const usize, threads: usize, text: &mut Text) -> bool,
    /// Makes a crate, by its place in [`NAMES`], ready for a layer: packs weights, optimises. Null if it cannot take part.
    pub(crate) create: unsafe extern "C" fn(peer: usize, layer: &Layer, text: &mut Text) -> *mut c_void,
    /// Computes the layer and, if `y` is not null, copies the result of `length` values there; whether it worked.
    pub(crate) run: unsafe extern "C" fn(peer: *mut c_void, y: *mut f32, length: usize, text: &mut Text) -> bool,
    /// Ends what `create` made.
    pub(crate) destroy: unsafe extern "C" fn(peer: *mut c_void),
}

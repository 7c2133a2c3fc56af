//! The crates tract, rten, candle and gemm, through the library that `run.sh` makes of `crates`: a build of its own, so that
//! nobody who only builds this program waits for the two hundred crates behind them.

use crate::contest::{Contestant, Pinned};
use crate::layers::{Activation, Data, Op, Problem};
use crate::onnx;
use std::ffi::c_void;
use std::path::Path;
use std::ptr::null_mut;
use std::rc::Rc;

#[path = "../crates/src/interface.rs"]
mod interface;

pub(crate) use interface::NAMES;
use interface::{Layer, Tensor, Text};

/// Their versions, which the library's `Cargo.toml` pins.
pub(crate) const VERSIONS: &str = "tract 0.23.9, rten 0.27.0, candle 0.11.1, gemm 0.19.0";

/// The library, opened. Lives as long as the program: its crates keep threads that do not survive being closed.
pub(crate) struct Library {
    functions: interface::Library,
}

impl Library {
    /// Gives each crate its threads on those cores, as many as there are. Before the calling thread is kept on one of them.
    pub(crate) fn open(library: &Path, cores: &[usize]) -> Result<Rc<Library>, String> {
        // SAFETY: the library has no initialisers but those of Rust's standard library.
        let opened = unsafe { libloading::Library::new(library) };
        let library = opened.map_err(|e| format!("{}: {e}", library.display()))?;
        let library: &'static libloading::Library = Box::leak(Box::new(library));
        // SAFETY: the library declares this function with this type, from the same file.
        let enter = unsafe { library.get::<interface::Enter>(interface::ENTER) }.map_err(|e| e.to_string())?;
        let functions = enter();
        let mut text = Text::new();
        // SAFETY: there are as many cores as is said.
        match unsafe { (functions.open)(cores.as_ptr(), cores.len(), &mut text) } {
            true => Ok(Rc::new(Library { functions })),
            false => Err(format!("the library of crates: {}", text.get())),
        }
    }
}

/// A crate that is ready for a layer.
pub(crate) struct Peer {
    library: Rc<Library>,
    handle: *mut c_void,
    output: Pinned,
    length: usize,
    /// The crates look at it for as long as they live.
    _model: Vec<u8>,
}

impl Peer {
    /// Makes the crate, by its place in [`NAMES`], ready for the layer. The data must live, unmoved and unchanged, as long
    /// as the peer.
    pub(crate) fn new(library: &Rc<Library>, which: usize, problem: &Problem, data: &Data) -> Result<Peer, String> {
        let model = onnx::layer(problem, data);
        let layer = layer(problem, data, &model);
        let mut text = Text::new();
        // SAFETY: what the layer points to outlives the handle, and has the sizes that it says.
        let handle = unsafe { (library.functions.create)(which, &layer, &mut text) };
        if handle.is_null() {
            return Err(text.get());
        }
        let length = problem.op.output().iter().product();
        Ok(Peer { library: Rc::clone(library), handle, output: Pinned::new(length), length, _model: model })
    }

    fn call(&mut self, y: *mut f32) -> Result<(), String> {
        let mut text = Text::new();
        // SAFETY: the handle is one that the library made and that is still alive; the output has that many values.
        match unsafe { (self.library.functions.run)(self.handle, y, self.length, &mut text) } {
            true => Ok(()),
            false => Err(text.get()),
        }
    }
}

impl Contestant for Peer {
    fn run(&mut self) -> Result<(), String> {
        self.call(null_mut())
    }

    fn result(&mut self) -> Result<Vec<f32>, String> {
        self.output.poison();
        self.call(self.output.as_ptr().cast_mut())?;
        Ok(self.output.to_vec())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // SAFETY: the handle is one that the library made, and is destroyed once.
        unsafe { (self.library.functions.destroy)(self.handle) }
    }
}

/// The layer as the library has it described.
fn layer(problem: &Problem, data: &Data, model: &[u8]) -> Layer {
    let tensor = |values: &[f32], shape: &[usize]| Tensor::new(values.as_ptr(), shape);
    let optional = |is: bool, values: &[f32], shape: &[usize]| if is { tensor(values, shape) } else { Tensor::none() };
    let activation = match problem.activation {
        Activation::None => 0,
        Activation::Relu => 1,
        Activation::Relu6 => 2,
        Activation::Gelu => unreachable!("no list has a GELU"),
    };
    let mut layer = Layer {
        model: model.as_ptr(),
        model_length: model.len(),
        x: tensor(&data.input, &problem.op.input()),
        w: tensor(&data.weight, &problem.op.weight()),
        bias: optional(problem.bias, &data.bias, &[problem.op.channels()]),
        residual: optional(problem.residual, &data.residual, &problem.op.output()),
        convolution: false,
        stride: [1; 2],
        padding: [0; 4],
        dilation: [1; 2],
        groups: 1,
        trans_a: false,
        trans_b: false,
        activation,
    };
    match problem.op {
        Op::Conv(c) => {
            layer.convolution = true;
            (layer.stride, layer.padding, layer.dilation, layer.groups) = (c.stride, c.padding, c.dilation, c.groups);
        }
        Op::Product(p) => (layer.trans_a, layer.trans_b) = (p.trans_a, p.trans_b),
    }
    layer
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layers::Product;

    #[test]
    fn a_layer_is_described_with_what_it_has() {
        let product = Product { batch: 1, m: 2, n: 3, k: 4, trans_a: false, trans_b: true };
        let problem = Problem { op: Op::Product(product), bias: true, residual: false, activation: Activation::Relu };
        let data = Data::new(&problem);
        let described = layer(&problem, &data, &[]);
        assert_eq!((described.x.shape(), described.w.shape()), (&[2, 4][..], &[3, 4][..]));
        assert_eq!((described.bias.shape(), described.residual.shape()), (&[3][..], &[][..]));
        assert!(described.trans_b && !described.convolution && described.activation == 1);
    }

    #[test]
    fn words_come_back_as_far_as_they_fit() {
        let mut text = Text::new();
        assert_eq!(text.get(), "");
        text.set("no such crate");
        assert_eq!(text.get(), "no such crate");
        text.set(&"x".repeat(1000));
        assert_eq!(text.get().len(), 512);
    }

    #[test]
    fn versions_are_those_that_are_pinned() {
        let manifest = include_str!("../crates/Cargo.toml");
        for (name, said) in NAMES.iter().zip(VERSIONS.split(", ")) {
            let version = said.strip_prefix(name).expect("the versions come in the order of the names").trim();
            assert!(manifest.contains(&format!("\"={version}\"")), "{said} is not what Cargo.toml pins");
        }
    }
}

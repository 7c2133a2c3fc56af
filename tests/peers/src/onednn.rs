//! oneDNN, through the library that `run.sh` makes of `shim/onednn.cpp`.

use crate::contest::{Contestant, Pinned};
use crate::layers::{Activation, Data, Op, Problem};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::Path;
use std::ptr::null;
use std::rc::Rc;

/// How a layer is run; see the shim.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Variant {
    Blocked = 0,
    Plain = 1,
    Reordered = 2,
}

/// `Problem` of the shim: the order of the numbers is that of its fields.
#[repr(C)]
struct Numbers([i64; 26]);

impl Numbers {
    fn of(problem: &Problem) -> Numbers {
        let mut numbers = match &problem.op {
            Op::Conv(c) => {
                let ([sh, sw], [dh, dw], [top, left, bottom, right]) = (c.stride, c.dilation, c.padding);
                let conv = [c.n, c.ci, c.h, c.w, c.co, c.kh, c.kw, sh, sw, top, left, bottom, right, dh, dw, c.groups];
                let mut all = vec![0];
                all.extend(conv);
                all.extend([0; 6]);
                all
            }
            Op::Product(p) => {
                let mut all = vec![1];
                all.extend([0; 16]);
                all.extend([p.batch, p.m, p.n, p.k, usize::from(p.trans_a), usize::from(p.trans_b)]);
                all
            }
        };
        let activation = match problem.activation {
            Activation::None => 0,
            Activation::Relu => 1,
            Activation::Relu6 => 2,
            Activation::Gelu => 3,
        };
        numbers.extend([usize::from(problem.bias), usize::from(problem.residual), activation]);
        let numbers: Vec<i64> = numbers.into_iter().map(|n| n as i64).collect();
        Numbers(numbers.try_into().expect("one number a field"))
    }
}

type Create = unsafe extern "C" fn(
    *const Numbers,
    c_int,
    *const f32,
    *const f32,
    *const f32,
    *const f32,
    *mut f32,
    *mut c_char,
    usize,
) -> *mut c_void;
type Call = unsafe extern "C" fn(*mut c_void) -> c_int;

/// The shim, opened. Lives as long as the program: oneDNN keeps threads that do not survive being closed.
pub(crate) struct Library {
    create: Create,
    run: Call,
    result: Call,
    destroy: unsafe extern "C" fn(*mut c_void),
    pub(crate) version: String,
}

impl Library {
    pub(crate) fn open(library: &Path) -> Result<Rc<Library>, String> {
        // SAFETY: the library's initialisers are those of oneDNN and OpenMP, which may run in any program.
        let library = unsafe { libloading::Library::new(library) }.map_err(|e| e.to_string())?;
        let library: &'static libloading::Library = Box::leak(Box::new(library));
        let mut text = [0 as c_char; 64];
        // SAFETY: the shim declares these functions with these types; the text has the length that is said.
        unsafe {
            let fault = |e: libloading::Error| e.to_string();
            let version = library.get::<unsafe extern "C" fn(*mut c_char, usize)>(b"peer_version\0").map_err(fault)?;
            version(text.as_mut_ptr(), text.len());
            Ok(Rc::new(Library {
                create: *library.get::<Create>(b"peer_create\0").map_err(fault)?,
                run: *library.get::<Call>(b"peer_run\0").map_err(fault)?,
                result: *library.get::<Call>(b"peer_result\0").map_err(fault)?,
                destroy: *library.get::<unsafe extern "C" fn(*mut c_void)>(b"peer_destroy\0").map_err(fault)?,
                version: CStr::from_ptr(text.as_ptr()).to_string_lossy().into_owned(),
            }))
        }
    }
}

/// A layer, ready to run.
pub(crate) struct Layer {
    library: Rc<Library>,
    handle: *mut c_void,
    output: Pinned,
    /// What oneDNN calls the implementation that it picked.
    pub(crate) implementation: String,
}

impl Layer {
    /// Packs the weights. The data must live, unmoved and unchanged, as long as the layer.
    pub(crate) fn new(
        library: &Rc<Library>,
        problem: &Problem,
        data: &Data,
        variant: Variant,
    ) -> Result<Layer, String> {
        let output = Pinned::new(problem.op.output().iter().product());
        let optional = |values: &[f32]| if values.is_empty() { null() } else { values.as_ptr() };
        let mut text = [0 as c_char; 256];
        // SAFETY: the tensors have the sizes that the problem says and outlive the handle; the text has the length that
        // is said, and the shim ends it with a zero.
        let (handle, text) = unsafe {
            let handle = (library.create)(
                &Numbers::of(problem),
                variant as c_int,
                data.input.as_ptr(),
                data.weight.as_ptr(),
                optional(&data.bias),
                optional(&data.residual),
                output.as_ptr().cast_mut(),
                text.as_mut_ptr(),
                text.len(),
            );
            (handle, CStr::from_ptr(text.as_ptr()).to_string_lossy().into_owned())
        };
        if handle.is_null() {
            return Err(format!("oneDNN: {text}"));
        }
        Ok(Layer { library: Rc::clone(library), handle, output, implementation: text })
    }

    fn call(&self, function: Call) -> Result<(), String> {
        // SAFETY: the handle is one that the shim made and that is still alive.
        match unsafe { function(self.handle) } {
            0 => Ok(()),
            _ => Err("oneDNN: a run failed".into()),
        }
    }
}

impl Contestant for Layer {
    fn run(&mut self) -> Result<(), String> {
        self.call(self.library.run)
    }

    fn result(&mut self) -> Result<Vec<f32>, String> {
        self.output.poison();
        self.call(self.library.result)?;
        Ok(self.output.to_vec())
    }
}

impl Drop for Layer {
    fn drop(&mut self) {
        // SAFETY: the handle is one that the shim made, and is destroyed once.
        unsafe { (self.library.destroy)(self.handle) }
    }
}

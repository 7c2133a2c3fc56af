//! Loaded code, and its launches with their arguments.

use super::{Bench, Guarded};
use crate::cuda::driver::{Handle, LaunchConfig, TensorMap};
use crate::cuda::launch::attributes;
use crate::cuda::tensor_map::encode;
use crate::cuda::{CudaError, KernelArg, TensorMapSpec};
use std::ffi::c_void;
use std::marker::PhantomData;

/// How a kernel is started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Start {
    /// The kernel's symbol.
    pub kernel: String,
    /// Blocks along x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block along x, y, z.
    pub block: [u32; 3],
    /// Blocks of a cluster along x, y, z; all 1 if there are no clusters.
    pub cluster: [u32; 3],
    /// Dynamic shared memory of a block.
    pub shared_bytes: u32,
    /// Whether the kernel waits by itself for what is in front of it, and so may begin before that has ended.
    pub overlap: bool,
    /// Its parameters.
    pub args: Vec<KernelArg>,
}

/// Code that is loaded. It is unloaded with the value.
pub struct Code<'b> {
    bench: &'b Bench,
    module: Handle,
    /// The functions of the starts.
    functions: Vec<Handle>,
}

impl Drop for Code<'_> {
    fn drop(&mut self) {
        if self.bench.context.bind().is_ok() {
            self.bench.context.unload(self.module);
        }
    }
}

/// As many bytes as the parameters of a kernel can have together (CUDA 12.1 and later), which also bounds their number.
const MOST_PARAMETER_BYTES: usize = 32764;
/// Most arguments of a launch here.
const MOST_ARGUMENTS: usize = 256;

/// Launches with their arguments, to be queued any number of times.
pub struct Bound<'a> {
    launches: Vec<Launch>,
    _memory: PhantomData<&'a Guarded>,
}

impl Bound<'_> {
    /// Whether its first kernel can begin before what is in front of it has ended.
    pub fn begins_early(&self) -> bool {
        self.launches.first().is_some_and(|launch| launch.alone.is_some())
    }
}

/// When the first kernel of a call begins. Those behind it begin early where they can, always: it is known what is in front.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Begin {
    /// When all that is in front has ended, as calls by themselves do.
    Behind,
    /// Early, if it can and something is in front of it, as calls that are captured together do. Nothing in front may write
    /// what it reads before it waits.
    Early,
}

/// A launch and its arguments.
struct Launch {
    function: Handle,
    start: Start,
    values: Vec<TensorMap>,
    /// The shared memory with which it can begin early, if it can.
    alone: Option<u32>,
}

/// An argument of 8 bytes.
fn word(value: u64) -> TensorMap {
    let mut block = TensorMap([0; 16]);
    block.0[0] = value;
    block
}

/// Where the driver reads the arguments of a launch. A kernel declares how many bytes each of its parameters has, and it
/// may declare others than it is given: so there are as many addresses as it can have parameters, and behind each as many
/// bytes.
pub(super) struct Arguments {
    values: *mut TensorMap,
    pointers: Vec<*mut c_void>,
}

/// Blocks of the arguments, and of what may be read behind the last.
const BLOCKS: usize = MOST_ARGUMENTS + MOST_PARAMETER_BYTES / size_of::<TensorMap>() + 2;

impl Arguments {
    pub(super) fn new() -> Arguments {
        let values: *mut [TensorMap] = Box::into_raw(vec![TensorMap([0; 16]); BLOCKS].into_boxed_slice());
        let values: *mut TensorMap = values.cast();
        let at = |i: usize| values.wrapping_add(i.min(MOST_ARGUMENTS)).cast::<c_void>();
        Arguments { values, pointers: (0..=MOST_PARAMETER_BYTES).map(at).collect() }
    }

    /// Puts the arguments in their places; gives the list of places.
    fn set(&mut self, values: &[TensorMap]) -> *mut *mut c_void {
        for (i, value) in values.iter().enumerate().take(MOST_ARGUMENTS) {
            // SAFETY: there are more blocks than that, and nothing else refers to them.
            unsafe { self.values.add(i).write(*value) };
        }
        self.pointers.as_mut_ptr()
    }
}

impl Drop for Arguments {
    fn drop(&mut self) {
        // SAFETY: it was made from a box of so many blocks, and nobody has freed it.
        drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(self.values, BLOCKS)) });
    }
}

impl Bench {
    /// Loads a cubin or PTX and finds the kernels of `starts`.
    ///
    /// # Errors
    /// If the driver does not take the code, or the code has no such kernel (error 500).
    pub fn load(&self, image: &[u8], starts: &[Start]) -> Result<Code<'_>, CudaError> {
        self.context.bind()?;
        // From here on it is unloaded if something fails.
        let mut code = Code { bench: self, module: self.context.load_data(image)?, functions: vec![] };
        for start in starts {
            let shared_bytes = self.alone(start).unwrap_or(start.shared_bytes);
            let found = self.context.function(code.module, &start.kernel, shared_bytes, start.cluster)?;
            let missing = || CudaError::Driver { call: "cuModuleGetFunction", code: 500, name: start.kernel.clone() };
            code.functions.push(found.ok_or_else(missing)?);
        }
        Ok(code)
    }

    /// Gives code its arguments: `starts` as it was loaded with, `params` for [`KernelArg::Param`], `workspace` for
    /// [`KernelArg::Workspace`], `maps` for [`KernelArg::Map`].
    ///
    /// # Errors
    /// If an argument is not there, or the driver cannot make a tensor map.
    pub fn bind<'a>(
        &self,
        code: &'a Code<'_>,
        starts: &[Start],
        params: &[&'a Guarded],
        workspace: Option<&'a Guarded>,
        maps: &[TensorMapSpec],
    ) -> Result<Bound<'a>, CudaError> {
        let missing = |name: String| CudaError::Driver { call: "cuLaunchKernelEx", code: 1, name };
        let address = |arg: KernelArg| match arg {
            KernelArg::Param(i) => params.get(i).map(|p| p.address()),
            KernelArg::Within(i, offset) => params.get(i).map(|p| p.address() + offset),
            KernelArg::Workspace(offset) => workspace.map(|w| w.address() + offset),
            KernelArg::Int(n) => Some(u64::from(n as u32)),
            KernelArg::Map(_) | KernelArg::Scalar(_) | KernelArg::Units => None,
        };
        let mut launches = vec![];
        for (start, function) in starts.iter().zip(&code.functions) {
            if start.args.len() > MOST_ARGUMENTS {
                return Err(missing(format!("`{}` has more than {MOST_ARGUMENTS} arguments", start.kernel)));
            }
            let mut values = vec![];
            for arg in &start.args {
                let wanted = || missing(format!("`{}` has no argument for {arg:?}", start.kernel));
                values.push(match arg {
                    KernelArg::Map(m) => {
                        let spec = maps.get(*m).filter(|s| (1..=5).contains(&s.rank)).ok_or_else(wanted)?;
                        encode(self.context.driver, spec, address(spec.base).ok_or_else(wanted)?, 1)?
                    }
                    other => word(address(*other).ok_or_else(wanted)?),
                });
            }
            launches.push(Launch { function: *function, start: start.clone(), values, alone: self.alone(start) });
        }
        Ok(Bound { launches, _memory: PhantomData })
    }

    /// The first kernel of `code`, started as it was loaded, with arguments that are not memory of candidates.
    pub(super) fn bind_words<'a>(&self, code: &'a Code<'_>, start: &Start, words: &[u64]) -> Bound<'a> {
        let values: Vec<TensorMap> = words.iter().copied().map(word).collect();
        let launch = |function: &Handle| Launch { function: *function, start: start.clone(), values, alone: None };
        let launch = code.functions.first().map(launch);
        Bound { launches: launch.into_iter().collect(), _memory: PhantomData }
    }

    /// [`Context::alone`] of a candidate's launch.
    fn alone(&self, start: &Start) -> Option<u32> {
        start.overlap.then(|| self.context.alone_bytes(start.grid, start.shared_bytes)).flatten()
    }

    /// Queues the launches, as a call by itself.
    pub fn launch(&self, bound: &Bound<'_>) -> Result<(), CudaError> {
        self.queue(bound, Begin::Behind)
    }

    /// Queues the launches.
    pub(super) fn queue(&self, bound: &Bound<'_>, begin: Begin) -> Result<(), CudaError> {
        self.context.bind()?;
        let driver = self.context.driver;
        for (i, launch) in bound.launches.iter().enumerate() {
            let Start { grid, block, shared_bytes, cluster, .. } = launch.start;
            let alone = launch.alone.filter(|_| i > 0 || begin == Begin::Early);
            let (mut attributes, attribute_count) = attributes(cluster, alone.is_some());
            let config = LaunchConfig {
                grid,
                block,
                shared_bytes: alone.unwrap_or(shared_bytes),
                stream: self.handle(),
                attributes: attributes.as_mut_ptr(),
                attribute_count,
            };
            let pointers = self.arguments.borrow_mut().set(&launch.values);
            // SAFETY: the function lives as long as the code that `bound` borrows. There are at least as many pointers as a
            // kernel has parameters, and behind each as many bytes as all of them have; the driver copies what it wants before
            // it returns. What the kernel does with them is said at the top of this module.
            let code = unsafe { (driver.launch)(&config, launch.function, pointers, std::ptr::null_mut()) };
            driver.check("cuLaunchKernelEx", code)?;
        }
        Ok(())
    }
}

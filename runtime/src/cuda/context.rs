//! What a context has loaded, shared by all devices made on it.

use super::driver::{self, Driver, Handle};
use super::image::{self, Image, Kind};
use super::recording::Recording;
use super::slot::SlotMap;
use super::table::{Launch, Program};
use super::tensor_map::MapCache;
use super::{CudaError, nvrtc};
use cudarc::driver::{CudaContext, CudaStream, sys};
use std::ffi::{CString, c_int, c_void};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// A context and the programs that are loaded into it. It lives as long as a device or a packed weight uses it; its
/// modules are unloaded with it.
pub(super) struct Context {
    /// Keeps the driver's context alive.
    pub(super) cuda: Arc<CudaContext>,
    pub(super) driver: &'static Driver,
    pub(super) capability: (i32, i32),
    multiprocessors: u32,
    /// Half of a multiprocessor's shared memory, of which two blocks cannot have as much each.
    half_of_shared_bytes: u32,
    programs: SlotMap<Loaded>,
    /// Held while something is loaded, so that nothing is loaded twice.
    loading: Mutex<()>,
    /// What the devices of one stream share, by the stream's handle as a number.
    recordings: Mutex<Vec<(usize, Weak<Recording>)>>,
}

/// A program in a context.
pub(super) struct Loaded {
    module: Handle,
    /// One for each launch of the program.
    pub(super) functions: Box<[Handle]>,
    /// One for each tensor map of the program.
    pub(super) maps: Box<[MapCache]>,
}

// SAFETY: modules and functions are handles of the driver, which may be used from every thread to which the context
// is bound.
unsafe impl Send for Loaded {}
// SAFETY: as above; nothing is changed through a shared reference but the caches, which are made for it.
unsafe impl Sync for Loaded {}

/// The contexts that are in use.
static CONTEXTS: Mutex<Vec<Weak<Context>>> = Mutex::new(vec![]);

impl Context {
    /// What belongs to a driver's context: the same for everyone who asks, as long as anyone has it.
    pub(super) fn of(cuda: &Arc<CudaContext>) -> Result<Arc<Context>, CudaError> {
        let driver = Driver::get()?;
        let mut contexts = CONTEXTS.lock().unwrap_or_else(PoisonError::into_inner);
        contexts.retain(|c| c.strong_count() > 0);
        let known = contexts.iter().filter_map(Weak::upgrade).find(|c| c.cuda.cu_ctx() == cuda.cu_ctx());
        if let Some(context) = known {
            return Ok(context);
        }
        let capability = cuda.compute_capability().map_err(|e| Driver::of_cudarc("cuDeviceGetAttribute", e))?;
        let attribute = |attribute| {
            let value = cuda.attribute(attribute).map_err(|e| Driver::of_cudarc("cuDeviceGetAttribute", e))?;
            Ok::<u32, CudaError>(u32::try_from(value).unwrap_or(0))
        };
        use sys::CUdevice_attribute::{
            CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
        };
        let context = Arc::new(Context {
            cuda: Arc::clone(cuda),
            driver,
            capability,
            multiprocessors: attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            half_of_shared_bytes: attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR)? / 2,
            programs: SlotMap::new(),
            loading: Mutex::new(()),
            recordings: Mutex::new(vec![]),
        });
        contexts.push(Arc::downgrade(&context));
        Ok(context)
    }

    /// What the devices of a stream share: the same for all of them, as long as there is one. Each keeps the stream, so
    /// its handle is nobody else's meanwhile.
    pub(super) fn recording(&self, stream: &CudaStream) -> Arc<Recording> {
        let stream = stream.cu_stream().addr();
        let mut recordings = self.recordings.lock().unwrap_or_else(PoisonError::into_inner);
        recordings.retain(|(_, r)| r.strong_count() > 0);
        let known = recordings.iter().find(|(s, _)| *s == stream).and_then(|(_, r)| r.upgrade());
        known.unwrap_or_else(|| {
            let recording = Arc::new(Recording::default());
            recordings.push((stream, Arc::downgrade(&recording)));
            recording
        })
    }

    /// Makes the context the calling thread's. Also reports what went wrong where nothing could be returned: in a
    /// `drop`, say.
    #[inline]
    pub(super) fn bind(&self) -> Result<(), CudaError> {
        self.cuda.bind_to_thread().map_err(|e| Driver::of_cudarc("cuCtxSetCurrent", e))
    }

    /// The program in this context, if it has been loaded.
    #[inline]
    pub(super) fn loaded(&self, program: &Program) -> Option<&Loaded> {
        self.programs.get(program.slot)
    }

    /// Loads the program, if nobody has.
    #[cold]
    pub(super) fn load(&self, program: &Program) -> Result<&Loaded, CudaError> {
        let _one_at_a_time = self.loading.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(loaded) = self.programs.get(program.slot) {
            return Ok(loaded);
        }
        self.bind()?;
        let kernel = program.launches.first().map_or("", |l| l.kernel);
        let refused = |reason: String| CudaError::Image { kernel, device: self.capability, reason };
        let images = image::images(program.image).ok_or_else(|| {
            refused("the embedded bundle is damaged; build the crate again (`cargo clean -p` first)".into())
        })?;
        let mut reasons = vec![];
        for image in image::usable(images, self.capability) {
            // A driver may take a cubin and refuse one of its functions: then the next image has its turn.
            match self.module(&image, kernel).and_then(|module| self.functions(program, module)) {
                Ok(loaded) => return Ok(self.programs.put(program.slot, loaded)),
                // A fault that has nothing to do with this image: the context is broken, or memory is short.
                Err(error @ CudaError::Driver { code: 2 | 100 | 201 | 700..=999, .. }) => return Err(error),
                Err(error) => reasons.push(error.to_string()),
            }
        }
        Err(refused(match reasons.len() {
            0 => "the bundle has nothing for it; add its architecture to `[targets] cuda` in the spec".into(),
            _ => reasons.join("; "),
        }))
    }

    /// Loads one image.
    fn module(&self, image: &Image, kernel: &'static str) -> Result<Handle, CudaError> {
        if image.kind == Kind::Source {
            let cubin = nvrtc::compile(image.bytes, kernel, self.capability, image.exact)?;
            return self.load_data(&cubin);
        }
        if let Some(needed) = image.ptx_needs().filter(|n| image.kind == Kind::Ptx && *n > self.driver.version) {
            return Err(CudaError::DriverTooOld {
                driver: self.driver.version,
                needed,
                what: format!("the PTX of `{kernel}`"),
            });
        }
        self.load_data(image.bytes)
    }

    /// `cuModuleLoadDataEx` with a log for what the driver's own compiler says.
    pub(super) fn load_data(&self, bytes: &[u8]) -> Result<Handle, CudaError> {
        // Aligned as the structures in a cubin are, and with the 0 that ends PTX.
        let mut words = vec![0u64; bytes.len() / 8 + 1];
        for (word, chunk) in words.iter_mut().zip(bytes.chunks(8)) {
            let mut whole = [0; 8];
            whole[..chunk.len()].copy_from_slice(chunk);
            *word = u64::from_ne_bytes(whole);
        }
        let mut log = vec![0u8; 8192];
        // CU_JIT_ERROR_LOG_BUFFER and CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES.
        let mut options: [c_int; 2] = [5, 6];
        let mut values: [*mut c_void; 2] = [log.as_mut_ptr().cast(), std::ptr::without_provenance_mut(log.len() - 1)];
        let mut module = std::ptr::null_mut();
        // SAFETY: the image ends in 0 if it is PTX and carries its own length if it is a cubin; options and values have
        // two elements each, and the log is one byte longer than the driver is told.
        let code = unsafe {
            (self.driver.module_load)(&mut module, words.as_ptr().cast(), 2, options.as_mut_ptr(), values.as_mut_ptr())
        };
        self.driver.check("cuModuleLoadDataEx", code).map_err(|error| {
            let text = log.split(|b| *b == 0).next().unwrap_or_default();
            match (error, String::from_utf8_lossy(text).trim()) {
                (CudaError::Driver { call, code, name }, log) if !log.is_empty() => {
                    CudaError::Driver { call, code, name: format!("{name}: {log}") }
                }
                (error, _) => error,
            }
        })?;
        Ok(module)
    }

    /// Finds the functions of a module, and sets what is set once.
    fn functions(&self, program: &Program, module: Handle) -> Result<Loaded, CudaError> {
        // From here on the module is unloaded if something fails.
        let mut loaded = Loaded { module, functions: Box::new([]), maps: Box::new([]) };
        let functions = program.launches.iter().map(|launch| {
            let shared_bytes = self.alone(launch, 1).unwrap_or(launch.shared_bytes);
            let found = self.function(module, launch.kernel, shared_bytes, launch.cluster)?;
            found.ok_or_else(|| CudaError::Image {
                kernel: launch.kernel,
                device: self.capability,
                reason: "the image has no kernel of this name; build the crate again (`cargo clean -p` first)".into(),
            })
        });
        match functions.collect::<Result<_, _>>() {
            Ok(functions) => loaded.functions = functions,
            Err(error) => {
                self.unload(loaded.module);
                return Err(error);
            }
        }
        loaded.maps = program.maps.iter().map(|_| MapCache::new()).collect();
        Ok(loaded)
    }

    /// The dynamic shared memory with which a launch has at most one block on a multiprocessor, if it can begin early and
    /// has no more blocks than there are multiprocessors.
    ///
    /// Blocks that begin early find multiprocessors that are still at work, and a few that are not: without this, those get
    /// two and more of them, and the launch takes as long as the fullest.
    pub(super) fn alone(&self, launch: &Launch, units: usize) -> Option<u32> {
        launch
            .overlap
            .filter(|_| units <= launch.early_units)
            .and_then(|_| self.alone_bytes(launch.grid_of(units), launch.shared_bytes))
    }

    /// The same of a kernel that can begin early, by its grid and by what its blocks need.
    pub(super) fn alone_bytes(&self, grid: [u32; 3], shared_bytes: u32) -> Option<u32> {
        let blocks = grid.iter().try_fold(1u32, |n, g| n.checked_mul(*g))?;
        (blocks <= self.multiprocessors).then_some(shared_bytes.max(self.half_of_shared_bytes))
    }

    /// Finds a function of a loaded module, if it has one of that name, and sets what is set once.
    pub(super) fn function(
        &self,
        module: Handle,
        name: &str,
        shared_bytes: u32,
        cluster: [u32; 3],
    ) -> Result<Option<Handle>, CudaError> {
        let driver = self.driver;
        let Ok(name) = CString::new(name) else { return Ok(None) };
        let mut function = std::ptr::null_mut();
        // SAFETY: the module is loaded, the name ends in 0, and the pointer is to a local.
        match unsafe { (driver.module_function)(&mut function, module, name.as_ptr()) } {
            500 => return Ok(None),
            code => driver.check("cuModuleGetFunction", code)?,
        }
        let set = |attribute, value: u32| {
            // SAFETY: the function was found just now.
            let code = unsafe { (driver.function_set)(function, attribute, value as c_int) };
            driver.check("cuFuncSetAttribute", code)
        };
        // A kernel may have static shared memory besides, so asking is not left to sizes above 48 KiB.
        if shared_bytes > 0 {
            set(driver::MAX_DYNAMIC_SHARED_SIZE_BYTES, shared_bytes)?;
        }
        if cluster.iter().product::<u32>() > 8 {
            set(driver::NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1)?;
        }
        Ok(Some(function))
    }

    /// Unloads a module; the context is bound.
    pub(super) fn unload(&self, module: Handle) {
        // SAFETY: the module was loaded into this context and is not used any more: launches hold the context, and
        // the driver finishes those that are under way before it frees the code.
        let code = unsafe { (self.driver.module_unload)(module) };
        if code != 0 {
            // There is nobody to return it to; the next call in the context reports it.
            let unknown = cudarc::driver::DriverError(sys::CUresult::CUDA_ERROR_UNKNOWN);
            self.cuda.record_err::<()>(Err(unknown));
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        match self.cuda.bind_to_thread() {
            Ok(()) => self.programs.iter().for_each(|loaded| self.unload(loaded.module)),
            Err(error) => self.cuda.record_err::<()>(Err(error)),
        }
    }
}

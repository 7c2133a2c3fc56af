//! ONNX Runtime, through its C interface.

use crate::contest::{Contestant, Pinned};
use ort_sys::{
    GraphOptimizationLevel, ONNXTensorElementDataType, OrtAllocatorType, OrtApi, OrtApiBase, OrtEnv, OrtIoBinding,
    OrtLoggingLevel, OrtMemType, OrtMemoryInfo, OrtSession, OrtSessionOptions, OrtStatusPtr, OrtValue,
};
use std::ffi::{CStr, CString, c_void};
use std::path::Path;
use std::ptr::{null, null_mut};
use std::rc::Rc;

/// The library, opened, with an environment. Lives as long as the program: the library keeps threads and globals that do
/// not survive being closed.
pub(crate) struct Runtime {
    api: &'static OrtApi,
    env: *mut OrtEnv,
    memory: *mut OrtMemoryInfo,
    pub(crate) version: String,
}

impl Runtime {
    pub(crate) fn open(library: &Path) -> Result<Rc<Runtime>, String> {
        // SAFETY: the library's initialisers are those of ONNX Runtime, which may run in any program.
        let library = unsafe { libloading::Library::new(library) }.map_err(|e| e.to_string())?;
        let library: &'static libloading::Library = Box::leak(Box::new(library));
        // SAFETY: the function has this type in every version of the library.
        let base = unsafe { library.get::<unsafe extern "system" fn() -> *const OrtApiBase>(b"OrtGetApiBase\0") }
            .map_err(|e| e.to_string())?;
        // SAFETY: the base and the table of a version that the library knows are statics of it; for another version it
        // returns null, which is looked for.
        let (api, version) = unsafe {
            let base = &*base();
            let api = (base.GetApi)(ort_sys::ORT_API_VERSION).as_ref();
            (api, CStr::from_ptr((base.GetVersionString)()).to_string_lossy().into_owned())
        };
        let api =
            api.ok_or_else(|| format!("version {version} does not speak interface {}", ort_sys::ORT_API_VERSION))?;
        let (mut env, mut memory) = (null_mut(), null_mut());
        // SAFETY: the pointers are to live variables, the name is a static string.
        unsafe {
            let level = OrtLoggingLevel::ORT_LOGGING_LEVEL_ERROR;
            check(api, (api.CreateEnv)(level, c"peers".as_ptr(), &mut env))?;
            let (kind, place) = (OrtAllocatorType::OrtArenaAllocator, OrtMemType::OrtMemTypeDefault);
            check(api, (api.CreateCpuMemoryInfo)(kind, place, &mut memory))?;
        }
        Ok(Rc::new(Runtime { api, env, memory, version }))
    }
}

/// The message of a status, if it is one of failure.
fn check(api: &OrtApi, status: OrtStatusPtr) -> Result<(), String> {
    if status.0.is_null() {
        return Ok(());
    }
    // SAFETY: a status that is not null is valid until it is released, which happens once, here.
    unsafe {
        let message = CStr::from_ptr((api.GetErrorMessage)(status.0)).to_string_lossy().into_owned();
        (api.ReleaseStatus)(status.0);
        Err(format!("ONNX Runtime: {message}"))
    }
}

/// A model, loaded and bound to buffers.
pub(crate) struct Session {
    runtime: Rc<Runtime>,
    session: *mut OrtSession,
    binding: *mut OrtIoBinding,
    values: Vec<*mut OrtValue>,
    // Bound: the session writes to it while it runs, and nobody else holds a reference then.
    output: Pinned,
}

impl Session {
    /// Loads a model with `threads` threads, each on one of `cores`, the calling one first. The inputs must live, unmoved
    /// and unchanged, as long as the session.
    pub(crate) fn new(
        runtime: &Rc<Runtime>,
        model: &[u8],
        inputs: &[(&str, &[usize], &[f32])],
        output: (&str, &[usize]),
        threads: usize,
        cores: &[usize],
    ) -> Result<Session, String> {
        let api = runtime.api;
        let result = Pinned::new(output.1.iter().product());
        let mut made = Session {
            runtime: Rc::clone(runtime),
            session: null_mut(),
            binding: null_mut(),
            values: vec![],
            output: result,
        };
        // SAFETY: pointers are to live variables, strings end in zero, and handles are used after the calls that made
        // them have succeeded.
        unsafe {
            let mut options: *mut OrtSessionOptions = null_mut();
            check(api, (api.CreateSessionOptions)(&mut options))?;
            check(api, (api.SetIntraOpNumThreads)(options, threads as i32))?;
            check(api, (api.SetSessionGraphOptimizationLevel)(options, GraphOptimizationLevel::ORT_ENABLE_ALL))?;
            if threads > 1 && cores.len() >= threads {
                // Processors count from 1 here; the calling thread is not in the list.
                let list: Vec<String> = cores[1..threads].iter().map(|c| (c + 1).to_string()).collect();
                let list = CString::new(list.join(";")).expect("digits hold no zero byte");
                let key = c"session.intra_op_thread_affinities";
                check(api, (api.AddSessionConfigEntry)(options, key.as_ptr(), list.as_ptr()))?;
            }
            let (bytes, length) = (model.as_ptr().cast::<c_void>(), model.len());
            let loaded = (api.CreateSessionFromArray)(runtime.env, bytes, length, options, &mut made.session);
            (api.ReleaseSessionOptions)(options);
            check(api, loaded)?;
            check(api, (api.CreateIoBinding)(made.session, &mut made.binding))?;
            for (name, shape, data) in inputs {
                let value = made.value(data.as_ptr(), shape)?;
                let name = CString::new(*name).expect("names hold no zero byte");
                check(api, (api.BindInput)(made.binding, name.as_ptr(), value))?;
            }
            let value = made.value(made.output.as_ptr(), output.1)?;
            let name = CString::new(output.0).expect("names hold no zero byte");
            check(api, (api.BindOutput)(made.binding, name.as_ptr(), value))?;
        }
        Ok(made)
    }

    /// A view of a buffer as a value.
    fn value(&mut self, data: *const f32, shape: &[usize]) -> Result<*mut OrtValue, String> {
        let shape: Vec<i64> = shape.iter().map(|d| *d as i64).collect();
        let bytes = shape.iter().product::<i64>() as usize * size_of::<f32>();
        let kind = ONNXTensorElementDataType::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT;
        let mut value = null_mut();
        // SAFETY: the buffer holds as many bytes as the shape says, and outlives the session.
        let status = unsafe {
            (self.runtime.api.CreateTensorWithDataAsOrtValue)(
                self.runtime.memory,
                data.cast_mut().cast(),
                bytes,
                shape.as_ptr(),
                shape.len(),
                kind,
                &mut value,
            )
        };
        check(self.runtime.api, status)?;
        self.values.push(value);
        Ok(value)
    }
}

impl Contestant for Session {
    fn run(&mut self) -> Result<(), String> {
        let api = self.runtime.api;
        // SAFETY: session and binding were made and are released together.
        check(api, unsafe { (api.RunWithBinding)(self.session, null(), self.binding) })
    }

    fn result(&mut self) -> Result<Vec<f32>, String> {
        self.output.poison();
        self.run()?;
        Ok(self.output.to_vec())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let api = self.runtime.api;
        // SAFETY: each handle is released once; releasing null does nothing.
        unsafe {
            (api.ReleaseIoBinding)(self.binding);
            for value in &self.values {
                (api.ReleaseValue)(*value);
            }
            (api.ReleaseSession)(self.session);
        }
    }
}

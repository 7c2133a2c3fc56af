//! Which public types may be sent to other threads, and which may be shared between them. This compiles or it does not;
//! nothing runs.

use crate::network::{Step, Steps, Weights};
use crate::{
    Bf16, Cpu, D1, DType, Device, DynView, DynViewMut, E4m3, E5m2, Error, F16, IoError, Isa, Report, Tensor, View,
    ViewMut, dispatch,
};

macro_rules! send_and_sync {
    ($($t:ty),* $(,)?) => {
        const _: () = {
            const fn needs<T: Send + Sync + ?Sized>() {}
            $(needs::<$t>();)*
        };
    };
}

/// Fails to compile if a type has the auto trait: two impls then provide `some`, and which is meant is ambiguous.
macro_rules! not {
    ($auto:ident: $($t:ty),* $(,)?) => {
        const _: () = {
            trait Lacks<Which> {
                fn some() {}
            }
            impl<T: ?Sized> Lacks<()> for T {}
            struct Has;
            impl<T: $auto + ?Sized> Lacks<Has> for T {}
            $(let _ = <$t as Lacks<_>>::some;)*
        };
    };
}

type Shape = D1<4>;

send_and_sync!(
    Cpu,
    Tensor<f32, Shape>,
    View<'static, f32, Shape>,
    ViewMut<'static, f32, Shape>,
    DynView<'static, f32>,
    DynViewMut<'static, f32>,
    <Cpu as Device>::Packed,
    F16,
    Bf16,
    E4m3,
    E5m2,
    Shape,
    DType,
    Isa,
    Error,
    IoError,
    Report,
    crate::report::Row,
    Weights<'static>,
    Steps,
    Step,
    dispatch::Entry,
    dispatch::Function,
    dispatch::Variant,
    dyn crate::Executor,
);

// It holds a buffer's address without its owner; a launch takes it on the thread that made it.
not!(Send: dispatch::Arg<'static, Cpu>, dispatch::DynArg<'static, Cpu>);
not!(Sync: dispatch::Arg<'static, Cpu>, dispatch::DynArg<'static, Cpu>);

#[cfg(feature = "rayon")]
send_and_sync!(crate::Rayon);

#[cfg(feature = "cuda")]
mod gpu {
    use super::Shape;
    use crate::Device;
    use crate::cuda::{
        Arch, Cuda, CudaDeviceInfo, CudaError, CudaInfo, DeviceDynView, DeviceDynViewMut, DeviceTensor, DeviceView,
        DeviceViewMut, Graph, Overlap, Slot, Variant,
    };

    send_and_sync!(
        Cuda,
        DeviceTensor<f32, Shape>,
        DeviceView<'static, f32, Shape>,
        DeviceViewMut<'static, f32, Shape>,
        DeviceDynView<'static, f32>,
        DeviceDynViewMut<'static, f32>,
        <Cuda as Device>::Packed,
        CudaError,
        CudaInfo,
        CudaDeviceInfo,
        Overlap,
        Arch,
        Slot,
        Variant,
    );

    // A replay changes the graph, so one thread at a time has it.
    const _: fn() = needs_send::<Graph<DeviceTensor<f32, Shape>>>;
    fn needs_send<T: Send>() {}
    not!(Sync: Graph<DeviceTensor<f32, Shape>>);
    // Its buffers go with it.
    not!(Send: Graph<std::rc::Rc<u8>>);
}

#[cfg(feature = "tune")]
mod candidate {
    use crate::cuda::candidate::{Begin, Bench, Bound, Code, Differ, Download, Facts, Graph, Guarded, Start};

    send_and_sync!(Guarded, Facts, Download, Start, Begin);

    // A bench and what is loaded into it belong to the thread that opened it: arguments are written without a lock.
    not!(Send: Bench, Code<'static>, Bound<'static>, Differ<'static>, Graph<'static>);
    not!(Sync: Bench, Code<'static>, Bound<'static>, Differ<'static>, Graph<'static>);
}

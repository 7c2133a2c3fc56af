// A view's length is that of its shape.
//~ E0451 data View
//~ E0451 data DeviceView
use kernel_gen_runtime::cuda::{DeviceView, cudarc::driver::CudaView};
use kernel_gen_runtime::{D1, View};
use std::marker::PhantomData;

fn host(data: &[f32]) -> View<'_, f32, D1<1024>> {
    View { data, shape: PhantomData }
}

fn gpu(data: CudaView<'_, f32>) -> DeviceView<'_, f32, D1<1024>> {
    DeviceView { data, shape: PhantomData }
}

fn main() {}

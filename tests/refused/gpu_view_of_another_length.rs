// Only `new` and `from_view` make a view of a slice on a GPU, and they compare the length.
//~ error: DeviceView private fields
use kernel_gen_runtime::D1;
use kernel_gen_runtime::cuda::{DeviceView, cudarc::driver::CudaView};
use std::marker::PhantomData;

fn gpu(data: CudaView<'_, f32>) -> DeviceView<'_, f32, D1<1024>> {
    DeviceView { data, shape: PhantomData }
}

fn main() {}

// The slice of a tensor on a GPU cannot be exchanged for a shorter one, and nor can its view.
//~ E0599 as_mut_slice DeviceTensor
//~ E0308 mismatched types
//~ E0616 data DeviceTensor
use kernel_gen_runtime::D1;
use kernel_gen_runtime::cuda::{DeviceTensor, cudarc::driver::CudaSlice};

type Big = DeviceTensor<f32, D1<1024>>;
type Small = DeviceTensor<f32, D1<1>>;

fn swapped(mut big: Big, mut small: Small) {
    std::mem::swap(big.as_mut_slice(), small.as_mut_slice());
}

fn replaced(big: &mut Big, slice: CudaSlice<f32>) {
    let _: &mut CudaSlice<f32> = big.as_slice();
    big.data = slice;
}

fn main() {}

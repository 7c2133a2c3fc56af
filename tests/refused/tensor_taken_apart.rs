// The memory of a tensor cannot be taken out, or exchanged.
//~ E0616 bytes Tensor
use kernel_gen_runtime::{D1, Tensor};

fn exchanged(big: &mut Tensor<f32, D1<1024>>, small: &mut Tensor<f32, D1<1>>) {
    std::mem::swap(&mut big.bytes, &mut small.bytes);
}

fn main() {}

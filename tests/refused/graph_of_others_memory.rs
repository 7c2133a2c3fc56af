// A graph takes memory that it cannot keep only where somebody promises to, and what it keeps is not freed by a closure's borrow.
//~ E0133 capture_unowned
//~ E0308 mismatched types
use kernel_gen_runtime::cuda::{Cuda, DeviceTensor, Graph, Overlap};
use kernel_gen_runtime::{D1, Result};

fn unowned(dev: &Cuda) -> Result<Graph<()>> {
    dev.capture_unowned(Overlap::Allowed, (), |_, _| Ok(()))
}

fn borrowed(dev: &Cuda, x: DeviceTensor<f32, D1<8>>) -> Result<Graph<()>> {
    dev.capture((), |_, _| x.to_host(dev).map(|_| ()))
}

fn main() {}

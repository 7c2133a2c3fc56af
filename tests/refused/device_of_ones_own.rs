// Only the runtime's own devices run tables, and only its own shapes and elements have lengths.
//~ E0277 shape::sealed
//~ E0277 element::sealed
//~ E0277 Mine: Device
use kernel_gen_runtime::{DType, Device, Element, Shape};

#[derive(Clone, Copy, Default, Debug)]
struct Mine;

impl Shape for Mine {
    const DIMS: &'static [usize] = &[4];
    const ELEMENTS: usize = 1000;
}

impl Element for Mine {
    const DTYPE: DType = DType::F64;
}

fn device<D: Device>() {}

fn main() {
    device::<Mine>();
}

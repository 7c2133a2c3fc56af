// A view's length is that of its shape.
//~ E0451 data View
use kernel_gen_runtime::{D1, View};
use std::marker::PhantomData;

fn host(data: &[f32]) -> View<'_, f32, D1<1024>> {
    View { data, shape: PhantomData }
}

fn main() {}

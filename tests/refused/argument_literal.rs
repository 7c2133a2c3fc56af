// An argument has the length of what it borrows.
//~ E0451 pointer elements Arg
use kernel_gen_runtime::dispatch::Arg;
use kernel_gen_runtime::DType;
use std::marker::PhantomData;

fn longer(data: &mut [f32]) -> Arg<'_> {
    let pointer = data.as_mut_ptr().cast();
    Arg { pointer, dtype: DType::F32, elements: 1000, writable: true, packed: None, borrow: PhantomData }
}

fn main() {}

//! The layers, each with its tensors and its typed launches behind one interface.

use crate::reference::Tensors;
use kernel_gen_runtime::{Cpu, Result, Shape, Tensor};

kernel_gen_runtime::include_kernels!();

/// A layer of the spec.
pub(crate) struct Layer {
    /// Its name: the workload's.
    pub(crate) name: &'static str,
    /// Floating-point operations of one launch, those with padding included.
    pub(crate) flops: u64,
    /// Makes tensors and packs the weights.
    pub(crate) prepare: fn(&Cpu) -> Result<Box<dyn Launch>>,
}

/// A layer that is ready to run.
pub(crate) trait Launch {
    /// One launch of the typed wrapper, with packed weights.
    fn launch(&mut self, dev: &Cpu) -> Result<()>;
    /// Fills the result with values that are no numbers.
    fn poison(&mut self);
    /// The arguments.
    fn tensors(&self) -> Tensors<'_>;
}

/// A launch with packed weights, as the generated module has it.
type TypedLaunch<X, P, Y> = fn(&Cpu, &Tensor<f32, X>, &P, &mut Tensor<f32, Y>) -> Result<()>;

struct Typed<X, W, P, Y> {
    x: Tensor<f32, X>,
    w: Tensor<f32, W>,
    packed: P,
    y: Tensor<f32, Y>,
    launch: TypedLaunch<X, P, Y>,
}

impl<X: Shape, W: Shape, P: 'static, Y: Shape> Typed<X, W, P, Y> {
    fn prepare(
        dev: &Cpu,
        pack: fn(&Cpu, &Tensor<f32, W>) -> Result<P>,
        launch: TypedLaunch<X, P, Y>,
    ) -> Result<Box<dyn Launch>> {
        let w = Tensor::from_fn(random(2));
        let packed = pack(dev, &w)?;
        Ok(Box::new(Typed { x: Tensor::from_fn(random(1)), w, packed, y: Tensor::zeros(), launch }))
    }
}

impl<X: Shape, W: Shape, P, Y: Shape> Launch for Typed<X, W, P, Y> {
    fn launch(&mut self, dev: &Cpu) -> Result<()> {
        (self.launch)(dev, &self.x, &self.packed, &mut self.y)
    }

    fn poison(&mut self) {
        self.y.as_mut_slice().fill(f32::NAN);
    }

    fn tensors(&self) -> Tensors<'_> {
        Tensors { x: (self.x.as_slice(), X::DIMS), w: (self.w.as_slice(), W::DIMS), y: (self.y.as_slice(), Y::DIMS) }
    }
}

/// Values in -1 to 1, the same for the same seed and position (SplitMix64).
fn random(seed: u64) -> impl FnMut(usize) -> f32 {
    move |i| {
        let mut z = (seed << 40).wrapping_add(i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }
}

macro_rules! layers {
    ($x:ident $w:ident $y:ident: $($name:ident)*) => {
        [$(Layer {
            name: stringify!($name),
            flops: kernels::$name::FLOPS,
            prepare: |dev| {
                Typed::<kernels::$name::$x, kernels::$name::$w, _, kernels::$name::$y>::prepare(
                    dev,
                    |dev, w| kernels::$name::pack_weight(dev, w),
                    |dev, x, w, y| kernels::$name::launch(dev, x, w, y),
                )
            },
        }),*]
    };
}

/// Every layer of the spec, in its order.
pub(crate) fn all() -> Vec<Layer> {
    let convolutions = layers!(X W Y:
        r18_3x224_64k7s2 r18_64x56_64k3s1 r18_64x56_64k1s1 r18_64x56_128k3s2 r18_64x56_128k1s2 r18_128x28_128k3s1
        r18_128x28_256k3s2 r18_128x28_256k1s2 r18_256x14_256k3s1 r18_256x14_512k3s2 r18_256x14_512k1s2
        r18_512x7_512k3s1
        dw_32x112k3s1 dw_64x112k3s2 dw_128x56k3s1 dw_256x28k3s1 dw_512x14k3s1 dw_1024x7k3s1
    );
    let products = layers!(A B C: mm512 mm1024 mm2048);
    let blocked = layers!(X W Y:
        r18_64x56_64k3s1_nchw16c r18_64x56_64k1s1_nchw16c r18_64x56_128k3s2_nchw16c r18_64x56_128k1s2_nchw16c
        r18_128x28_128k3s1_nchw16c r18_128x28_256k3s2_nchw16c r18_128x28_256k1s2_nchw16c r18_256x14_256k3s1_nchw16c
        r18_256x14_512k3s2_nchw16c r18_256x14_512k1s2_nchw16c r18_512x7_512k3s1_nchw16c
        dw_32x112k3s1_nchw16c dw_64x112k3s2_nchw16c dw_128x56k3s1_nchw16c dw_256x28k3s1_nchw16c dw_512x14k3s1_nchw16c
        dw_1024x7k3s1_nchw16c
    );
    convolutions.into_iter().chain(products).chain(blocked).collect()
}

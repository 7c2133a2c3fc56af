//! tract runs the layer's model after its own optimisation, which packs the weights and fuses the epilogue.

use crate::interface::Layer;
use crate::{Peer, copy, inputs, model, pool, values, words};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tract_linalg::multithread::{self, Executor};
use tract_onnx::prelude::{Framework, InferenceModelExt, IntoRunnable, IntoTValue, TValue, TVec, Tensor};

/// Gives it a pool where it has more than one thread; it has none by itself.
pub(crate) fn open(cores: &[usize]) -> Result<(), String> {
    if cores.len() > 1 {
        multithread::set_default_executor(Executor::MultiThread(Arc::new(pool(cores).build().map_err(words)?)));
    }
    Ok(())
}

pub(crate) fn peer(layer: &Layer, threads: usize) -> Result<Peer, String> {
    let model = tract_onnx::onnx().model_for_read(&mut model(layer)).map_err(words)?;
    let plan = model.into_optimized().map_err(words)?.into_runnable().map_err(words)?;
    let mut state = plan.spawn().map_err(words)?;
    let inputs: TVec<TValue> = inputs(layer)
        .iter()
        .map(|t| Tensor::from_shape(t.shape(), values(t)).map(IntoTValue::into_tvalue).map_err(words))
        .collect::<Result<_, _>>()?;
    // Number of panels of a product from which on it uses its threads: its own, or any.
    let mut least_panels = multithread::current_threading_panel_threshold();
    let mut call = move |least_panels: usize, out: Option<&mut [f32]>| {
        multithread::set_threading_panel_threshold(least_panels);
        let results = state.run(inputs.clone()).map_err(words)?;
        let Some(out) = out else { return Ok(()) };
        let result = results[0].to_plain_array_view::<f32>().map_err(words)?;
        copy(Some(out), result.as_slice().ok_or("the result is not in order")?)
    };
    if threads > 1 {
        let mut best = Duration::MAX;
        for panels in [least_panels, 0] {
            for _ in 0..6 {
                let start = Instant::now();
                call(panels, None)?;
                let time = start.elapsed();
                if time < best {
                    (best, least_panels) = (time, panels);
                }
            }
        }
    }
    Ok(Box::new(move |out| call(least_panels, out)))
}

//! rten runs the layer's model, with its weights packed as it is loaded.

use crate::interface::Layer;
use crate::{Peer, copy, inputs, model, pin, values, words};
use rten::{ModelOptions, ValueOrView};
use rten_tensor::{AsView, TensorView};

/// Makes its pool, which has as many threads as a variable says that is set already.
pub(crate) fn open(cores: &[usize]) -> Result<(), String> {
    let threads = rten::thread_pool().run(|| {
        rayon::broadcast(|thread| {
            if let Some(core) = cores.get(thread.index()) {
                pin(*core);
            }
        })
        .len()
    });
    if threads == cores.len() { Ok(()) } else { Err(format!("rten has {threads} threads")) }
}

pub(crate) fn peer(layer: &Layer) -> Result<Peer, String> {
    let model = ModelOptions::with_all_ops().prepack_weights(true).load(model(layer).to_vec()).map_err(words)?;
    let ids = model.input_ids().to_vec();
    let outputs = model.output_ids().to_vec();
    let inputs = inputs(layer);
    Ok(Box::new(move |out| {
        let views = inputs.iter().map(|t| TensorView::from_data(t.shape(), values(t)));
        let arguments = ids.iter().copied().zip(views.map(ValueOrView::from)).collect();
        let results = model.run(arguments, &outputs, None).map_err(words)?;
        let Some(out) = out else { return Ok(()) };
        let result = results.into_iter().next().ok_or("no output")?;
        let result: rten_tensor::Tensor<f32> = result.try_into().map_err(|e| format!("{e:?}"))?;
        let result = result.to_contiguous();
        copy(Some(out), result.data())
    }))
}

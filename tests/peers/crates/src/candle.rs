//! candle computes operator by operator: it has neither packed weights nor fused epilogues.

use crate::interface::{self, Layer};
use crate::{Peer, copy, pin, values, words};
use candle_core::{Device, Tensor, utils};
use std::time::{Duration, Instant};

/// Makes its own threads, of which it has two kinds besides the global pool, and keeps each on its core.
pub(crate) fn open(cores: &[usize]) {
    // The caller is the last of these, and has the first core.
    utils::barrier_pool().execute(|i| {
        if let Some(core) = cores.get(i + 1) {
            pin(*core);
        }
    });
    utils::with_threadpool(|| rayon::broadcast(|thread| cores.get(thread.index()).map(|core| pin(*core))));
}

pub(crate) fn peer(layer: &Layer) -> Result<Peer, String> {
    let layer = *layer;
    let tensor =
        |t: &interface::Tensor, shape: &[usize]| Tensor::from_slice(values(t), shape, &Device::Cpu).map_err(words);
    let given = |t: &interface::Tensor| tensor(t, t.shape());
    let (mut x, mut w) = (given(&layer.x)?, given(&layer.w)?);
    let [top, left, bottom, right] = layer.padding;
    if layer.convolution {
        let even = |pair: [usize; 2]| pair[0] == pair[1];
        if ![[top, left], [top, bottom], [top, right], layer.stride, layer.dilation].into_iter().all(even) {
            return Err("it has one padding, one stride and one dilation for all directions".into());
        }
    } else {
        // A transposed matrix is the same values with other strides.
        if layer.trans_a {
            x = x.t().map_err(words)?;
        }
        if layer.trans_b {
            w = w.t().map_err(words)?;
        }
    }
    let channels: &[usize] = if layer.convolution { &[1, layer.bias.shape[0], 1, 1] } else { &[layer.bias.shape[0]] };
    let bias = (layer.bias.rank > 0).then(|| tensor(&layer.bias, channels)).transpose()?;
    let residual = (layer.residual.rank > 0).then(|| given(&layer.residual)).transpose()?;
    let apply = move || -> candle_core::Result<Tensor> {
        let mut y = if layer.convolution {
            x.conv2d(&w, top, layer.stride[0], layer.dilation[0], layer.groups)?
        } else {
            x.matmul(&w)?
        };
        if let Some(bias) = &bias {
            y = y.broadcast_add(bias)?;
        }
        if let Some(residual) = &residual {
            y = (y + residual)?;
        }
        match layer.activation {
            0 => Ok(y),
            1 => y.relu(),
            _ => y.clamp(0f32, 6f32),
        }
    };
    // Called as it is, or from a thread of its own pool.
    let mut own_pool = false;
    let compute = move |own_pool: bool| if own_pool { utils::with_threadpool(&apply) } else { apply() };
    let mut best = Duration::MAX;
    for way in [false, true].repeat(4) {
        let start = Instant::now();
        compute(way).map_err(words)?;
        let time = start.elapsed();
        if time < best {
            (best, own_pool) = (time, way);
        }
    }
    Ok(Box::new(move |out| {
        let y = compute(own_pool).map_err(words)?;
        let Some(out) = out else { return Ok(()) };
        copy(Some(out), &y.flatten_all().and_then(|y| y.to_vec1::<f32>()).map_err(words)?)
    }))
}

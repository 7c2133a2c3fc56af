//! What AutoTVM's tasks are here: the workload of their arguments, the template, and what their knobs become.
//!
//! Facts of the other side are from TVM's sources, releases 0.7 to 0.12, each named beside what it says: the names of tasks and knobs
//! from `register_topi_compute` and `define_split` in `python/tvm/topi/cuda` and `python/tvm/topi/gpu`, arguments from
//! `python/tvm/relay/op/strategy/cuda.py`.
//!
//! | task there | template here | knobs |
//! |---|---|---|
//! | `tutorial/conv2d_no_batching` | `conv2d_no_batching` | The same. The tutorial applies `tile_rx` to the axis `ry` and `tile_ry` to `rx`. |
//! | `conv2d_nchw.cuda` | `conv2d_no_batching` | Its reduction axes are cut in two: outer and what is fetched at once. Here a third part says what registers hold at once, which is 1. |
//! | `matmul_v1`, `matmul` and the same with `tutorial/` | `matmul_v1`, `matmul` (one's own) or `matmul_split` | The same. |
//! | `conv2d_hwcn.cuda` | `conv2d_hwcn` | A split `[blocks, vthreads, threads, own]` of channels and of images becomes `block_*`, `threads_*` and `vthread`; `step=8`, `vector=4`, `fetch=axes` are constants there. |
//! | `depthwise_conv2d_nchw.cuda` | `depthwise_cuda` | The same splits of rows and columns. Channels must not be tiled. |
//! | `dense_large_batch.gpu` (`.cuda` before 0.9) | `matmul_blocked` | The same splits of rows and columns; `step` is what `tile_k` fetches at once. |
//! | `batch_matmul.cuda` | `matmul_blocked` | The same, without virtual threads. |
//!
//! `auto_unroll_max_step` and `unroll_explicit` of depthwise convolutions and batches of products are left out: the
//! templates say by themselves what is unrolled. Other tasks have no namesake; [`NEAREST`] has what comes nearest.

use super::arguments::{dtype, form, numbers, padding, pair, shown, tensor};
use super::error::LineError;
use crate::space::{Config, Value};
use crate::workload::{Conv2d, ConvLayout, Epilogue, Matmul, Op, Workload};
use serde_json::Value as Json;

/// A task with a namesake here.
pub(super) struct Task {
    /// Its names there.
    names: &'static [&'static str],
    /// The templates here; the first one counts that is registered and applies.
    pub(super) templates: &'static [&'static str],
    /// What the arguments say.
    pub(super) workload: fn(&[Json]) -> Result<Workload, LineError>,
    /// The config in the template's knobs, or why it is none of its.
    pub(super) config: fn(&Config) -> Result<Config, Inexact>,
    /// Whether the template here numbers its configs as the task does.
    pub(super) numbered: bool,
}

/// Why a config of a task is none of the template's.
pub(super) enum Inexact {
    /// Its knobs are not those of the task.
    Form(String),
    /// It does what the template does not.
    Differs {
        /// What.
        why: String,
        /// The template's knobs that come nearest.
        nearest: Config,
    },
}

/// The task of that name.
pub(super) fn find(name: &str) -> Option<&'static Task> {
    TASKS.iter().find(|task| task.names.contains(&name))
}

/// The name of the tutorial's task whose schedule exchanges `tile_ry` and `tile_rx`.
pub(super) const TUTORIAL: &str = "tutorial/conv2d_no_batching";

static TASKS: [Task; 8] = [
    Task {
        names: &[TUTORIAL],
        templates: &["conv2d_no_batching"],
        workload: no_batching,
        config: same,
        numbered: true,
    },
    Task {
        names: &["conv2d_nchw.cuda"],
        templates: &["conv2d_no_batching"],
        workload: nchw,
        config: reduction_in_three,
        numbered: false,
    },
    Task {
        names: &["tutorial/matmul_v1", "matmul_v1"],
        templates: &["matmul_v1"],
        workload: product,
        config: same,
        numbered: true,
    },
    Task {
        names: &["tutorial/matmul", "matmul"],
        templates: &["matmul", "matmul_split"],
        workload: product,
        config: same,
        numbered: true,
    },
    Task {
        names: &["conv2d_hwcn.cuda"],
        templates: &["conv2d_hwcn"],
        workload: hwcn,
        config: hwcn_tile,
        numbered: false,
    },
    Task {
        names: &["depthwise_conv2d_nchw.cuda"],
        templates: &["depthwise_cuda"],
        workload: depthwise,
        config: depthwise_tile,
        numbered: false,
    },
    Task {
        names: &["dense_large_batch.gpu", "dense_large_batch.cuda"],
        templates: &["matmul_blocked"],
        workload: dense,
        config: dense_tile,
        numbered: false,
    },
    Task {
        names: &["batch_matmul.cuda"],
        templates: &["matmul_blocked"],
        workload: batch_matmul,
        config: batch_matmul_tile,
        numbered: false,
    },
];

/// Tasks without a namesake: the template that comes nearest, and why its knobs are others.
pub(super) static NEAREST: [(&[&str], &str, &str); 11] = [
    (
        &["dense_small_batch.gpu", "dense_small_batch.cuda", "matmul_default.gpu"],
        "gemv_cuda",
        "there a block is one sum, and its only knob says how many threads share it",
    ),
    (
        &["dense_tensorcore.cuda", "batch_matmul_tensorcore.cuda"],
        "mma_gemm",
        "there shared memory has one slot and fragments are wmma's; here it is a ring and fragments are those of mma.sync",
    ),
    (
        &["conv2d_nhwc_tensorcore.cuda"],
        "mma_conv2d",
        "there shared memory has one slot and fragments are wmma's; here it is a ring and fragments are those of mma.sync",
    ),
    (&["conv2d_HWNCnc_tensorcore.cuda"], "conv2d_tensorcore", "there operands are int8 or int4, and here f16"),
    (
        &["conv2d_nchw_winograd.cuda", "conv2d_nchw_winograd_without_weight_transform.cuda"],
        "winograd_conv2d",
        "there the image's height chooses the tile of the transform and shared memory has one slot; here the tile is a knob, \
         shared memory is a ring and the lanes of a warp have fixed places",
    ),
    (
        &[
            "conv2d_nhwc_winograd_direct.cuda",
            "conv2d_nhwc_winograd_direct_without_weight_transform.cuda",
            "conv2d_nhwc_winograd_tensorcore.cuda",
            "conv2d_nhwc_winograd_tensorcore_without_weight_transform.cuda",
        ],
        "mma_conv2d",
        "there it is minimal filtering in NHWC, which is here for NCHW only",
    ),
    (
        &["depthwise_conv2d_nhwc.cuda"],
        "depthwise_direct",
        "there it has no knobs: its schedule is written without a config",
    ),
    (
        &["conv2d_nhwc.cuda", "conv2d_nhwc.gpu"],
        "simt_conv2d",
        "there a block is images and channels of one pixel, and here any pixels and channels",
    ),
    (
        &["conv2d_NCHWc.x86", "conv2d_nchw_spatial_pack.arm_cpu", "conv2d_nhwc_spatial_pack.arm_cpu"],
        "conv2d_direct",
        "there tensors are packed by knobs; here the spec says the layout, and tiles have other knobs",
    ),
    (
        &["depthwise_conv2d_NCHWc.x86", "depthwise_conv2d_nchw.arm_cpu", "depthwise_conv2d_nchw_spatial_pack.arm_cpu"],
        "depthwise_rows",
        "there tensors are packed by knobs; here the spec says the layout, and tiles have other knobs",
    ),
    (
        &["dense_pack.x86", "dense_nopack.x86"],
        "matmul_packed",
        "there the tile is cut by splits; here it is vectors and rows of registers, with other knobs",
    ),
];

/// Why a task is not taken, and what comes nearest.
pub(super) fn refusal(name: &str) -> LineError {
    let nearest = NEAREST.iter().find(|(names, ..)| names.contains(&name));
    if let Some((_, template, why)) = nearest {
        return LineError::Nearest {
            task: shown(name),
            why: (*why).into(),
            nearest: format!("the template `{template}`"),
        };
    }
    // `dense_cublas.cuda`, `conv2d_cudnn.cuda`, `dense_mkl.x86` and the like: their schedules are `schedule_extern`.
    let parts = name.split(['.', '_']);
    match parts
        .into_iter()
        .find(|part| ["cublas", "cublaslt", "cudnn", "mkl", "cblas", "dnnl", "mkldnn"].contains(part))
    {
        Some(library) => LineError::Library { task: shown(name), library: library.to_string() },
        None => LineError::Task(shown(name)),
    }
}

// Arguments.

/// `(N, H, W, CO, CI, KH, KW, stride, padding)`, in `float32`.
fn no_batching(args: &[Json]) -> Result<Workload, LineError> {
    let [sizes @ .., stride, pad] = args else { return Err(form("the task has not 9 arguments")) };
    let sizes: [i64; 7] = numbers(&Json::Array(sizes.to_vec()), "the start of the arguments")?;
    let [n, h, w, co, ci, kh, kw] = sizes;
    let conv = Conv2d {
        kh,
        kw,
        stride: pair(stride, "the stride")?,
        padding: padding(pad)?,
        ..Conv2d::nchw(n, ci, h, w, co, 1, 1, 0)
    };
    Ok(Workload::f32(conv))
}

/// `(data, kernel, strides, padding, dilation, out_dtype)`: `conv` gives the convolution of the shapes of data and kernel.
fn convolution(
    args: &[Json],
    conv: impl FnOnce([i64; 4], [i64; 4]) -> Result<Conv2d, LineError>,
) -> Result<Workload, LineError> {
    let [data, kernel, stride, pad, dilation, out] = args else { return Err(form("the task has not 6 arguments")) };
    let ((x, stored), (w, weight)) = (tensor(data)?, tensor(kernel)?);
    if stored != weight {
        return Err(LineError::Workload("data and kernel differ in their types".into()));
    }
    let conv = Conv2d {
        stride: pair(stride, "the stride")?,
        padding: padding(pad)?,
        dilation: pair(dilation, "the dilation")?,
        ..conv(x, w)?
    };
    Ok(Workload { dtype: stored, out_dtype: dtype(out)?, ..Workload::f32(conv) })
}

fn channels(per_filter: i64, ci: i64) -> Result<(), LineError> {
    if per_filter == ci {
        return Ok(());
    }
    Err(LineError::Workload(format!("filters of {per_filter} channels for {ci}")))
}

fn terms_agree(left: i64, right: i64) -> Result<(), LineError> {
    if left == right {
        return Ok(());
    }
    Err(LineError::Workload(format!("a left factor of {left} columns and a right one of {right} rows")))
}

fn nchw(args: &[Json]) -> Result<Workload, LineError> {
    convolution(args, |[n, ci, h, w], [co, per_filter, kh, kw]| {
        channels(per_filter, ci)?;
        Ok(Conv2d { kh, kw, ..Conv2d::nchw(n, ci, h, w, co, 1, 1, 0) })
    })
}

/// Data in HWCN and filters in HWIO.
fn hwcn(args: &[Json]) -> Result<Workload, LineError> {
    convolution(args, |[h, w, ci, n], [kh, kw, per_filter, co]| {
        channels(per_filter, ci)?;
        Ok(Conv2d { layout: ConvLayout::Hwcn, kh, kw, ..Conv2d::nchw(n, ci, h, w, co, 1, 1, 0) })
    })
}

/// Filters are `[channels, multiplier, rows, columns]`.
fn depthwise(args: &[Json]) -> Result<Workload, LineError> {
    convolution(args, |[n, ci, h, w], [filters, multiplier, kh, kw]| {
        channels(filters, ci)?;
        Ok(Conv2d { kh, kw, ..Conv2d::nchw(n, ci, h, w, ci, 1, 1, 0) }.depthwise(multiplier))
    })
}

/// `(N, L, M, dtype)`: `[N, L] x [L, M]`.
fn product(args: &[Json]) -> Result<Workload, LineError> {
    let [sizes @ .., kind] = args else { return Err(form("the task has not 4 arguments")) };
    let [n, l, m]: [i64; 3] = numbers(&Json::Array(sizes.to_vec()), "the start of the arguments")?;
    let kind = dtype(kind)?;
    Ok(Workload { dtype: kind, out_dtype: kind, ..Workload::f32(Matmul::new(n, m, l)) })
}

/// `(data, weight, bias, out_dtype)`: rows of the weight are output channels. The strategy gives no bias.
fn dense(args: &[Json]) -> Result<Workload, LineError> {
    let [data, weight, bias, out] = args else { return Err(form("the task has not 4 arguments")) };
    let (([m, k], stored), ([n, terms], other)) = (tensor(data)?, tensor(weight)?);
    if stored != other {
        return Err(LineError::Workload("data and weight differ in their types".into()));
    }
    terms_agree(k, terms)?;
    let out_dtype = if out.is_null() { stored } else { dtype(out)? };
    let workload =
        Workload { dtype: stored, out_dtype, ..Workload::f32(Matmul { trans_b: true, ..Matmul::new(m, n, k) }) };
    match bias {
        Json::Null => Ok(workload),
        bias => match tensor(bias)? {
            ([length], _) if length == n => Ok(workload.with_epilogue(&[Epilogue::Bias])),
            ([length], _) => Err(LineError::Workload(format!("a bias of {length} for {n} columns"))),
        },
    }
}

/// `(x, y)`, to which later releases add `out_shape, out_dtype` and then `transpose_a, transpose_b`. Without the last two, rows of `y`
/// are columns of the product.
fn batch_matmul(args: &[Json]) -> Result<Workload, LineError> {
    let [x, y, rest @ ..] = args else { return Err(form("the task has not two tensors")) };
    if rest.len() > 4 {
        return Err(form("the task has more than 6 arguments"));
    }
    let (([batch, rows, columns], stored), ([others, down, across], other)) = (tensor(x)?, tensor(y)?);
    if stored != other {
        return Err(LineError::Workload("the factors differ in their types".into()));
    }
    if batch != others {
        return Err(LineError::Workload(format!("{batch} left factors and {others} right ones")));
    }
    let flag = |at: usize, without: bool| match rest.get(at) {
        None => Ok(without),
        Some(Json::Bool(flag)) => Ok(*flag),
        // Python writes what was given: 0 and 1 are flags, too.
        Some(number) => match number.as_i64() {
            Some(0) => Ok(false),
            Some(1) => Ok(true),
            _ => Err(form("a transposition is neither true nor false")),
        },
    };
    let (trans_a, trans_b) = (flag(2, false)?, flag(3, true)?);
    let [m, k] = if trans_a { [columns, rows] } else { [rows, columns] };
    let [terms, n] = if trans_b { [across, down] } else { [down, across] };
    terms_agree(k, terms)?;
    let out_dtype = rest.get(1).filter(|out| !out.is_null()).map_or(Ok(stored), dtype)?;
    let product = Matmul { batch, trans_a, trans_b, ..Matmul::new(m, n, k) };
    Ok(Workload { dtype: stored, out_dtype, ..Workload::f32(Op::Matmul(product)) })
}

// Knobs.

fn same(config: &Config) -> Result<Config, Inexact> {
    Ok(config.clone())
}

/// The sizes of a split behind its first one, which is the number of blocks or of steps.
fn parts<const N: usize>(config: &Config, knob: &str) -> Result<[i64; N], Inexact> {
    let sizes = config.split(knob).map_err(|error| Inexact::Form(error.to_string()))?;
    let behind: Option<[i64; N]> = sizes.get(1..).and_then(|sizes| sizes.try_into().ok());
    // Products of three stay within 64 bits.
    match behind {
        Some(sizes) if sizes.iter().all(|size| (1..=1 << 20).contains(size)) => Ok(sizes),
        Some(_) => Err(Inexact::Form(format!("knob `{knob}`: a size is not between 1 and 2^20"))),
        None => Err(Inexact::Form(format!("knob `{knob}` has {} sizes and not {}", sizes.len(), N + 1))),
    }
}

/// `conv2d_nchw.cuda`, of `conv2d_direct.py`: `tile_rc`, `tile_ry` and `tile_rx` have two outputs.
fn reduction_in_three(config: &Config) -> Result<Config, Inexact> {
    let mut config = config.clone();
    for knob in ["tile_rc", "tile_ry", "tile_rx"] {
        if let Some(Value::Split(sizes)) = config.find(knob)
            && sizes.len() == 2
        {
            let sizes = [sizes[0], sizes[1], 1];
            config.set(knob, Value::Split(sizes.to_vec()));
        }
    }
    Ok(config)
}

/// A tile of the templates `conv2d_hwcn` and `matmul_blocked`: of each axis its name, and virtual threads, threads and elements of one.
fn block(axes: [(&str, [i64; 3]); 2], step: i64, vector: i64) -> Result<Config, Inexact> {
    let [(_, [vthreads, ..]), (_, [others, ..])] = axes;
    let names = axes.map(|(name, _)| name);
    let mut config = Config::new();
    for (name, [v, threads, own]) in axes {
        config.set(&format!("block_{name}"), Value::Int(v * threads * own));
    }
    for (name, [_, threads, _]) in axes {
        config.set(&format!("threads_{name}"), Value::Int(threads));
    }
    config.set("vthread", Value::Int(vthreads.min(others)));
    config.set("step", Value::Int(step));
    config.set("vector", Value::Int(vector));
    if vthreads == others {
        return Ok(config);
    }
    let [first, second] = names;
    let why = format!(
        "it has {vthreads} virtual threads along {first} and {others} along {second}, and `vthread` is for both"
    );
    Err(Inexact::Differs { why, nearest: config })
}

/// `conv2d_hwcn.py`: `tile_fi` and `tile_ni` of four; the step of 8 channels and vectors of 4 are constants, and threads fetch by axes.
fn hwcn_tile(config: &Config) -> Result<Config, Inexact> {
    let axes = [("o", parts(config, "tile_fi")?), ("n", parts(config, "tile_ni")?)];
    match block(axes, 8, 4) {
        Ok(config) => Ok(config.with("fetch", "axes")),
        Err(Inexact::Differs { why, nearest }) => Err(Inexact::Differs { why, nearest: nearest.with("fetch", "axes") }),
        Err(other) => Err(other),
    }
}

/// `gpu/dense.py`: `tile_x` of rows, `tile_y` of columns, `tile_k` as steps, terms of a step, and terms that registers hold at once. It
/// fetches element by element.
fn dense_tile(config: &Config) -> Result<Config, Inexact> {
    let [terms, at_once] = parts(config, "tile_k")?;
    let tile = block([("m", parts(config, "tile_x")?), ("n", parts(config, "tile_y")?)], terms * at_once, 1)?;
    if at_once == 1 {
        return Ok(tile);
    }
    let why = format!("registers hold {at_once} terms of both factors at once, and here one");
    Err(Inexact::Differs { why, nearest: tile })
}

/// `batch_matmul.py`: `tile_y` of rows and `tile_x` of columns in three, `tile_k` in two.
fn batch_matmul_tile(config: &Config) -> Result<Config, Inexact> {
    let ([ty, yi], [tx, xi], [step]) = (parts(config, "tile_y")?, parts(config, "tile_x")?, parts(config, "tile_k")?);
    block([("m", [1, ty, yi]), ("n", [1, tx, xi])], step, 1)
}

/// `depthwise_conv2d.py`: `tile_f`, `tile_y` and `tile_x` of four.
fn depthwise_tile(config: &Config) -> Result<Config, Inexact> {
    let [f, y, x]: [[i64; 3]; 3] = [parts(config, "tile_f")?, parts(config, "tile_y")?, parts(config, "tile_x")?];
    let mut tile = Config::new();
    for (knob, of) in [
        ("block", (|[v, threads, own]: [i64; 3]| v * threads * own) as fn([i64; 3]) -> i64),
        ("threads", |[_, threads, _]| threads),
        ("vthread", |[v, ..]| v),
    ] {
        tile.set(&format!("{knob}_h"), Value::Int(of(y)));
        tile.set(&format!("{knob}_w"), Value::Int(of(x)));
    }
    match f.iter().product::<i64>() {
        1 => Ok(tile),
        together => {
            let why = format!("its blocks have {together} channels, and here one");
            Err(Inexact::Differs { why, nearest: tile })
        }
    }
}

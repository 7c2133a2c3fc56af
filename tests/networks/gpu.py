#!/usr/bin/env python3
"""Builds networks of ONNX files for a GPU, with what ONNX Runtime gives for random inputs, and packs a program that runs them there.

    /tmp/networks/bin/python tests/networks/gpu.py /tmp/packed --tuned specs/tuned /tmp/models/resnet50.onnx /tmp/models/vit_b_16.onnx
    scp -r /tmp/packed gpu: && ssh gpu packed/networks packed          # on the machine with the GPU, which needs the driver alone
    ssh gpu python3 pytorch.py resnet50 vit_b_16                       # the same networks in PyTorch: tests/networks/pytorch.py

The program loads each network, runs it, captures it in one CUDA graph, compares the results of both with ONNX Runtime's and times
replays of the graph. It prints a row of a table each: launches, launches that begin early, seconds from the file of weights to
the first result, the largest error relative to the largest number of the result, and microseconds. It ends with 1 if an error is too
large. With `--coarse` weights and inputs are rounded to seven values each, so that their files can be packed: times do not depend on
them.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import onnx

from compare import ROOT, camel, element, rust_name, session, tokens, unique

CARGO = """[workspace]
[package]
name = "networks"
version = "0.1.0"
edition = "2024"
[dependencies]
kernel-gen-runtime = {{ path = "{root}/runtime", features = ["cuda"] }}
[build-dependencies]
kernel-gen-build = {{ path = "{root}/build-support", features = ["networks"] }}
[profile.release]
strip = true
[profile.release.package.kernel-gen]
opt-level = 1
"""
BUILD = """fn main() {{
    kernel_gen_build::configure().spec("kernels.toml"){tuned}.generate_or_exit();
}}
"""
MAIN = """kernel_gen_runtime::include_kernels!();
use kernel_gen_runtime::cuda::cudarc::driver::sys::CUevent_flags::CU_EVENT_DEFAULT;
use kernel_gen_runtime::{{Bf16, Cuda, Device, Element, F16, Shape, Tensor}};
use std::time::Instant;

/// Replays between two events, and how often that is timed.
const EACH: usize = 20;
const SAMPLES: usize = 30;

trait Number: Element {{
    fn of(value: f32) -> Self;
    fn value(self) -> f32;
}}
impl Number for f32 {{
    fn of(value: f32) -> f32 {{ value }}
    fn value(self) -> f32 {{ self }}
}}
impl Number for F16 {{
    fn of(value: f32) -> F16 {{ F16::from_f32(value) }}
    fn value(self) -> f32 {{ self.to_f32() }}
}}
impl Number for i32 {{
    fn of(value: f32) -> i32 {{ value as i32 }}
    fn value(self) -> f32 {{ self as f32 }}
}}
impl Number for Bf16 {{
    fn of(value: f32) -> Bf16 {{ Bf16::from_f32(value) }}
    fn value(self) -> f32 {{ self.to_f32() }}
}}

fn floats(path: &str) -> Vec<f32> {{
    let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{{path}}: {{e}}"));
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
}}

fn read<T: Number, S: Shape>(path: &str) -> Tensor<T, S> {{
    let values: Vec<T> = floats(path).into_iter().map(T::of).collect();
    Tensor::from_slice(&values).unwrap()
}}

fn error<T: Number, S: Shape>(found: &Tensor<T, S>, path: &str) -> f32 {{
    let expected = floats(path);
    let size = expected.iter().fold(1e-30f32, |m, v| m.max(v.abs()));
    let off = found.as_slice().iter().zip(&expected).map(|(a, b)| (a.value() - b).abs());
    off.fold(0.0, |m, v| if v.is_nan() {{ f32::INFINITY }} else {{ m.max(v) }}) / size
}}

fn bits<T: Number, S: Shape>(of: &Tensor<T, S>) -> Vec<u32> {{
    of.as_slice().iter().map(|v| v.value().to_bits()).collect()
}}

macro_rules! network {{
    ($wrong:ident, $dev:ident, $folder:ident, $name:ident, $limit:expr, $model:expr, [$($i:ident: $it:ident<$ie:ty> = $in:expr),*], [$($o:ident: $ot:ident<$oe:ty> = $of:expr),*]) => {{{{
        use kernels::$name::*;
        let begun = Instant::now();
        let weights = format!("{{}}/{{}}.weights", $folder, stringify!($name));
        let mut network = Network::load_file(&$dev, weights.as_ref()).expect("load");
        $(let $i = $dev.upload(&read::<$ie, $it>(&format!("{{}}/{{}}.{{}}.in", $folder, $model, $in))).unwrap();)*
        $(let mut $o = $dev.zeros::<$oe, $ot>().unwrap();)*
        network.run(&$dev, $(&$i,)* $(&mut $o),*).expect("run");
        $dev.finish().expect("the launches end");
        let first = begun.elapsed().as_secs_f64();
        let (mut worst, mut alone) = (0f32, vec![]);
        $(let found = $dev.download(&$o).unwrap();
        worst = worst.max(error(&found, &format!("{{}}/{{}}.{{}}.out", $folder, $model, $of)));
        alone.push(bits(&found));
        let $o = $dev.zeros::<$oe, $ot>().unwrap();)*
        let mut graph = $dev.capture((network, ($($i,)*), ($($o,)*)), |dev, (network, ($($i,)*), ($($o,)*))| network.run(dev, $(&*$i,)* $($o),*)).expect("capture");
        graph.launch().expect("replay");
        $dev.finish().expect("the replay ends");
        let ($($o,)*) = &graph.buffers().2;
        let same = vec![$(bits(&$dev.download($o).unwrap()),)*] == alone;
        let mut times = vec![];
        let stream = std::sync::Arc::clone($dev.stream());
        for sample in 0..SAMPLES + 2 {{
            let event = || stream.context().new_event(Some(CU_EVENT_DEFAULT)).unwrap();
            let (begin, end) = (event(), event());
            begin.record(&stream).unwrap();
            for _ in 0..EACH {{
                graph.launch().unwrap();
            }}
            end.record(&stream).unwrap();
            end.synchronize().unwrap();
            if sample > 1 {{
                times.push(begin.elapsed_ms(&end).unwrap() * 1e3 / EACH as f32);
            }}
        }}
        times.sort_by(f32::total_cmp);
        let right = worst <= $limit && same;
        $wrong += usize::from(!right);
        println!("| {{}} | {{}} | {{}} | {{first:.2}} | {{worst:.1e}} | {{:.1}} | {{}}", stringify!($name), graph.launches(), graph.overlapped(), times[SAMPLES / 2], if right {{ "" }} else if same {{ "WRONG" }} else {{ "WRONG: the graph gives something else" }});
    }}}};
}}

fn main() {{
    let folder = std::env::args().nth(1).expect("the folder of the weights");
    let only = std::env::args().nth(2).unwrap_or_default();
    let dev = Cuda::on_new_stream(0).expect("a GPU");
    println!("{{dev:?}}");
    println!("| network | launches | early | first result s | error | us |");
    println!("|---|--:|--:|--:|--:|--:|");
    let mut wrong = 0;
{calls}
    std::process::exit(i32::from(wrong > 0));
}}
"""
RUST = {"f32": "f32", "f16": "F16", "bf16": "Bf16"}
# Sums of a network in 16 bits are rounded at each layer.
LIMIT = {"f32": "1e-3", "f16": "3e-2", "bf16": "2e-1"}
# Of integers of eight bits ONNX Runtime rounds a sum to one before a residual is added, and this project behind that.
LIMIT_OF_INTEGERS = "1e-1"


# Elements after which rounded weights repeat: a prime number, so that rows and tiles do not begin anew together.
PERIOD = 262147


def coarse(model):
    """Rounds weights to seven values each, which repeat in large ones."""
    for tensor in model.graph.initializer:
        if tensor.data_type != onnx.TensorProto.FLOAT:
            continue
        values = onnx.numpy_helper.to_array(tensor)
        if values.ndim < 2 or values.size < 1024:
            continue
        # As near to what they were as that goes: numbers must not outgrow f16.
        step = 0.8 * values.std()
        rounded = (np.clip(np.round(values / step), -3, 3) * step).astype(np.float16).astype(np.float32)
        rounded = np.resize(rounded.reshape(-1)[:PERIOD], values.shape)
        tensor.CopyFrom(onnx.numpy_helper.from_array(rounded, tensor.name))
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path, help="where the program and its files go")
    parser.add_argument("models", nargs="+", type=pathlib.Path)
    parser.add_argument("--dtypes", default="f32,f16")
    parser.add_argument("--batches", default="1", help="what dynamic extents are")
    parser.add_argument("--cuda", default="sm_80,sm_90a", help="the architectures; one must be portable")
    parser.add_argument("--coarse", action="store_true", help="round weights and inputs to seven values")
    parser.add_argument("--tokens", type=int, default=8, help="how many integers there are, where an input is one")
    parser.add_argument("--tuned", type=pathlib.Path, help="a folder of records")
    parser.add_argument("--crate", type=pathlib.Path, default=ROOT / "target/gpu-networks", help="where the crate is written and built")
    args = parser.parse_args()
    folder, crate = args.folder.resolve(), args.crate.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    (crate / "src").mkdir(parents=True, exist_ok=True)
    spec = [f'schema = 1\n[targets]\ncuda = {json.dumps(args.cuda.split(","))}\n']
    calls, names = [], []
    for path in args.models:
        model = onnx.load(str(path))
        if args.coarse:
            model = coarse(model)
            path = crate / path.name
            onnx.save(model, str(path))
        theirs = session(path, 2)
        integers = any(node.op_type == "QuantizeLinear" for node in model.graph.node)
        for batch in map(int, args.batches.split(",")):
            random = np.random.default_rng(1)
            given = {}
            for i in theirs.get_inputs():
                shape = [n if isinstance(n, int) else batch for n in i.shape]
                if "float" not in i.type:
                    given[i.name] = tokens(i, shape, random, args.tokens)
                    continue
                drawn = random.standard_normal(shape)
                drawn = np.clip(np.round(2 * drawn), -3, 3) / 2 if args.coarse else drawn
                given[i.name] = drawn.astype(np.float16).astype(np.float32)
            wanted = theirs.run(None, given)
            stem = f"{rust_name(path.stem)}_{batch}"
            outs = [o.name for o in theirs.get_outputs()]
            rust = unique([rust_name(n) for n in [*given, *outs]], {"dev", "self", "weights", "network"})
            types = unique([camel(n) for n in rust], {"Network"})
            for name, value in [*zip([r + ".in" for r in rust], given.values()), *zip([r + ".out" for r in rust[len(given) :]], wanted)]:
                value.astype(np.float32).tofile(folder / f"{stem}.{name}")
            shapes = ", ".join(f'"{name}" = {list(x.shape)}' for name, x in given.items())
            for dtype in args.dtypes.split(","):
                name = f"{stem}_{dtype}"
                names.append(name)
                spec.append(f'[[network]]\nname = "{name}"\nmodel = "{path.resolve()}"\ndtype = "{dtype}"\ninputs = {{ {shapes} }}\n')
                limit = LIMIT_OF_INTEGERS if integers else LIMIT[dtype]
                kinds = [element(array, RUST[dtype]) for array in (*given.values(), *wanted)]
                ports = [f'{r}: {t}<{kind}> = "{r}"' for r, t, kind in zip(rust, types, kinds)]
                ends = f"[{', '.join(ports[: len(given)])}], [{', '.join(ports[len(given) :])}]"
                calls.append(
                    f'    if "{name}".contains(only.as_str()) {{ network!(wrong, dev, folder, {name}, {limit}, "{stem}", {ends}); }}'
                )
    tuned = f'.tuned("{args.tuned.resolve()}")' if args.tuned else ""
    (crate / "Cargo.toml").write_text(CARGO.format(root=ROOT))
    (crate / "build.rs").write_text(BUILD.format(tuned=tuned))
    (crate / "kernels.toml").write_text("\n".join(spec))
    (crate / "src/main.rs").write_text(MAIN.format(calls="\n".join(calls)))
    # The GPU alone is wanted; C for CPUs would take longer than all else.
    environment = {**os.environ, "KERNEL_GEN_NO_CC": "1"}
    subprocess.run(["cargo", "build", "--release"], cwd=crate, env=environment, check=True)
    shutil.copy(crate / "target/release/networks", folder)
    generated = sorted((crate / "target/release/build").glob("networks-*/out/kernels.rs"), key=lambda p: p.stat().st_mtime)[-1]
    for name in names:
        shutil.copy(generated.parent / f"kernel-gen-kernels/{name}.weights", folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())

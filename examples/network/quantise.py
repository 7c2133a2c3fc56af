"""Quantises the classifier that `train.py` trained to integers of eight bits.

    python3 -m venv /tmp/digits-env
    /tmp/digits-env/bin/pip install scikit-learn onnx onnxruntime sympy
    /tmp/digits-env/bin/python quantise.py

Last run with scikit-learn 1.9.1, onnx 1.23.2 and onnxruntime 1.32.0. It writes, next to this script:

digits_int8.onnx  the model with pairs of QuantizeLinear and DequantizeLinear, calibrated on images that the model was trained with:
                  activations in u8 with one scale, weights in i8 with one for each output channel.
held_out.txt      all images that the model was not trained with, in the form of images.txt.
"""

from pathlib import Path

import numpy as np
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

SEED = 7
HERE = Path(__file__).resolve().parent

grey, of = load_digits(return_X_y=True)
# As `train.py` has it.
trained, held_out, _, labels = train_test_split(grey, of, test_size=0.1, random_state=SEED, stratify=of)
images = [(x / 16).astype(np.float32).reshape(1, 1, 8, 8) for x in trained]


class Images(CalibrationDataReader):
    def __init__(self):
        self.left = iter(images[:200])

    def get_next(self):
        image = next(self.left, None)
        return None if image is None else {"image": image}


prepared = HERE / "prepared.onnx"
quant_pre_process(str(HERE / "digits.onnx"), str(prepared))
quantize_static(
    str(prepared), str(HERE / "digits_int8.onnx"), Images(), quant_format=QuantFormat.QDQ,
    activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8, per_channel=True,
)
prepared.unlink()
lines = [" ".join(str(int(v)) for v in [label, *image]) for image, label in zip(held_out, labels)]
(HERE / "held_out.txt").write_text("\n".join(lines) + "\n")
print(f"{len(lines)} images held out")

"""Trains a small classifier of handwritten digits and writes it as an ONNX model.

    python3 -m venv /tmp/digits-env
    /tmp/digits-env/bin/pip install torch scikit-learn onnx onnxruntime
    /tmp/digits-env/bin/python train.py

It takes about a minute on one core. Last run with torch 2.15.0, scikit-learn 1.9.1, onnx 1.23.2
and onnxruntime 1.32.0. The seeds are fixed, but other versions or another processor may give other
weights; the three files belong together and are always written together, next to this script:

digits.onnx   the model, opset 17. Its input `image` is [batch, 1, 8, 8], from 0 (paper) to 1 (ink);
              its output `probabilities` is [batch, 10].
images.txt    40 images that the model was not trained with, one a line: the digit, then the 64 grey
              values of the rows from top to bottom, integers from 0 to 16. The model takes them
              divided by 16.
expected.txt  what ONNX Runtime computes for these images, one a line: 10 probabilities with 9
              significant digits, which is enough to give back the same f32.

The images come with scikit-learn. They are the test set of "Optical Recognition of Handwritten
Digits" by E. Alpaydin and C. Kaynak (UCI Machine Learning Repository, CC BY 4.0).
"""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn import functional

SEED = 7
EPOCHS = 60
BATCH = 64
IMAGES = 40
HERE = Path(__file__).resolve().parent


def conv(inputs, outputs, size, groups=1):
    """A convolution that keeps height and width, and its batch norm."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, size, padding=size // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
    )


class Residual(nn.Module):
    """Two convolutions, added to what they were given."""

    def __init__(self, channels):
        super().__init__()
        self.first = conv(channels, channels, 3)
        self.second = conv(channels, channels, 3)

    def forward(self, x):
        y = functional.relu(self.first(x))
        return functional.relu(self.second(y) + x)


class Gate(nn.Module):
    """Squeeze and excite: each channel times a factor computed from the means of all channels."""

    def __init__(self, channels, squeezed):
        super().__init__()
        self.squeeze = nn.Conv2d(channels, squeezed, 1)
        self.excite = nn.Conv2d(squeezed, channels, 1)

    def forward(self, x):
        means = functional.adaptive_avg_pool2d(x, 1)
        return x * torch.sigmoid(self.excite(functional.relu(self.squeeze(means))))


class Separable(nn.Module):
    """A depthwise convolution, a gate, and a pointwise convolution, as in MobileNet v3."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.depthwise = conv(inputs, inputs, 3, groups=inputs)
        self.gate = Gate(inputs, inputs // 4)
        self.pointwise = conv(inputs, outputs, 1)

    def forward(self, x):
        x = self.gate(functional.hardswish(self.depthwise(x)))
        return functional.hardswish(self.pointwise(x))


class Branches(nn.Module):
    """A pointwise and a 3 x 3 convolution of the same input, one behind the other in channels."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.narrow = conv(inputs, outputs // 2, 1)
        self.wide = conv(inputs, outputs // 2, 3)

    def forward(self, x):
        return torch.cat([functional.silu(self.narrow(x)), functional.silu(self.wide(x))], 1)


class Digits(nn.Module):
    """Gives scores; `Probabilities` puts the softmax behind them."""

    def __init__(self):
        super().__init__()
        self.stem = conv(1, 16, 3)
        self.residual = Residual(16)
        self.separable = Separable(16, 32)
        self.branches = Branches(32, 48)
        self.classifier = nn.Linear(48, 10)

    def forward(self, x):
        x = functional.relu(self.stem(x))
        x = self.residual(x)
        x = self.separable(x)
        x = functional.max_pool2d(x, 2)
        x = self.branches(x)
        x = functional.adaptive_avg_pool2d(x, 1)
        return self.classifier(torch.flatten(x, 1))


class Probabilities(nn.Module):
    def __init__(self, scores):
        super().__init__()
        self.scores = scores

    def forward(self, image):
        return torch.softmax(self.scores(image), 1)


def train(model, images, labels):
    """Runs through all images `EPOCHS` times, with a learning rate that rises and then falls."""
    steps = -(-len(images) // BATCH)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=1e-2, epochs=EPOCHS, steps_per_epoch=steps
    )
    model.train()
    for epoch in range(EPOCHS):
        total = 0.0
        for chosen in torch.randperm(len(images)).split(BATCH):
            # The label smoothing keeps the probabilities away from 0 and 1, where two
            # computations of the model could hardly differ.
            loss = functional.cross_entropy(
                model(images[chosen]), labels[chosen], label_smoothing=0.1
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item() * len(chosen)
        if (epoch + 1) % 10 == 0:
            print(f"epoch {epoch + 1}: loss {total / len(images):.4f}")
    model.eval()


def export(model, path):
    """Writes the model for inference, with its batch norms as nodes of their own."""
    torch.onnx.export(
        model,
        (torch.zeros(2, 1, 8, 8),),
        path,
        input_names=["image"],
        output_names=["probabilities"],
        dynamic_axes={"image": {0: "batch"}, "probabilities": {0: "batch"}},
        opset_version=17,
        # `EVAL` would fold the batch norms into the convolutions. `PRESERVE` leaves them, and
        # leaves the model in the mode it is in, which `train` has set to inference.
        training=torch.onnx.TrainingMode.PRESERVE,
        do_constant_folding=False,
        dynamo=False,
    )
    written = onnx.load(path)
    onnx.checker.check_model(written, full_check=True)
    for node in written.graph.node:
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        assert node.op_type != "Dropout" and attributes.get("training_mode", 0) == 0, node.name


def main():
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)

    grey, labels = load_digits(return_X_y=True)
    grey = grey.astype(np.int64)
    train_grey, test_grey, train_labels, test_labels = train_test_split(
        grey, labels, test_size=0.1, random_state=SEED, stratify=labels
    )

    def scaled(values):
        return (values / 16).astype(np.float32).reshape(-1, 1, 8, 8)

    model = Digits()
    train(model, torch.from_numpy(scaled(train_grey)), torch.from_numpy(train_labels))
    export(Probabilities(model).eval(), HERE / "digits.onnx")

    session = onnxruntime.InferenceSession(
        HERE / "digits.onnx", providers=["CPUExecutionProvider"]
    )
    (probabilities,) = session.run(["probabilities"], {"image": scaled(test_grey)})
    right = int((probabilities.argmax(1) == test_labels).sum())
    print(f"{right} of {len(test_labels)} test images right: {right / len(test_labels):.2%}")

    (expected,) = session.run(["probabilities"], {"image": scaled(test_grey[:IMAGES])})
    with open(HERE / "images.txt", "w") as file:
        for label, values in zip(test_labels[:IMAGES], test_grey[:IMAGES]):
            print(label, *values, file=file)
    with open(HERE / "expected.txt", "w") as file:
        for row in expected:
            print(*(f"{p:.9g}" for p in row), file=file)


if __name__ == "__main__":
    main()

"""The five networks of the TensorFlow benchmark, in torch and natively in Keras: the same operators and sizes.

The weights are random on both sides. ResNet-50 and MobileNetV2 are ``keras.applications`` there; BERT-base and GPT-2 small are
those of transformers here, so that the benchmark exports what users export.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

TOKENS = 128
STEPS, FEATURES, HIDDEN = 50, 64, 256


class Bottleneck(nn.Module):
    """The residual block of ResNet-50; the stride stands in the first convolution, as Keras has it."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *_convolution(channels, width, 1, stride),
            nn.ReLU(),
            *_convolution(width, width, 3),
            nn.ReLU(),
            *_convolution(width, 4 * width, 1),
        )
        self.shortcut = nn.Sequential()
        if stride != 1 or channels != 4 * width:
            self.shortcut = nn.Sequential(*_convolution(channels, 4 * width, 1, stride))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


class InvertedResidual(nn.Module):
    """The block of MobileNetV2."""

    def __init__(self, channels: int, width: int, stride: int, expansion: int) -> None:
        super().__init__()
        inner = channels * expansion
        first = [*_convolution(channels, inner, 1), nn.ReLU6()] if expansion > 1 else []
        self.body = nn.Sequential(
            *first, *_convolution(inner, inner, 3, stride, inner), nn.ReLU6(), *_convolution(inner, width, 1)
        )
        self.is_residual = stride == 1 and channels == width

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.body(x) if self.is_residual else self.body(x)


class Tagger(nn.Module):
    """One LSTM layer and a linear one on all its steps."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(FEATURES, HIDDEN, batch_first=True)
        self.head = nn.Linear(HIDDEN, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(x)[0])


def _convolution(channels: int, width: int, size: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    filters = nn.Conv2d(channels, width, size, stride, size // 2, groups=groups, bias=False)
    return [filters, nn.BatchNorm2d(width)]


def _classifier(layers: list[nn.Module], channels: int) -> nn.Module:
    """The layers with the head of an image network, and running statistics that are not the initial ones."""
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000), nn.Softmax(-1))
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.running_var, 0.5, 1.5)
            nn.init.normal_(module.running_mean, 0.0, 0.1)
    return model


def resnet50() -> nn.Module:
    layers: list[nn.Module] = [*_convolution(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for index, count in enumerate((3, 4, 6, 3)):
        width = 64 * 2**index
        for block in range(count):
            layers.append(Bottleneck(channels, width, 2 if index and not block else 1))
            channels = 4 * width
    return _classifier(layers, channels)


# Expansion, channels, blocks and stride of each stage.
MOBILE_STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def mobilenet() -> nn.Module:
    layers: list[nn.Module] = [*_convolution(3, 32, 3, 2), nn.ReLU6()]
    channels = 32
    for expansion, width, count, stride in MOBILE_STAGES:
        for block in range(count):
            layers.append(InvertedResidual(channels, width, 1 if block else stride, expansion))
            channels = width
    return _classifier([*layers, *_convolution(channels, 1280, 1), nn.ReLU6()], 1280)


def bert() -> nn.Module:
    from transformers import BertConfig, BertModel

    return BertModel(BertConfig())


def gpt2() -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(use_cache=False))


def keras_resnet50() -> Callable[..., Any]:
    import keras

    return keras.applications.ResNet50(weights=None)


def keras_mobilenet() -> Callable[..., Any]:
    import keras

    return keras.applications.MobileNetV2(weights=None)


def _attention(x: Any, mask: Any = None, *, causal: bool = False) -> Any:
    import keras

    return keras.layers.MultiHeadAttention(12, 64)(x, x, attention_mask=mask, use_causal_mask=causal)


def _feed_forward(x: Any, activation: Any) -> Any:
    import keras

    return keras.layers.Dense(768)(keras.layers.Dense(3072, activation=activation)(x))


def _norm(x: Any, epsilon: float) -> Any:
    import keras

    return keras.layers.LayerNormalization(epsilon=epsilon)(x)


def keras_bert() -> Callable[..., Any]:
    import keras
    from keras import layers, ops

    ids, mask = keras.Input([TOKENS], dtype="int32"), keras.Input([TOKENS], dtype="int32")
    types = ops.zeros_like(ids)
    positions = layers.Embedding(512, 768)(ops.arange(TOKENS)[None])
    x = _norm(layers.Embedding(30522, 768)(ids) + layers.Embedding(2, 768)(types) + positions, 1e-12)
    seen = ops.cast(mask, "bool")[:, None, :]
    for _ in range(12):
        x = _norm(x + _attention(x, seen), 1e-12)
        x = _norm(x + _feed_forward(x, lambda y: ops.gelu(y, approximate=False)), 1e-12)
    return keras.Model([ids, mask], [x, layers.Dense(768, activation="tanh")(x[:, 0])])


def keras_gpt2() -> Callable[..., Any]:
    import keras
    from keras import layers, ops

    ids = keras.Input([TOKENS], dtype="int32")
    words = layers.Embedding(50257, 768)
    x = words(ids) + layers.Embedding(1024, 768)(ops.arange(TOKENS)[None])
    for _ in range(12):
        x = x + _attention(_norm(x, 1e-5), causal=True)
        x = x + _feed_forward(_norm(x, 1e-5), lambda y: ops.gelu(y, approximate=True))
    scores = layers.Lambda(lambda y: ops.matmul(y, ops.transpose(words.embeddings)))
    return keras.Model(ids, scores(_norm(x, 1e-5)))


def keras_lstm() -> Callable[..., Any]:
    import keras
    from keras import layers

    x = keras.Input([STEPS, FEATURES])
    return keras.Model(x, layers.Dense(10)(layers.LSTM(HIDDEN, return_sequences=True)(x)))


def _image(batch: int) -> dict[str, Any]:
    return {"input": np.random.default_rng(0).normal(size=(batch, 3, 224, 224)).astype(np.float32)}


def _words(batch: int, vocabulary: int = 30522) -> Any:
    return np.random.default_rng(0).integers(0, vocabulary, (batch, TOKENS))


def _series(batch: int) -> dict[str, Any]:
    return {"x": np.random.default_rng(0).normal(size=(batch, STEPS, FEATURES)).astype(np.float32)}


def make_torch(name: str) -> nn.Module:
    """A network in evaluation mode whose weights all differ, so that no two of them are stored as one."""
    torch.manual_seed(0)
    model = NETWORKS[name].torch().eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight), alpha=0.01)
    return model.requires_grad_(False)


@dataclass(frozen=True)
class Network:
    """One network.

    Attributes:
        torch: makes it in torch.
        keras: makes it in Keras.
        inputs: the torch model's inputs by name, for a batch size.
        for_keras: makes an input what Keras takes.
    """

    torch: Callable[[], nn.Module]
    keras: Callable[[], Callable[..., Any]]
    inputs: Callable[[int], dict[str, Any]]
    for_keras: Callable[[Any], Any]


def _channels_last(x: Any) -> Any:
    return np.ascontiguousarray(x.transpose(0, 2, 3, 1))


def _same(x: Any) -> Any:
    return x


def _indices(x: Any) -> Any:
    return x.astype(np.int32)


NETWORKS = {
    "resnet50": Network(resnet50, keras_resnet50, _image, _channels_last),
    "mobilenet": Network(mobilenet, keras_mobilenet, _image, _channels_last),
    "bert": Network(
        bert,
        keras_bert,
        lambda batch: {"input_ids": _words(batch), "attention_mask": np.ones((batch, TOKENS), np.int64)},
        _indices,
    ),
    "gpt2": Network(gpt2, keras_gpt2, lambda batch: {"input_ids": _words(batch)}, _indices),
    "lstm": Network(Tagger, keras_lstm, _series, _same),
}

"""Requests that TensorFlow Serving runs when it loads a model, so that the first real one is not the slow one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf

from exporters._request import ExportRequest
from exporters.errors import OptionsError
from interop import Signature, convert
from interop.errors import ConversionError, InputError
from interop.integrations._serving_messages import PredictionLog, request_of
from interop.parity.inputs import base_symbols, default_sizes, make_case

__all__ = ["LIMIT", "WARMUP_FILE", "Warmup", "make_warmup"]

WARMUP_FILE = Path("assets.extra") / "tf_serving_warmup_requests"
"""Where TensorFlow Serving looks: a TFRecord file of ``tensorflow.serving.PredictionLog`` messages."""

LIMIT = 1000
"""As many records TensorFlow Serving reads."""


@dataclass(frozen=True)
class Warmup:
    """Warm-up requests.

    Attributes:
        requests: a ``PredictRequest`` for each signature, without the model's name.
        times: how often each stands in the file.
    """

    requests: tuple[Any, ...]
    times: int

    def write(self, folder: Path, model: str) -> None:
        """Write the file into a SavedModel.

        Args:
            folder: the SavedModel.
            model: the name that the server will know the model by.
        """
        target = folder / WARMUP_FILE
        target.parent.mkdir(exist_ok=True)
        with tf.io.TFRecordWriter(str(target)) as writer:
            for request in self.requests:
                log = PredictionLog()
                log.predict_log.request.CopyFrom(request)
                log.predict_log.request.model_spec.name = model
                record = log.SerializeToString(deterministic=True)
                for _ in range(self.times):
                    writer.write(record)


def make_warmup(module: Any, signature: Signature, request: ExportRequest, times: int) -> Warmup:
    """Requests with the example, or with made-up inputs where there is none, for each signature that serves.

    Args:
        module: the lowered model.
        signature: its inputs.
        request: the export, with the example.
        times: see ``Warmup``.

    Raises:
        OptionsError: there are too many, the model fails on them, after which a server would not load it, or an input is
            nothing that the protocol takes.
    """
    functions = {name: f for name, f in module.signatures_to_save().items() if name != "training"}
    if len(functions) * times > LIMIT:
        raise OptionsError(
            f"warmup={times} is {len(functions) * times} requests for {len(functions)} signatures; the server reads {LIMIT}"
        )
    names = module.interop_metadata["names"]["inputs"]
    arrays = {names[name]: array for name, array in _example(signature, request).items()}
    return Warmup(tuple(_request(name, function, arrays) for name, function in functions.items()), times)


def _example(signature: Signature, request: ExportRequest) -> dict[str, Any]:
    """NumPy arrays by input name."""
    if held := [f"{spec.name} ({spec.kind})" for spec in signature.inputs if spec.kind != "tensor"]:
        raise OptionsError(f"warm-up requests are made for tensors only; this model takes {', '.join(held)}")
    if request.args or request.kwargs:
        bound = signature.bind(request.args, request.kwargs)
        return {name: convert(tensor.detach(), "numpy") for name, tensor in bound.items()}
    try:
        return make_case(signature, "normal", default_sizes(base_symbols(signature))[0]).tensors
    except InputError as error:
        raise OptionsError(f"no warm-up request can be made without an example: {error}") from error


def _request(name: str, function: Any, arrays: Mapping[str, Any]) -> Any:
    feed = {key: arrays[key] for key in function.structured_input_signature[1]}
    try:
        made = request_of("", feed, signature=name)
        function(**{key: tf.constant(array) for key, array in feed.items()})
    except ConversionError as error:
        raise OptionsError(f"no warm-up request can be made: {error}") from error
    except tf.errors.OpError as error:
        cause = " ".join(str(error).split())[-300:]  # the lines that led to it come first
        raise OptionsError(
            f"signature {name!r} fails on the warm-up request, and TensorFlow Serving would not load the model; export with "
            f"an example that the model takes: {cause}"
        ) from error
    return made

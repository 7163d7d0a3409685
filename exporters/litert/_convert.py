"""Run TensorFlow's converter on a SavedModel, with its report of many pages made into records."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from exporters.errors import ExportError, TranslationError, Unsupported, UnsupportedOperatorError
from exporters.litert._float import float_operators
from interop.extras import require

__all__ = ["convert_savedmodel"]


def convert_savedmodel(path: Path, precision: str, samples: Sequence[Mapping[str, Any]]) -> bytes:
    """Convert the signature ``serving_default``.

    Args:
        path: the SavedModel's folder.
        precision: ``"float32"``, ``"float16"`` or ``"int8"``.
        samples: typical inputs for int8, NumPy arrays by TensorFlow's names; without any, only the weights become int8.

    Returns:
        The bytes of a LiteRT file.

    Raises:
        UnsupportedOperatorError: LiteRT has no builtin operator for some nodes.
        TranslationError: the converter failed otherwise.
    """
    tf = require("tensorflow", "to export to litert")
    errors = require("tensorflow.lite.python.convert_phase", "to export to litert")
    converter = tf.lite.TFLiteConverter.from_saved_model(str(path), signature_keys=["serving_default"])
    # Builtins only: a file with TensorFlow's own kernels in it ("Select TF ops") runs in no stock LiteRT interpreter.
    builtins = [tf.lite.OpsSet.TFLITE_BUILTINS]
    if precision != "float32":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if precision == "float16":
        converter.target_spec.supported_types = [tf.float16]
    if samples:
        converter.representative_dataset = lambda: iter([dict(sample) for sample in samples])
        builtins = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8, *builtins]
    converter.target_spec.supported_ops = builtins
    try:
        with _quiet():
            if not samples:
                return bytes(converter.convert())
            converter._experimental_calibrate_only = True
            calibrated = bytes(converter.convert())
            quantize = require("tensorflow.lite.python.convert", "to export to litert").mlir_quantize
            return bytes(quantize(calibrated, denylisted_nodes=float_operators(calibrated)))
    except (errors.ConverterError, ValueError, RuntimeError) as error:  # the latter two from calibration
        raise _translation_error(str(error)) from error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hold back what the converter's C++ code writes to the stderr of the process; its error says all of it again."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with tempfile.TemporaryFile() as noise, warnings.catch_warnings():
            warnings.filterwarnings("ignore", r"\s*Warning: tf\.lite\.Interpreter is deprecated")  # calibration uses it
            os.dup2(noise.fileno(), 2)
            yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


_NODE = re.compile(r"""fused\["(\w+):", "([^"@]+)@[^\n]*'tf\.(\w+)' op is neither a custom op nor a flex op""")
_TYPES = re.compile(r"^\s*tf\.(\w+)(\(.*?\) -> \(.*?\))(?: : |$)", re.MULTILINE)


def _translation_error(text: str) -> ExportError:
    """The nodes that LiteRT lacks, with the types that it lacks them for."""
    types: dict[str, list[str]] = {}
    for operator, signature in _TYPES.findall(text):
        types.setdefault(operator, []).append(signature)
    nodes = dict.fromkeys((operator, node) for _, node, operator in _NODE.findall(text))
    if nodes:
        return UnsupportedOperatorError("LiteRT", [_record(*node, types) for node in nodes])
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return TranslationError(f"TensorFlow's converter cannot write a LiteRT file: {' '.join(lines)[:600]}")


def _record(operator: str, node: str, types: Mapping[str, Sequence[str]]) -> Unsupported:
    served = f" for {' or '.join(types[operator])}" if operator in types else ""
    return Unsupported(f"tf.{operator}", node, f"LiteRT has no builtin operator{served}")

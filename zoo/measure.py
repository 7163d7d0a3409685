"""One family in a process of its own: a line of JSON a column on standard output."""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from zoo.families import FAMILIES, Family, build

__all__ = ["COLUMNS", "main"]


def main(name: str, columns: list[str]) -> None:
    """Measure one family; what it prints is the last thing known of it if the process dies."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import torch
    import transformers

    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    family = next(row for row in FAMILIES if row.name == name)
    for column in columns:
        _say({"family": name, "column": column, "started": True})
        start = time.perf_counter()
        try:
            found = COLUMNS[column](family)
        except Exception as error:  # noqa: BLE001  # whatever a model or an exporter raises is a result here
            found = {"exported": bool(_is_parity(error)), "parity": False, "reason": _reason(error)}
        found["seconds"] = round(time.perf_counter() - start, 1)
        _say({"family": name, "column": column, **found})


def _say(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def _is_parity(error: Exception) -> bool:
    return type(error).__name__ in ("ParityError", "AssertionError")


def _reason(error: BaseException) -> str:
    """The error and, where its message is a page of advice, what caused it."""
    cause = error
    while cause.__cause__ is not None and type(error).__module__.startswith("torch"):
        cause = cause.__cause__
    text = " ".join(re.sub(r"\x1b\[\d+m", "", str(cause)).split())
    return f"{type(cause).__name__}: {text}"[:400]


def _ours(target: str) -> Callable[[Family], dict[str, Any]]:
    def measure(family: Family) -> dict[str, Any]:
        from exporters import export_model

        exported = export_model(build(family), target)
        symbols = list(exported.signature.symbols)
        fixed = [str(record) for record in exported.dims if record.symbol is None]
        return {"exported": True, "parity": True, "symbols": symbols, "reason": "; ".join(fixed)[:300]}

    return measure


def _without_patches(family: Family) -> dict[str, Any]:
    """The plain call as it is where Transformers ships no exporters: none of its patches surround the capture."""
    from unittest import mock

    from exporters.onnx import _transformers as own

    with mock.patch.object(own, "_exporters", return_value=None):
        return _ours("onnx")(family)


def _example(family: Family) -> tuple[Any, dict[str, Any]]:
    from exporters._example_inputs import find_example_inputs

    model = build(family)
    return model, find_example_inputs(model, None, None, "onnx")[1]


def _bare(family: Family) -> dict[str, Any]:
    """``torch.onnx.export`` as its documentation has it, with dynamic batch and, for tokens, dynamic sequence."""
    import torch

    model, example = _example(family)
    dynamic = {name: _names(name, value) for name, value in example.items()}
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        path = Path(folder) / "model.onnx"
        torch.onnx.export(model, (), path, kwargs=example, dynamo=True, dynamic_shapes=dynamic, verbose=False)
        _compare(model, example, _run_file(path))
    return {"exported": True, "parity": True}


def _names(name: str, value: Any) -> dict[int, str]:
    is_text = value.ndim == 2 and not value.is_floating_point()
    prefix = "decoder_" if name.startswith("decoder") else ""
    return {0: "batch", 1: f"{prefix}sequence"} if is_text else {0: "batch"}


def _run_file(path: Path) -> Callable[[dict[str, Any]], list[Any]]:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]

    def run(inputs: dict[str, Any]) -> list[Any]:
        return list(session.run(None, {name: inputs[name].numpy() for name in names}))

    return run


def _transformers(family: Family) -> dict[str, Any]:
    """Transformers' own exporter, every dim left to torch."""
    import torch
    from transformers.exporters import OnnxConfig, OnnxExporter

    model, example = _example(family)
    exported = OnnxExporter().export(model, dict(example), config=OnnxConfig(dynamic=True))

    def run(inputs: dict[str, Any]) -> list[Any]:
        return [value.numpy() for value in _tensors(exported(**inputs))]

    with torch.no_grad():
        _compare(model, example, run)
    return {"exported": True, "parity": True}


def _compare(model: Any, example: dict[str, Any], run: Callable[[dict[str, Any]], list[Any]]) -> None:
    """The runtime against the eager model at three shapes.

    Raises:
        AssertionError: it differs.
    """
    import numpy as np

    for number, inputs in enumerate(_three_shapes(example)):
        expected = [value.numpy() for value in _tensors(model(**inputs))]
        given = run(inputs)
        if len(given) != len(expected):
            raise AssertionError(f"{len(given)} outputs for {len(expected)}")
        for one, other in zip(given, expected):
            if one.shape != other.shape:
                raise AssertionError(f"shape {one.shape} for {other.shape} at shape {number}")
            scale = max(float(np.abs(other).max(initial=0)), 1e-3) if other.dtype.kind == "f" else 0
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-4 * scale, err_msg=f"shape {number}")


def _three_shapes(example: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """As given; one more row and, for tokens, one more column; one row."""
    import torch

    yield example
    longer = {name: torch.cat([value, value[:1]]) for name, value in example.items()}
    yield {
        name: torch.cat([value, value[:, :1]], 1) if 1 in _names(name, value) else value
        for name, value in longer.items()
    }
    yield {name: value[:1] for name, value in example.items()}


def _tensors(value: Any) -> Iterator[Any]:
    """The tensors of a result, caches included, in the order in which they are written down."""
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)
    elif hasattr(value, "layers"):
        for layer in value.layers:
            yield from _tensors([layer.keys, layer.values])


COLUMNS: dict[str, Callable[[Family], dict[str, Any]]] = {
    "onnx": _ours("onnx"),
    "tensorflow": _ours("tensorflow"),
    "bare": _bare,
    "transformers": _transformers,
    "unpatched": _without_patches,
}
"""What is measured: the plain calls of this project, bare ``torch.onnx.export``, ``transformers.exporters``, and the plain call to
ONNX without the patches of the latter."""


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])

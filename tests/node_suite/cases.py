"""All cases of the installed onnx package's backend suite, with their inputs and expected outputs."""

from __future__ import annotations

import contextlib
import functools
import io
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner

KINDS = ("node", "simple", "pytorch-operator", "pytorch-converted", "real")


@dataclass(frozen=True)
class Case:
    """One case: ``kind/name``, and where its model and data come from."""

    name: str
    rtol: float
    atol: float
    _source: Any

    @property
    def model(self) -> onnx.ModelProto:
        """The model."""
        return self._source.model if self._source.model is not None else onnx.load(_model_path(self._source))

    def data(self) -> Iterator[tuple[list[Any], list[Any]]]:
        """Inputs and expected outputs, one pair a data set."""
        if self._source.data_sets is not None:
            for inputs, outputs in self._source.data_sets:
                yield [_array(x) for x in inputs], [_array(x) for x in outputs]
        elif self._source.url:
            yield _light_data(self._source, self.model)
        else:
            for folder in sorted(Path(self._source.model_dir).glob("test_data_set*")):
                yield _load_folder(folder, self.model)


@functools.cache
def all_cases() -> dict[str, Case]:
    """Every case by name, in the suite's order; making them takes about five seconds."""
    found = {}
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for kind in KINDS:
            for source in load_model_tests(kind=kind):
                name = f"{kind}/{source.name}"
                found[name] = Case(name, source.rtol, source.atol, source)
    return found


def judge(case: Case, expected: list[Any], outputs: list[Any]) -> None:
    """Raise AssertionError unless the outputs are right, by the rules of onnx's own runner."""
    Runner.assert_similar_outputs(expected, outputs, rtol=case.rtol, atol=case.atol)


def _array(value: Any) -> Any:
    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def _model_path(source: Any) -> str:
    if source.url:
        return str(Path(onnx.__file__).parent.parent / source.url)
    return str(Path(source.model_dir) / "model.onnx")


def _light_data(source: Any, model: onnx.ModelProto) -> tuple[list[Any], list[Any]]:
    initialized = {tensor.name for tensor in model.graph.initializer}
    inputs = [Runner.generate_dummy_data(value) for value in model.graph.input if value.name not in initialized]
    stem = _model_path(source).removesuffix(".onnx")
    outputs = [_read(Path(f"{stem}_output_{i}.pb"), value) for i, value in enumerate(model.graph.output)]
    return inputs, outputs


def _load_folder(folder: Path, model: onnx.ModelProto) -> tuple[list[Any], list[Any]]:
    def load(prefix: str, values: Any) -> list[Any]:
        files = sorted(folder.glob(f"{prefix}_*.pb"), key=lambda path: int(path.stem.split("_")[-1]))
        return [_read(path, value) for path, value in zip(files, values)]

    return load("input", model.graph.input), load("output", model.graph.output)


def _read(path: Path, value: onnx.ValueInfoProto) -> Any:
    data = path.read_bytes()
    if value.type.HasField("sequence_type"):
        return onnx.numpy_helper.to_list(onnx.SequenceProto.FromString(data))
    if value.type.HasField("optional_type"):
        return onnx.numpy_helper.to_optional(onnx.OptionalProto.FromString(data))
    return onnx.numpy_helper.to_array(onnx.TensorProto.FromString(data))

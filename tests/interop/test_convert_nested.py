"""Nested structures: tensors are converted, the rest is left, the containers keep their types and the input its values."""

from __future__ import annotations

import collections
import dataclasses
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from interop import ConversionError, CopyRequiredError, Explanation, convert, explain


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclasses.dataclass
class Batch:
    x: Any
    label: str = "none"
    parts: list[Any] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    x: Any
    count: int = 3


class Registry(collections.UserDict[str, Any]):
    pass


def test_convert_nested_containers() -> None:
    x, y = torch.ones(2), torch.zeros(3, dtype=torch.int64)
    tree = {"b": [x, 1, None], "a": (y, "text"), "pair": Pair(x, {"k": y}), "queue": collections.deque([x]), 3: 2.5}
    result = convert(tree, "numpy")
    assert list(result) == list(tree)
    assert result["b"][0].ctypes.data == x.data_ptr() and result["b"][1:] == [1, None]
    assert isinstance(result["a"], tuple) and result["a"][1] == "text" and result["a"][0].dtype == np.int64
    assert isinstance(result["pair"], Pair) and isinstance(result["pair"].second["k"], np.ndarray)
    assert isinstance(result["queue"], collections.deque) and isinstance(result["queue"][0], np.ndarray)
    assert result[3] == 2.5
    assert tree["b"][0] is x


def test_convert_dataclasses() -> None:
    x = torch.arange(3.0)
    batch = Batch(x, parts=[Frozen(x), (x, Batch(x))])
    result = convert(batch, "numpy")
    assert type(result) is Batch and result.label == "none" and isinstance(result.x, np.ndarray)
    assert type(result.parts[0]) is Frozen and isinstance(result.parts[0].x, np.ndarray) and result.parts[0].count == 3
    assert isinstance(result.parts[1][1].x, np.ndarray)
    assert batch.x is x and batch.parts[0].x is x


def test_convert_mappings_of_other_types() -> None:
    x = torch.ones(2)
    result = convert([Registry(x=x, n=1), collections.OrderedDict(x=x), collections.defaultdict(list, x=x)], "numpy")
    assert [type(item) for item in result] == [Registry, collections.OrderedDict, collections.defaultdict]
    assert all(isinstance(item["x"], np.ndarray) for item in result) and result[0]["n"] == 1


def test_convert_transformers_output() -> None:
    outputs = pytest.importorskip("transformers.modeling_outputs")
    x = torch.ones(2, 3)
    output = outputs.BaseModelOutput(last_hidden_state=x, hidden_states=(x, x))
    result = convert(output, "numpy")
    assert type(result) is outputs.BaseModelOutput
    assert isinstance(result["last_hidden_state"], np.ndarray) and result.last_hidden_state is result[0]
    assert all(isinstance(item, np.ndarray) for item in result.hidden_states) and result.attentions is None
    assert output.last_hidden_state is x and output["last_hidden_state"] is x


def test_convert_nested_passes_copy_on() -> None:
    x = torch.ones(2)
    assert convert({"x": x}, "numpy", copy=True)["x"].ctypes.data != x.data_ptr()
    with pytest.raises(CopyRequiredError):
        convert([np.ones(4)[::-1]], "torch", copy=False)


def test_explain_nested() -> None:
    result = explain({"x": torch.ones(2), "y": [np.ones(2)[::-1], 5]}, "torch")
    assert isinstance(result["x"], Explanation) and result["x"].outcome == "view"
    assert result["y"][0].copies and result["y"][1] == 5


@pytest.mark.parametrize("value", [3, 2.5, "text", None, object(), torch.float32, int])
def test_convert_refuses_what_is_no_tensor(value: Any) -> None:
    if value is None:
        assert convert(value, "numpy") is None  # an empty structure
        return
    for function in (convert, explain):
        with pytest.raises(ConversionError, match="not a tensor"):
            function(value, "numpy")

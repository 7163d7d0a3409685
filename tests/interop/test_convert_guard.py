"""A guard sees writes through either side of shared memory, names both, and is silent otherwise."""

from __future__ import annotations

import threading
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf
import torch
from onnxruntime import OrtValue

import interop
from interop import AliasingError, ConversionError, convert
from tests.interop.tensor_matrix import CONSUMERS, payload

SOURCES = ("torch", "numpy", "tensorflow", "onnxruntime", "jax")


def source_of(framework: str) -> Any:
    values = np.arange(16, dtype=np.float32)
    return {
        "torch": lambda: torch.from_numpy(values).clone(),
        "numpy": lambda: _aligned(values),
        "tensorflow": lambda: tf.constant(values),
        "onnxruntime": lambda: OrtValue.from_dlpack(torch.from_numpy(values).clone()),
        "jax": lambda: jnp.array(values),
    }[framework]()


def _aligned(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    array = payload("float32", values.size)
    array[...] = values
    return array


def write(x: Any) -> None:
    """Change the memory of a tensor by its framework's own means, or by a torch alias where it has none."""
    if isinstance(x, torch.Tensor | np.ndarray):
        x[3] = 99
    elif isinstance(x, OrtValue):
        x.update_inplace(np.full(16, 99, np.float32))
    else:
        torch.from_dlpack(x)[3] = 99


PAIRS = [(source, target) for source in SOURCES for target in (*CONSUMERS, "jax") if source != target]


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_guard_raises_on_a_write_through_the_source(source: str, target: str) -> None:
    x = source_of(source)
    with pytest.raises(AliasingError) as caught, interop.guard():
        convert(x, target, copy=False, guard=True)
        write(x)
    assert f"({source} float32[16])" in str(caught.value) and f"({target} float32[16])" in str(caught.value)


@pytest.mark.parametrize(("source", "target"), [pair for pair in PAIRS if pair[1] != "numpy"])
def test_guard_raises_on_a_write_through_the_result(source: str, target: str) -> None:
    x = source_of(source)
    with pytest.raises(AliasingError, match="share memory"), interop.guard():
        write(convert(x, target, copy=False, guard=True))


@pytest.mark.parametrize("source", [source for source in SOURCES if source != "numpy"])
def test_guarded_numpy_result_refuses_the_write_itself(source: str) -> None:
    with interop.guard(), pytest.raises(ValueError, match="read-only"):
        convert(source_of(source), "numpy", guard=True)[0] = 1


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_guard_is_silent_without_a_write(source: str, target: str) -> None:
    x = source_of(source)
    with interop.guard() as watcher:
        y = convert(x, target, guard=True)
        watcher.check()
        assert np.asarray(convert(y, "numpy")).sum() == 120
    write(x)  # closed: nobody watches


def test_guard_says_that_torch_wrote_and_sees_a_write_that_changes_nothing() -> None:
    x = torch.ones(4)
    with pytest.raises(AliasingError, match=r"went through the source \(torch float32\[4\]\)"), interop.guard():
        convert(x, "numpy", guard=True)
        x.fill_(1.0)


def test_guard_says_that_the_other_side_wrote() -> None:
    x = payload("float32", 16)
    with pytest.raises(AliasingError, match=r"went through the source \(numpy"), interop.guard():
        convert(x, "torch", guard=True)
        x[0] = 5


def test_guard_ignores_copies_and_tensors_that_stay() -> None:
    x, rows = torch.ones(4), torch.ones(4, 4)
    with interop.guard():
        convert(x, "numpy", copy=True, guard=True)
        convert(rows.T, "tensorflow", guard=True)  # needs a copy
        assert convert(x, "torch", guard=True) is x
        x.add_(1)
        rows.add_(1)


def test_guard_checks_at_the_next_guarded_conversion() -> None:
    x = torch.ones(4)
    with interop.guard() as watcher:
        convert(x, "numpy", guard=True)
        x.add_(1)
        with pytest.raises(AliasingError):
            convert(torch.zeros(2), "numpy", guard=True)
        with pytest.raises(AliasingError):
            watcher.check()
        x.sub_(1)  # the bytes are back, torch's count is not
        with pytest.raises(AliasingError):
            watcher.check()
        watcher._watched.clear()


@pytest.mark.parametrize("make", [lambda x: {"a": [x, 1]}, lambda x: (x, "text")])
def test_guard_watches_nested_tensors(make: Any) -> None:
    x = torch.ones(4)
    with pytest.raises(AliasingError), interop.guard():
        convert(make(x), "tensorflow", guard=True)
        x.add_(1)


def test_guard_watches_strided_and_extension_types() -> None:
    base = torch.zeros(4, 4, dtype=torch.bfloat16)
    with interop.guard():
        convert(base[:, ::2], "numpy", guard=True)
        base.untyped_storage()  # reading is fine
    with pytest.raises(AliasingError), interop.guard():
        array = convert(base[:, ::2], "numpy", guard=True)
        np.ndarray((4, 4), np.uint16, torch.as_tensor(base.view(torch.uint16)).numpy())[2, 2] = 7
        assert array.shape == (4, 2)


def test_guard_watches_a_pair_made_elsewhere() -> None:
    x = torch.ones(4)
    y = x.numpy()
    with pytest.raises(AliasingError, match="its alias"), interop.guard() as watcher:
        watcher.watch(x, y)
        y[0] = 2


def test_guard_sees_a_write_of_another_thread() -> None:
    x = payload("float32", 16)
    with pytest.raises(AliasingError), interop.guard():
        convert(x, "torch", guard=True)
        thread = threading.Thread(target=write, args=(x,))
        thread.start()
        thread.join()


def test_guard_sees_what_makes_a_gradient_wrong_in_silence() -> None:
    x, weight = payload("float32", 4), torch.ones(4, requires_grad=True)
    x[...] = 1
    with pytest.raises(AliasingError), interop.guard():
        loss = (weight * convert(x, "torch", guard=True)).sum()
        x[0] = 99  # past the version counter
        loss.backward()
    assert weight.grad is not None and float(weight.grad[0]) == 99  # where 1 is right: torch noticed nothing


def test_guard_sees_an_update_in_place_with_another_dtype() -> None:
    value = OrtValue.from_dlpack(torch.ones(4))
    with pytest.raises(AliasingError), interop.guard():
        convert(value, "torch", guard=True)
        value.update_inplace(np.arange(4, dtype=np.int32))  # ONNX Runtime takes the bits


def test_guard_lets_the_error_of_the_block_through_and_lets_go_of_tensors() -> None:
    x = torch.ones(4)
    watcher = interop.guard()
    with pytest.raises(KeyError), watcher:
        convert(x, "numpy", guard=True)
        x.add_(1)
        raise KeyError
    watcher.check()
    assert not watcher._watched


def test_guards_nest_and_the_innermost_watches() -> None:
    x = torch.ones(4)
    with interop.guard() as outer:
        with pytest.raises(AliasingError), interop.guard():
            convert(x, "numpy", guard=True)
            x.add_(1)
        outer.check()


def test_guard_true_needs_an_open_guard() -> None:
    with pytest.raises(ConversionError, match=r"interop\.guard"):
        convert(torch.ones(2), "numpy", guard=True)
    with interop.guard():
        pass
    with pytest.raises(ConversionError, match=r"interop\.guard"):
        convert(torch.ones(2), "numpy", guard=True)


def test_watch_refuses_what_has_no_memory() -> None:
    with interop.guard() as watcher:
        with pytest.raises(ConversionError, match="not a tensor"):
            watcher.watch([1], torch.ones(1))
        with pytest.raises(ConversionError, match="cannot be watched"):
            watcher.watch(tf.Variable([1.0]), torch.ones(1))

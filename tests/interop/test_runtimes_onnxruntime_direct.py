"""The quick ways through ONNX Runtime: bound by address, so every test here is about what an address does not know."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper

import interop
from interop.errors import InputError
from interop.runtimes import _onnx_direct
from tests.interop.runtime_models import identity_onnx, info, make_onnx


@pytest.fixture
def negate():
    return interop.load(identity_onnx(TensorProto.FLOAT, ("n", 4), "Neg"), threads=1)


@pytest.fixture
def subtract():
    nodes = [helper.make_node("Sub", ["a", "b"], ["c"]), helper.make_node("Add", ["a", "b"], ["d"])]
    shape = ["n", 4]
    inputs = [info(name, TensorProto.FLOAT, shape) for name in "ab"]
    return interop.load(make_onnx(nodes, inputs, [info(name, TensorProto.FLOAT, shape) for name in "cd"]), threads=1)


def quick(runtime):
    """The torch way of this thread, with a count of the runs that it took."""
    bound = next(way for way in runtime._quick_ways() if isinstance(way, _onnx_direct.Bound))
    runtime._local.ways = (bound,)
    taken, execute = [], bound._execute
    bound._execute = lambda *args: (taken.append(1), execute(*args))[1]
    return taken


def test_plain_tensors_take_the_quick_way_and_others_do_not(negate):
    taken = quick(negate)
    x = torch.arange(8.0).reshape(2, 4)
    assert torch.equal(negate(x), -x) and len(taken) == 1
    for other in (x.T.contiguous().T, torch.nn.Parameter(x), x.numpy(), torch._neg_view(x), torch.empty(0, 4)):
        before = len(taken)
        result = torch.as_tensor(negate(other))
        assert torch.equal(result, -torch.as_tensor(other).detach()) and len(taken) == before


def test_inputs_are_bound_anew_whenever_memory_or_shape_changes(negate):
    taken = quick(negate)
    base = torch.arange(400.0).reshape(100, 4)
    for start, rows in [(0, 2), (0, 2), (1, 2), (1, 3), (0, 3), (50, 50), (0, 2)]:
        x = base[start : start + rows]
        assert torch.equal(negate(x), -x)
    x = torch.zeros(2, 4)
    negate(x)
    x.fill_(7)  # the same memory, other values
    assert torch.equal(negate(x), torch.full((2, 4), -7.0))
    x.set_(torch.ones(3, 4))  # the same tensor, other memory
    assert torch.equal(negate(x), torch.full((3, 4), -1.0))
    assert len(taken) == 10


def test_memory_of_earlier_inputs_is_neither_held_nor_read(negate):
    """A raw address outlives its tensor; nothing may read it then."""
    size = 1 << 16
    for turn in range(6):
        x = torch.full((size, 4), float(turn))
        gone = weakref.ref(x)
        result = negate(x)
        del x
        gc.collect()
        assert gone() is None
        decoys = [torch.full((size, 4), 1e9) for _ in range(3)]
        other = negate(torch.full((size, 4), 0.5))
        assert torch.equal(result, torch.full((size, 4), -float(turn))) and float(other.max()) == -0.5
        del decoys


def test_results_are_separate_from_each_other_and_released(negate):
    x = torch.ones(1 << 12, 4)
    results = [negate(x * turn) for turn in range(6)]
    assert len({result.data_ptr() for result in results}) == 6
    assert [float(result[0, 0]) for result in results] == [-float(turn) for turn in range(6)]
    results[0].fill_(5)  # writable, and nobody else's
    assert float(results[1][0, 0]) == -1 and torch.equal(negate(x), -x)


def test_a_failed_run_leaves_the_next_one_alone():
    model = make_onnx(
        [helper.make_node("Reshape", ["x", "s"], ["y"])],
        [info("x", TensorProto.FLOAT, ["n"]), info("s", TensorProto.INT64, ["k"])],
        [info("y", TensorProto.FLOAT, None)],
    )
    runtime = interop.load(model, threads=1)
    taken = quick(runtime)
    x, bad, good = torch.ones(4), torch.tensor([3]), torch.tensor([2, 2])
    for _ in range(3):
        with pytest.raises(interop.InteropError, match=r"Reshape|reshape"):
            runtime(x, bad)
        assert torch.equal(runtime(x, good), torch.ones(2, 2))
    assert len(taken) == 6


def test_shapes_are_checked_together_before_anything_is_bound(subtract):
    taken = quick(subtract)
    a, b = torch.ones(2, 4), torch.zeros(2, 4)
    subtract(a, b)
    for left, right in [(torch.ones(3, 4), b), (a, torch.ones(3, 4)), (torch.ones(2, 5), b), (torch.ones(8), b)]:
        with pytest.raises(InputError):
            subtract(left, right)
        assert torch.equal(subtract(a, b)[0], a)
    assert len(taken) == 5
    with pytest.raises(InputError, match="float32"):
        subtract(a.double(), b)
    with pytest.raises(InputError, match="missing"):
        subtract.run({"a": a})
    with pytest.raises(InputError, match="unknown 'z'"):
        subtract.run({"a": a, "b": b, "z": b})


def test_the_order_of_names_does_not_matter(subtract):
    a, b = torch.full((1, 4), 5.0), torch.full((1, 4), 2.0)
    assert float(subtract.run({"b": b, "a": a})["c"][0, 0]) == 3
    assert float(subtract.run({"b": b.numpy(), "a": a.numpy()})["c"][0, 0]) == 3
    assert list(subtract.run({"b": b, "a": a})) == ["c", "d"]


def test_gradients_and_lazy_bits_enter_by_value(negate):
    x = torch.ones(2, 4, requires_grad=True)
    result = negate(x)
    assert torch.equal(result, -torch.ones(2, 4)) and not result.requires_grad
    lazy = torch.ones(2, 4, dtype=torch.complex64).mul(1j).conj().imag
    assert lazy.is_neg() and torch.equal(negate(lazy), torch.ones(2, 4))
    one = torch.ones(1, 4)
    assert torch.equal(negate(torch._neg_view(one)), one)


@pytest.mark.parametrize("make", [lambda: torch.ones(2, 4, device="meta"), lambda: torch._efficientzerotensor((2, 4))])
def test_tensors_without_memory_are_refused(negate, make):
    negate(torch.ones(2, 4))
    with pytest.raises(interop.InteropError):
        negate(make())


def test_tracers_are_refused(negate):
    with pytest.raises(interop.InteropError):
        torch.func.vmap(lambda row: negate(row[None]))(torch.ones(2, 4))


def test_a_run_inside_a_run_has_a_binding_of_its_own(negate):
    bound, inner = negate._quick_ways()[0], []
    negate._local.ways = (bound, *negate._arrays)
    execute = bound._execute

    def nested(*args):
        if not inner:
            inner.append(None)
            inner[0] = negate(torch.full((3, 4), 2.0))
        return execute(*args)

    bound._execute = nested
    outer = negate(torch.full((2, 4), 1.0))
    assert torch.equal(outer, torch.full((2, 4), -1.0)) and torch.equal(inner[0], torch.full((3, 4), -2.0))


def test_a_run_into_buffers_inside_another_has_a_binding_of_its_own(negate):
    first, second, inner = torch.zeros(2, 4), torch.zeros(3, 4), []
    x = torch.ones(2, 4)
    negate.run({"x": x}, out={"y": first})
    bound = negate._local.kept.bound
    execute = bound._execute

    def nested(*args):
        if not inner:
            inner.append(1)
            negate.run({"x": torch.full((3, 4), 2.0)}, out={"y": second})
        return execute(*args)

    bound._execute = nested
    negate.run({"x": x * 3}, out={"y": first})
    assert torch.equal(first, torch.full((2, 4), -3.0)) and torch.equal(second, torch.full((3, 4), -2.0))


@pytest.mark.parametrize("numpy", [False, True])
def test_out_refuses_memory_that_is_also_an_input(negate, numpy):
    memory = torch.ones(4, 4)
    given, buffer = (memory[:2].numpy(), memory[1:3].numpy()) if numpy else (memory[:2], memory[1:3])
    with pytest.raises(InputError, match="shares memory"):
        negate.run({"x": given}, out={"y": buffer})
    apart = memory[2:].numpy() if numpy else memory[2:]
    negate.run({"x": given}, out={"y": apart})
    assert torch.equal(memory, torch.tensor([[1.0] * 4] * 2 + [[-1.0] * 4] * 2))
    with pytest.raises(InputError, match="shares memory"):  # the same buffers, another input
        negate.run({"x": apart}, out={"y": apart})
    negate.run({"x": given}, out={"y": apart})
    with pytest.raises(InputError, match="shares memory"):  # the same input, another buffer
        negate.run({"x": given}, out={"y": buffer})


def test_out_refuses_two_buffers_over_one_memory(subtract):
    memory, x = torch.zeros(3, 4), torch.ones(2, 4)
    with pytest.raises(InputError, match="shares memory"):
        subtract.run({"a": x, "b": x}, out={"c": memory[:2], "d": memory[1:]})


def test_out_changes_between_quick_and_slow_inputs(negate):
    out = {"y": torch.zeros(2, 4)}
    for turn in range(1, 4):
        x = torch.full((2, 4), float(turn))
        for given in (x, x.numpy(), torch.full((4, 2), float(turn)).T, x):
            out["y"].zero_()
            assert negate.run({"x": given}, out=out)["y"] is out["y"]
            assert torch.equal(out["y"], -x)


def test_out_in_part_gives_the_rest_fresh(subtract):
    a, b = torch.full((2, 4), 5.0), torch.full((2, 4), 2.0)
    buffer, rest = torch.zeros(2, 4), []
    for turn in range(3):
        outputs = subtract.run({"a": a + turn, "b": b}, out={"d": buffer})
        assert outputs["d"] is buffer and float(buffer[0, 0]) == 7 + turn
        rest.append(outputs["c"])
    assert [float(value[0, 0]) for value in rest] == [3, 4, 5]


def test_an_input_that_is_an_output_comes_back_as_a_copy():
    model = make_onnx(
        [helper.make_node("Neg", ["x"], ["y"])],
        [info("x", TensorProto.FLOAT, ["n"])],
        [info("y", TensorProto.FLOAT, ["n"]), info("x", TensorProto.FLOAT, ["n"])],
    )
    runtime, x = interop.load(model), torch.ones(8)
    given = runtime.run({"x": x})["x"]
    assert torch.equal(given, x) and given.data_ptr() != x.data_ptr()


@pytest.mark.parametrize("dtype", [TensorProto.BFLOAT16, TensorProto.FLOAT16, TensorProto.INT64, TensorProto.BOOL])
def test_other_dtypes_take_the_quick_way(dtype):
    runtime = interop.load(identity_onnx(dtype, ("n",)), threads=1)
    taken = quick(runtime)
    kind = {16: torch.bfloat16, 10: torch.float16, 7: torch.int64, 9: torch.bool}[dtype]
    x = torch.tensor([0, 1, 1, 0]).to(kind)
    result = runtime(x)
    assert result.dtype is kind and torch.equal(result, x) and len(taken) == 1


def test_numpy_arrays_of_other_byte_order_or_class_are_not_taken_as_they_are(negate):
    x = np.arange(4, dtype=np.float32).reshape(1, 4)
    for given in (x, x.astype(">f4"), x.view(np.recarray), np.asfortranarray(np.vstack([x, x])), x[:, ::-1]):
        np.testing.assert_array_equal(negate(given), -np.asarray(given, np.float32))
    with pytest.raises(interop.InteropError):
        negate(np.ma.masked_array(x, x > 1))


def test_without_the_inner_objects_the_public_ways_give_the_same(monkeypatch):
    monkeypatch.setattr("interop.runtimes.onnxruntime.open_run", lambda session: session.run)
    monkeypatch.setattr("interop.runtimes.onnxruntime.open_direct", lambda session, signature: None)
    monkeypatch.setattr("interop.runtimes.onnxruntime.Arrays", lambda session, signature: NoWay())
    runtime = interop.load(identity_onnx(TensorProto.FLOAT, ("n",), "Neg"))
    x, out = torch.arange(4.0), torch.zeros(4)
    assert torch.equal(runtime(x), -x) and torch.equal(runtime(x * 2), x * -2)
    np.testing.assert_array_equal(runtime(x.numpy()), -x.numpy())
    assert runtime.run({"x": x}, out={"y": out})["y"] is out and torch.equal(out, -x)


class NoWay:
    """Takes nothing."""

    def run(self, inputs, check):
        return None


def test_a_session_on_another_device_has_no_quick_way():
    class Session:
        run = "public"

        def get_providers(self):
            return ["CUDAExecutionProvider", "CPUExecutionProvider"]

    assert _onnx_direct.open_run(Session()) == "public"
    assert _onnx_direct.open_direct(Session(), None) is None

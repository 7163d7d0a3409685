"""The quick ways through ONNX Runtime: torch tensors in host memory bound by address, NumPy arrays by plain ``run``.

``IOBinding`` and ``InferenceSession`` wrap C++ objects and do on every call what a CPU session needs once: they make a
device and default run options (a third of a small run), and look for WebGPU. Here the C++ objects are called
themselves, as far as they are where they were; else there is no quick way, and the public one serves.

What makes it safe:

* An address is bound without an owner, so it may only be used while the caller's tensor lives: every run binds anew
  what is not the same address, shape and dtype as before, and holds the tensors until it is over.
* Outputs are bound anew after every run, so each result has memory of its own and nothing is kept here.
* A binding belongs to one run at a time: each thread has its own, and a run inside a run (a Python operator in the model)
  finds it busy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from interop.dtypes import DTYPES
from interop.errors import InputError
from interop.extras import loaded, require
from interop.signature import Signature, TensorSpec

ort = require("onnxruntime", "to run an ONNX model")

__all__ = ["Arrays", "Bound", "Direct", "open_direct", "open_run", "refuse_overlap"]

_HOST_PROVIDERS = {"CPUExecutionProvider", "XnnpackExecutionProvider"}

Check = Callable[[Mapping[str, Any]], Any]
"""Raises unless inputs fit the signature."""


@dataclass(frozen=True, slots=True)
class Direct:
    """The C++ objects under a session, and what is the same for all its bindings.

    Attributes:
        session: ``InferenceSession`` of the extension module.
        options: run options, made once.
        device: the host, as bindings want it.
        make_binding: class of the extension module's bindings.
        inputs: name, ONNX number and torch dtype of each input.
        outputs: names.
        answers: whether torch takes every output by capsule.
        host_only: whether this torch has no accelerator, so that a tensor with an address is in host memory.
        torch: the module.
    """

    session: Any
    options: Any
    device: Any
    make_binding: Any
    inputs: tuple[tuple[str, int, Any], ...]
    outputs: tuple[str, ...]
    answers: bool
    host_only: bool
    torch: ModuleType


@dataclass(slots=True)
class _Input:
    """An input of the model, and where it is bound (address -1: nowhere)."""

    name: str
    number: int
    dtype: Any
    address: int = -1
    shape: Any = None


class Bound:
    """A binding whose inputs are addresses of torch tensors.

    Attributes:
        binding: of the extension module.
        reserved: first address and end of memory that outputs are bound to, which no input may share.
    """

    def __init__(self, direct: Direct, binding: Any = None) -> None:
        """Start with nothing bound.

        Args:
            direct: the session.
            binding: an existing binding of the extension module, whose outputs somebody else binds; runs then give {}.
        """
        self.binding = direct.make_binding(direct.session) if binding is None else binding
        self.reserved: Sequence[tuple[int, int]] = ()
        self._busy = False
        self._inputs = [_Input(*described) for described in direct.inputs]
        self._outputs: tuple[str, ...] = direct.outputs if binding is None else ()
        self._device = direct.device
        self._only = self._outputs[0] if len(self._outputs) == 1 else None
        self._execute, self._options = direct.session.run_with_iobinding, direct.options
        self._bind_input, self._bind_output = self.binding.bind_input, self.binding.bind_output
        self._give = self.binding.get_outputs().to_dlpacks  # of a reference: it shows the outputs of the last run
        self._take, self._plain = direct.torch._C._from_dlpack, direct.torch.Tensor
        self._host_only = direct.host_only
        for name in self._outputs:
            self._bind_output(name, self._device)

    def forget(self) -> None:
        """Whatever is bound, the next run binds all inputs."""
        for slot in self._inputs:
            slot.address = -1

    def run(self, inputs: Mapping[str, Any], check: Check) -> dict[str, Any] | None:
        """Bind the inputs where they are, and run; outputs are fresh torch tensors over ONNX Runtime's own memory.

        Args:
            inputs: by name; anything.
            check: asked when shapes are not those of the run before.

        Returns:
            None where an input is not a plain tensor of the model's dtype, or the binding is busy.
        """
        if self._busy or len(inputs) != len(self._inputs):
            return None
        self._busy = True
        try:
            moved, held = False, []
            try:
                for slot in self._inputs:
                    x = inputs[slot.name]
                    if type(x) is not self._plain or x.dtype is not slot.dtype or not x.is_contiguous() or x.is_neg():
                        return None
                    address = x.data_ptr()
                    if not address or not (self._host_only or x.is_cpu):
                        return None
                    if address != slot.address or x.shape != slot.shape:
                        moved = True
                    held.append(x)  # until the run is over
            except (KeyError, RuntimeError):  # a missing input; a tensor without memory of its own
                return None
            if moved:
                self._bind(held, inputs, check)
            try:
                self._execute(self.binding, self._options)
                outputs: Sequence[Any] = self._give(self._take) if self._outputs else []
            finally:
                for name in self._outputs:  # after the run, so that nothing is kept which the caller drops
                    self._bind_output(name, self._device)
        finally:
            self._busy = False
        return {self._only: outputs[0]} if self._only is not None else dict(zip(self._outputs, outputs))

    def _bind(self, values: Sequence[Any], inputs: Mapping[str, Any], check: Check) -> None:
        for slot, x in zip(self._inputs, values):
            if x.shape != slot.shape:
                check(inputs)
                break
        for slot, x in zip(self._inputs, values):
            address, shape = x.data_ptr(), x.shape
            if address != slot.address or shape != slot.shape:
                slot.address = -1  # should it fail
                if self.reserved:
                    refuse_overlap(address, address + x.nbytes, self.reserved)
                self._bind_input(slot.name, self._device, slot.number, shape, address)
                slot.address, slot.shape = address, shape


def refuse_overlap(start: int, end: int, reserved: Sequence[tuple[int, int]]) -> None:
    """A model may write an output before it has read all of an input.

    Raises:
        InputError: memory from ``start`` to ``end`` shares some with ``reserved``.
    """
    for other_start, other_end in reserved:
        if start < other_end and other_start < end:
            raise InputError("a buffer of out shares memory with an input or with another buffer; give separate memory")


class Arrays:
    """Plain ``run`` over NumPy arrays of the model's own dtypes; any thread may use it."""

    def __init__(self, session: Any, signature: Signature) -> None:
        """Start with no shapes seen.

        Args:
            session: a public ``InferenceSession``.
            signature: inputs and outputs, all of types that NumPy has.
        """
        self._inputs = tuple((spec.name, DTYPES[spec.dtype].numpy) for spec in signature.inputs)
        self._outputs = list(signature.output_names)
        self._execute = open_run(session)
        self._shapes: list[Any] | None = None

    def run(self, inputs: Mapping[str, Any], check: Check) -> dict[str, Any] | None:
        """Run; outputs are fresh arrays.

        Args:
            inputs: by name; anything.
            check: asked when shapes are not those of the run before.

        Returns:
            None where an input is not a plain array in native byte order (whose dtype is the one object there is of it).
        """
        if len(inputs) != len(self._inputs) or type(inputs) is not dict:
            return None
        shapes = []
        for name, dtype in self._inputs:
            x = inputs.get(name)
            if type(x) is not np.ndarray or x.dtype is not dtype:
                return None
            shapes.append(x.shape)
        if shapes != self._shapes:
            check(inputs)
            self._shapes = shapes
        return dict(zip(self._outputs, self._execute(self._outputs, inputs)))


def open_run(session: Any) -> Callable[[Sequence[str], Mapping[str, Any]], list[Any]]:
    """``session.run`` without what it does on every call for other devices, where that is to be had."""
    inner = getattr(getattr(session, "_sess", None), "run", None)
    if inner is None or not _HOST_PROVIDERS.issuperset(session.get_providers()):
        return session.run  # type: ignore[no-any-return]
    options = ort.RunOptions()
    return lambda names, feed: inner(names, feed, options)


def open_direct(session: Any, signature: Signature) -> Direct | None:
    """Find the C++ objects under a session.

    Args:
        session: a public ``InferenceSession``.
        signature: its inputs and outputs.

    Returns:
        None where torch is not loaded, the session uses another device, an input is no torch tensor (strings, sequences,
        types below a byte), or this version of ONNX Runtime is built differently.
    """
    torch = loaded("torch")
    if torch is None or not _HOST_PROVIDERS.issuperset(session.get_providers()):
        return None
    nodes = [*session.get_inputs(), *session.get_outputs()]
    if not all(node.type.startswith("tensor(") for node in nodes) or not all(map(_is_torch, signature.inputs)):
        return None
    try:
        state = require("onnxruntime.capi.onnxruntime_pybind11_state", "to run an ONNX model")
        inner = session._sess
        device = ort.OrtDevice.make("cpu", 0)._get_c_device()
        state.SessionIOBinding(inner).get_outputs().to_dlpacks(torch._C._from_dlpack)
    except (AttributeError, TypeError):
        return None
    inputs = tuple((spec.name, DTYPES[spec.dtype].onnx or 0, _torch_dtype(torch, spec)) for spec in signature.inputs)
    names = signature.output_names
    # An input that is listed as an output would come back as the caller's own memory.
    answers = bool(inputs) and all(map(_is_torch, signature.outputs)) and not set(names) & set(signature.input_names)
    host_only = not torch.accelerator.is_available()
    return Direct(inner, ort.RunOptions(), device, state.SessionIOBinding, inputs, names, answers, host_only, torch)


def _is_torch(spec: TensorSpec) -> bool:
    dtype = DTYPES[spec.dtype]
    return dtype.torch is not None and dtype.bits >= 8 and dtype.kind != "complex"


def _torch_dtype(torch: ModuleType, spec: TensorSpec) -> Any:
    return getattr(torch, DTYPES[spec.dtype].torch or "", None)

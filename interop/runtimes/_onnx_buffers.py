"""ONNX Runtime's outputs in buffers that the caller gives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from interop.errors import ConversionError, InputError
from interop.frameworks import convert, describe, framework_of
from interop.runtimes._onnx_direct import Bound, Direct, refuse_overlap
from interop.signature import TensorSpec

__all__ = ["Buffers"]


class Buffers:
    """A binding whose outputs are the caller's own buffers, kept while the caller gives the same ones.

    Attributes:
        binding: the public one.
        bound: the quick way to bind inputs to it, if there is one.
        buffers: what outputs are bound to; held, so that no other tensor can be taken for one of them.
        busy: a run is on.
    """

    def __init__(self, binding: Any, direct: Direct | None, outputs: Sequence[TensorSpec]) -> None:
        """Start without buffers.

        Args:
            binding: a fresh public ``IOBinding``.
            direct: the session, if it has a quick way.
            outputs: of the model.
        """
        self.binding = binding
        self.bound = None if direct is None else Bound(direct, binding._iobinding)
        self.buffers: dict[str, Any] = {}
        self.busy = False
        self._outputs = outputs
        self._marks: tuple[tuple[Any, ...], ...] = ()  # name, buffer, address and shape
        self._spans: list[tuple[int, int]] = []  # first address and end

    def holds(self, out: Mapping[str, Any]) -> bool:
        """Whether exactly these buffers are bound; a torch tensor can change its memory and stay itself."""
        if len(out) != len(self._marks):
            return False
        for name, buffer, address, shape in self._marks:
            given = out.get(name)
            if given is None or given is not buffer:
                return False
            if address is not None and (given.data_ptr() != address or given.shape != shape):
                return False
        return True

    def bind(self, out: Mapping[str, Any]) -> None:
        """Bind the outputs to buffers, and those without one to memory of ONNX Runtime's own.

        Raises:
            InputError: a buffer cannot hold its output, shares memory with another, or belongs to no output.
        """
        names = [spec.name for spec in self._outputs]
        if unknown := [name for name in out if name not in names]:
            raise InputError(f"out names {unknown}; the model's outputs are {names}")
        self.buffers, self._marks, self._spans = {}, (), []
        self.binding.clear_binding_outputs()
        for spec in self._outputs:  # all of them: outputs come back in the order of binding
            if spec.name not in out:
                self.binding.bind_output(spec.name, "cpu")
                continue
            value = _buffer(spec, out[spec.name])
            self.refuse_shared([value])
            self._spans.append(_span(value))
            self.binding.bind_ortvalue_output(spec.name, value)
        if self.bound is not None:
            self.bound.forget()  # so that the inputs are held against the new buffers
            self.bound.reserved = self._spans
        self.buffers = dict(out)
        self._marks = tuple([(name, buffer, *_place(buffer)) for name, buffer in out.items()])

    def free_the_rest(self) -> None:
        """Give outputs without a buffer new memory, and let the quick way know that its inputs are not bound any more."""
        for spec in self._outputs:
            if spec.name not in self.buffers:
                self.binding.bind_output(spec.name, "cpu")
        if self.bound is not None:
            self.bound.forget()

    def refuse_shared(self, values: Iterable[Any]) -> None:
        """Raise ``InputError`` if an OrtValue shares memory with a buffer."""
        for value in values:
            refuse_overlap(*_span(value), self._spans)


def _place(buffer: Any) -> tuple[int | None, Any]:
    """Address and shape of a torch tensor; a NumPy array cannot move without a copy (``resize`` checks references)."""
    pointer = getattr(buffer, "data_ptr", None)
    return (None, None) if pointer is None else (pointer(), buffer.shape)


def _buffer(spec: TensorSpec, buffer: Any) -> Any:
    """The caller's tensor as a place to write; it must be the caller's memory and allowed to change."""
    owner = framework_of(buffer)
    if owner not in ("torch", "numpy"):
        raise InputError(
            f"out[{spec.name!r}] must be a torch or NumPy tensor, which may change; got {owner or type(buffer)}"
        )
    info = describe(buffer)
    if info.dtype != spec.dtype:
        raise InputError(f"out[{spec.name!r}] must be {spec.dtype}, got {info.dtype}")
    if spec.shape is not None and len(info.shape) != len(spec.shape):
        raise InputError(f"out[{spec.name!r}] must have {len(spec.shape)} dimensions ({spec}), got shape {info.shape}")
    if info.readonly:
        raise InputError(f"out[{spec.name!r}] cannot be written: {info.locked}")
    if owner == "torch" and buffer.requires_grad:
        raise InputError(f"out[{spec.name!r}] requires grad; give a detached tensor")
    try:
        return convert(buffer, "onnxruntime", copy=False)
    except ConversionError as error:
        raise InputError(f"out[{spec.name!r}] cannot be written in place: {error}") from error


def _span(value: Any) -> tuple[int, int]:
    """First address and end of an OrtValue."""
    start = int(value.data_ptr())
    return start, start + int(value.tensor_size_in_bytes())

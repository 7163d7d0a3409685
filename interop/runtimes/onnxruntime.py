"""ONNX Runtime: a binding by address for torch tensors in host memory, plain ``run`` for NumPy, an IOBinding for the rest.

No route copies contiguous tensors on the CPU. Plain ``run`` is the fastest public route with fresh outputs; it cannot
carry bfloat16, float8 or device memory. ``run_with_ort_values`` is never used: iterating its result costs one C++
exception, more than a small model.
"""

from __future__ import annotations

import functools
import operator
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from interop.dtypes import DTYPES, dtype_of
from interop.errors import ConversionError, InputError, InteropError, ModelFileError
from interop.extras import loaded, require
from interop.frameworks import TensorInfo, convert
from interop.runtimes._base import Runtime
from interop.runtimes._onnx_buffers import Buffers
from interop.runtimes._onnx_direct import Arrays, Bound, Direct, open_direct, open_run
from interop.runtimes._onnx_model import SIGNATURE_KEY, open_model
from interop.runtimes._operators import with_operators
from interop.runtimes._stored import read_signature
from interop.signature import Dim, Signature, TensorSpec

ort = require("onnxruntime", "to run an ONNX model")
_STATE = require("onnxruntime.capi.onnxruntime_pybind11_state", "to run an ONNX model")

__all__ = ["OnnxRuntime"]

_ORT_ERRORS: tuple[type[Exception], ...] = tuple(
    item for item in vars(_STATE).values() if isinstance(item, type) and issubclass(item, Exception)
)
_RUN_ERRORS: tuple[type[Exception], ...] = (*_ORT_ERRORS, RuntimeError, ValueError)
_NUMPY_NAMES = frozenset(name for name, dtype in DTYPES.items() if not dtype.extension and dtype.kind != "complex")
"""Dtypes that plain ``run`` takes and gives as arrays."""

_PLAIN_OUTPUTS = frozenset(
    f"tensor({name})"
    for name in "bool int8 int16 int32 int64 uint8 uint16 uint32 float16 float double".split()  # noqa: SIM905 - names
)
"""Outputs that torch takes from NumPy as they are: no strings, and not ONNX Runtime's own kind of uint64."""

_QUIET = 4  # log severity: fatal only; an error is also an exception, which says the same


class _Route(NamedTuple):
    """How inputs of one kind become arrays, and how arrays become outputs (None: as they are)."""

    takers: tuple[Callable[[Any], Any], ...]
    give: Callable[[Any], Any] | None


class OnnxRuntime(Runtime):
    """An ONNX model in an ONNX Runtime session."""

    name = "onnxruntime"
    framework = "onnxruntime"

    def __init__(self, session: Any, path: Path | None = None) -> None:
        """Wrap a session.

        Args:
            session: an ``onnxruntime.InferenceSession``.
            path: the file that it was made from.
        """
        super().__init__(_signature(session, str(path or "the model")), path)
        self.session = session
        self._names = list(self.signature.output_names)
        nodes = [*session.get_inputs(), *session.get_outputs()]
        self._bound = any(_element(node.type) not in _NUMPY_NAMES for node in nodes)
        self._plain = all(node.type in _PLAIN_OUTPUTS for node in session.get_outputs())
        self._containers = {node.name for node in nodes if not node.type.startswith("tensor(")}
        self._run = open_run(session)
        self._arrays = () if self._bound or self._containers else (Arrays(session, self.signature),)
        self._opened: tuple[Direct | None] | None = None  # not looked for yet
        self._local = threading.local()

    @classmethod
    def open(
        cls,
        model: Any,
        *,
        providers: Sequence[Any] | None = None,
        session_options: Any = None,
        threads: int | None = None,
    ) -> OnnxRuntime:
        """Load an ONNX file or an ONNX model in memory.

        Args:
            model: path, ``onnx.ModelProto``, ``onnx_ir.Model`` or serialized bytes.
            providers: execution providers in order of preference; the CPU by default.
            session_options: an ``onnxruntime.SessionOptions``, used as it is. By default threads do not spin while they
                wait (spinning slows other frameworks in the process two- to fifty-fold) and warnings are off.
            threads: threads within one operator; ONNX Runtime's own default is one a physical core.

        Raises:
            ModelFileError: not ONNX, truncated, external data outside the model's folder, or refused by ONNX Runtime.
            InputError: ``threads`` together with ``session_options``, or a provider that is not built in.
        """
        options = _session_options(session_options, threads)
        with open_model(model) as opened:
            create = functools.partial(_create, opened.source, options, providers, opened.where)
            session = with_operators(opened.source, options, create)
            try:
                return cls(session, opened.path)
            except UnicodeDecodeError as error:
                raise ModelFileError(f"{opened.where}: a name in the model is not text; the file is damaged") from error

    def run(self, inputs: Mapping[str, Any], *, out: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Run the model on flat, named tensors.

        Args:
            inputs: ``{input name: tensor}``, exactly the names of ``signature.inputs``, of any framework. A tensor that
                requires grad enters detached. Strings are NumPy arrays or lists; ONNX sequences are lists.
            out: ``{output name: tensor}`` of writable, contiguous torch or NumPy tensors of the right dtype and shape;
                they are written in place and returned. Outputs that are not named here are fresh.

        Returns:
            ``{output name: tensor}`` in the framework of the inputs; every run has its own buffers.

        Raises:
            InputError: an input or a buffer does not fit; the message names it, what was expected and what was given.
        """
        if out:
            return self._execute_into(inputs, out)
        try:
            ways = self._local.ways
        except AttributeError:  # the first run of this thread
            ways = self._quick_ways()
        try:
            for way in ways:
                outputs: dict[str, Any] | None = way.run(inputs, self._accept)
                if outputs is not None:
                    return outputs
        except InteropError:
            raise
        except _RUN_ERRORS as error:
            raise self._failure(error) from error
        owner, route = self._accept(inputs)
        return self._execute_bound(inputs, owner) if route is None else self._execute_plain(inputs, route)

    def _execute_plain(self, inputs: Mapping[str, Any], route: _Route) -> dict[str, Any]:
        try:
            feed = {name: take(value) for (name, value), take in zip(inputs.items(), route.takers)}
        except (RuntimeError, TypeError):  # a gradient or a lazy bit, which no dtype and no shape shows
            feed = {name: _to_numpy(value) for name, value in inputs.items()}
        outputs = self._guarded(self._run, self._names, feed)
        if route.give is None:
            return dict(zip(self._names, outputs))
        return {name: route.give(value) for name, value in zip(self._names, outputs)}

    def _execute(self, inputs: Mapping[str, Any], owner: str) -> dict[str, Any]:
        return self._execute_bound(inputs, owner)

    def _plan(self, inputs: Mapping[str, Any], infos: Mapping[str, TensorInfo], owner: str) -> _Route | None:
        if self._bound or any(info.device != "cpu" for info in infos.values()):
            return None
        takers = tuple(_taker(value) for value in inputs.values())
        if owner == "numpy":
            return _Route(takers, None)
        if owner == "torch" and self._plain:
            return _Route(takers, sys.modules["torch"].from_numpy)  # fresh, writable, contiguous: nothing to check
        return _Route(takers, functools.partial(_give, owner=owner))

    def _execute_bound(self, inputs: Mapping[str, Any], owner: str) -> dict[str, Any]:
        binding = vars(self._local).pop("fresh", None) or self.session.io_binding()  # a run inside a run has its own
        try:
            self._bind_inputs(binding, inputs)
            for name in self._names:  # again on every run: a kept output would be overwritten by the next one
                binding.bind_output(name, "cpu")
            self._guarded(self.session.run_with_iobinding, binding)
            return {name: self._give(name, value, owner) for name, value in zip(self._names, binding.get_outputs())}
        finally:
            binding.clear_binding_inputs()
            binding.clear_binding_outputs()
            self._local.fresh = binding

    def _execute_into(self, inputs: Mapping[str, Any], out: Mapping[str, Any]) -> dict[str, Any]:
        kept: Buffers | None = getattr(self._local, "kept", None)
        if kept is None or kept.busy:  # a run inside a run (a Python operator in the model) has its own
            kept = self._local.kept = Buffers(self.session.io_binding(), self._direct, self.signature.outputs)
        kept.busy = True
        try:
            if not kept.holds(out):
                kept.bind(out)
            if kept.bound is None or len(out) < len(self._names) or kept.bound.run(inputs, self._accept) is None:
                return self._run_into(kept, inputs)
            return {name: out[name] for name in self._names}
        except InteropError:
            raise
        except _RUN_ERRORS as error:
            raise self._misfit(inputs, out) or self._failure(error) from error
        finally:
            kept.busy = False

    def _misfit(self, inputs: Mapping[str, Any], out: Mapping[str, Any]) -> InputError | None:
        """What to say of a buffer whose shape is not the one that the inputs' sizes give."""
        infos = {name: self._describe(name, value) for name, value in inputs.items()}
        sizes = self.signature.check({name: (info.dtype, info.shape) for name, info in infos.items()})
        for spec in self.signature.outputs:
            if spec.name not in out or spec.shape is None:
                continue
            given = tuple(out[spec.name].shape)
            expected = tuple(sizes.get(dim, dim) if isinstance(dim, str) else dim for dim in spec.shape)
            if any(isinstance(dim, int) and dim != size for dim, size in zip(expected, given)):
                shape = [dim if isinstance(dim, int) else "any" for dim in expected]
                return InputError(f"out[{spec.name!r}] has shape {list(given)}, and these inputs give {shape}")
        return None

    def _run_into(self, kept: Buffers, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """By way of an OrtValue for each input, which takes any framework and any layout; some outputs may be fresh."""
        owner, binding, buffers = self._accept(inputs).owner, kept.binding, kept.buffers
        kept.free_the_rest()
        try:
            kept.refuse_shared(self._bind_inputs(binding, inputs))
            self.session.run_with_iobinding(binding)
            values = zip(self._names, binding.get_outputs())
            return {name: buffers[name] if name in buffers else self._give(name, v, owner) for name, v in values}
        finally:
            binding.clear_binding_inputs()
            kept.free_the_rest()

    def _bind_inputs(self, binding: Any, inputs: Mapping[str, Any]) -> list[Any]:
        values = [convert(value, "onnxruntime") for value in inputs.values()]
        for name, value in zip(inputs, values):
            binding.bind_ortvalue_input(name, value)
        return values

    def _give(self, name: str, value: Any, owner: str) -> Any:
        # A graph input that is listed as an output comes back as the caller's own buffer; nobody expects that.
        return convert(value, owner, copy=True if name in self.signature.input_names else None)

    def _quick_ways(self) -> tuple[Bound | Arrays, ...]:
        """This thread's own; looked for again while nobody has imported torch."""
        direct = self._direct
        torch_way = (Bound(direct),) if direct is not None and direct.answers else ()
        ways = (*torch_way, *self._arrays)
        if self._opened is not None:
            self._local.ways = ways
        return ways

    @property
    def _direct(self) -> Direct | None:
        if self._opened is None and "torch" in sys.modules:
            self._opened = (open_direct(self.session, self.signature),)
        return None if self._opened is None else self._opened[0]

    def _guarded(self, call: Callable[..., Any], *args: Any) -> Any:
        """Call what ends in ONNX Runtime, with its errors turned into ours."""
        try:
            return call(*args)
        except InteropError:
            raise
        except _RUN_ERRORS as error:
            raise self._failure(error) from error

    def _failure(self, error: Exception) -> InteropError:
        if isinstance(error, (_STATE.InvalidArgument, ValueError)) or "INVALID_ARGUMENT" in str(error):
            return InputError(f"{self.path or 'the model'} refused its inputs: {error}")
        return InteropError(f"{self.path or 'the model'} failed while it ran: {error}")

    def _describe(self, name: str, value: Any) -> TensorInfo:
        if name in self._containers:  # ONNX Runtime checks sequences and maps itself
            spec = next(spec for spec in self.signature.inputs if spec.name == name)
            return TensorInfo("numpy", spec.dtype, ())
        info = super()._describe(name, value)
        if info.refusal:
            raise InputError(f"input {name!r} is a {info.framework} tensor that cannot be read: {info.refusal}")
        return info


def _session_options(given: Any, threads: int | None) -> Any:
    if given is not None:
        if threads is not None:
            raise InputError("give threads or session_options, not both: set session_options.intra_op_num_threads")
        return given
    options = ort.SessionOptions()
    options.log_severity_level = _QUIET
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    if threads is not None:
        if threads < 1:
            raise InputError(f"threads must be at least 1, got {threads}")
        options.intra_op_num_threads = threads
    return options


def _create(source: str | bytes, options: Any, providers: Sequence[Any] | None, where: str) -> Any:
    chosen = ["CPUExecutionProvider"] if providers is None else list(providers)
    names = [item if isinstance(item, str) else item[0] for item in chosen]
    if missing := [name for name in names if name not in ort.get_available_providers()]:
        raise InputError(f"providers {missing} are not in this ONNX Runtime, which has {ort.get_available_providers()}")
    try:
        # without the fallback, which prints, and moves a failed session to other providers than the caller's
        return ort.InferenceSession(source, options, providers=chosen, enable_fallback=0)
    except _RUN_ERRORS as error:
        raise ModelFileError(f"{where}: ONNX Runtime cannot load the model: {error}") from error


def _signature(session: Any, where: str) -> Signature:
    graph = Signature(
        tuple(_spec(node, where) for node in session.get_inputs()),
        tuple(_spec(node, where) for node in session.get_outputs()),
    )
    stored = session.get_modelmeta().custom_metadata_map.get(SIGNATURE_KEY)
    return graph if stored is None else read_signature(stored, graph, where)


def _element(type_text: str) -> str:
    """``"float32"`` of ``"tensor(float)"`` and of ``"seq(tensor(float))"``."""
    text = type_text
    while "(" in text:
        text = text[text.index("(") + 1 : text.rindex(")")]
    text = text.rpartition(",")[2].strip()  # map(int64, tensor(float)): the values
    return dtype_of(_ORT_NAMES.get(text, text)).name


_ORT_NAMES = {
    "float8e4m3fn": "float8_e4m3fn",
    "float8e4m3fnuz": "float8_e4m3fnuz",
    "float8e5m2": "float8_e5m2",
    "float8e5m2fnuz": "float8_e5m2fnuz",
    "float4e2m1": "float4_e2m1fn",
}


def _spec(node: Any, where: str) -> TensorSpec:
    try:
        element = _element(node.type)
    except (ConversionError, ValueError) as error:
        raise ModelFileError(f"{where}: {node.name!r} has the type {node.type}, which is not supported") from error
    if not node.type.startswith("tensor("):
        return TensorSpec(node.name, element, None)
    dims: tuple[Dim, ...] = tuple(dim if isinstance(dim, int) else dim or None for dim in node.shape)
    return TensorSpec(node.name, element, dims)


def _taker(value: Any) -> Callable[[Any], Any]:
    """How tensors of this type and dtype become arrays without more questions."""
    if type(value) is np.ndarray and value.dtype.isnative:
        return _itself
    torch = loaded("torch")
    if torch is not None and type(value) is torch.Tensor:
        return _numpy_of
    return _to_numpy


def _itself(value: Any) -> Any:
    return value


_numpy_of = operator.methodcaller("numpy")


def _to_numpy(value: Any) -> Any:
    """A view for plain ``run``, which takes strided arrays and itself makes them contiguous."""
    if isinstance(value, list):
        strings = all(isinstance(item, str) for item in value)
        return np.array(value, dtype=object) if strings else [_to_numpy(item) for item in value]
    if isinstance(value, dict):
        return value
    if isinstance(value, np.ndarray):  # ONNX Runtime would read another byte order as its own
        array = np.asarray(value)
        return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
    return convert(value, "numpy")


def _give(value: Any, owner: str) -> Any:
    """Sequences are lists of tensors; strings, maps and absent optionals stay what ONNX Runtime gives."""
    if isinstance(value, list):
        return [_give(item, owner) for item in value]
    if not isinstance(value, np.ndarray) or value.dtype.kind in "OUS":
        return value
    if value.dtype == np.uint64:
        value = value.view(np.uint64)  # ONNX Runtime says "unsigned long long", which torch does not know
    return convert(value, owner)

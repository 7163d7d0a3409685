"""Python operators inside ONNX Runtime, by onnxruntime-extensions.

That library ends the process when a Python operator raises, gives every result to Python's lists and back, and keeps
registered operators where a later registration moves them from under a running session. What is here lives with all three:
nothing raises into it, results go over as arrays, and each domain holds one operator (``interop.operators._files``).
"""

from __future__ import annotations

import contextlib
import mmap
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from interop.dtypes import DTYPES
from interop.errors import InteropError
from interop.extras import require
from interop.operators._call import Call
from interop.operators._errors import OperatorError
from interop.operators._files import DOMAIN, Stored, carrier, domain_of
from interop.operators._operator import REGISTRY, find, run

__all__ = ["with_operators"]

_MARK = DOMAIN.encode() + b"."
_PURPOSE = "to run a model with Python operators in it"
_TYPES = {"float32": "float", "float64": "double"}
_LOCK = threading.Lock()
_REGISTERED: dict[str, Any] = {}
_HANDED: weakref.WeakKeyDictionary[Any, frozenset[str]] = weakref.WeakKeyDictionary()
"""Session options that have the library, with the domains it had then."""


def with_operators(source: str | bytes, options: Any, create: Callable[[], Any]) -> Any:
    """Make a session, with the Python operators that the model asks for.

    Args:
        source: path or bytes of the model.
        options: the ``SessionOptions``; the operators' library is registered with it where it is needed.
        create: makes the session.

    Raises:
        OperatorError: an operator is not defined in this process; the message says which, and where it was defined.
        MissingExtraError: onnxruntime-extensions is not installed.
    """
    if not _is_marked(source):
        return create()
    found = list(_stored(source))
    if not found:
        return create()
    for stored in found:
        _require_defined(stored)
    extensions = require("onnxruntime_extensions", _PURPOSE)
    for stored in found:
        _register(extensions, stored)
    _hand_over(extensions, options, {_domain(stored) for stored in found})
    return _Guarded(create())


def _domain(stored: Stored) -> str:
    return domain_of(stored.operator, stored.input_types.split(), stored.output_types.split())


def _hand_over(extensions: Any, options: Any, needed: set[str]) -> None:
    """Register the library with session options: they take it once, with the operators of that moment."""
    with _LOCK:
        known = _HANDED.get(options)
        if known is None:
            options.register_custom_ops_library(extensions.get_library_path())
            _HANDED[options] = frozenset(_REGISTERED)
        elif not needed <= known:
            raise OperatorError(
                "these session_options were used for a model before this one's operators were known; make fresh SessionOptions"
            )


def _is_marked(source: str | bytes) -> bool:
    """Whether the domain's name is anywhere in the model: quick, and right for nearly all models, which have none."""
    if isinstance(source, bytes):
        return _MARK in source
    with Path(source).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(_MARK) >= 0


def _stored(source: str | bytes) -> Iterator[Stored]:
    onnx = require("onnx", _PURPOSE)
    model = (
        onnx.load_model_from_string(source)
        if isinstance(source, bytes)
        else onnx.load(source, load_external_data=False)
    )
    graphs = [model.graph.node, *(function.node for function in model.functions)]
    while graphs:
        for node in graphs.pop():
            graphs += [attribute.g.node for attribute in node.attribute if attribute.HasField("g")]
            if node.domain.startswith(_MARK.decode()):
                yield _read(node)


def _read(node: Any) -> Stored:
    texts = {attribute.name: attribute.s.decode(errors="replace") for attribute in node.attribute}
    try:
        stored = Stored(*(texts[name] for name in Stored._fields))
        Call.from_text(stored.call)
        known = all(carrier(dtype) in DTYPES for dtype in [*stored.input_types.split(), *stored.output_types.split()])
    except KeyError as error:
        raise OperatorError(f"the node {node.name!r} of {node.domain} lacks the attribute {error}") from error
    if not known or node.domain != _domain(stored):
        raise OperatorError(
            f"the node {node.name!r} says one thing of its types in its domain and another in its attributes"
        )
    return stored


def _require_defined(stored: Stored) -> None:
    if stored.operator in REGISTRY:
        return
    place = (
        "define it in this program"
        if stored.module in ("", "__main__")
        else f"import {stored.module}, which defined it"
    )
    raise OperatorError(
        f"the model calls the operator {stored.operator!r}, which runs in Python and is not defined in this process; {place}, "
        "then load the model again"
    )


def _register(extensions: Any, stored: Stored) -> None:
    """Tell ONNX Runtime of an operator with these types, once."""
    inputs, outputs = stored.input_types.split(), stored.output_types.split()
    domain = _domain(stored)
    with _LOCK:
        if domain in _REGISTERED:
            return
        declare = extensions.onnx_op(
            op_type=f"{domain}::{stored.operator}",
            inputs=[_element(extensions, dtype) for dtype in inputs],
            outputs=[_element(extensions, dtype) for dtype in outputs],
            attrs=dict.fromkeys(Stored._fields, extensions.PyCustomOpDef.dt_string),
        )
        _REGISTERED[domain] = declare(_call)


def _element(extensions: Any, dtype: str) -> int:
    name = carrier(dtype)
    found = getattr(extensions.PyCustomOpDef, f"dt_{_TYPES.get(name, name)}", None)
    if found is None or DTYPES[name].extension:
        raise OperatorError(
            f"onnxruntime-extensions has no Python operators of {dtype}; cast to float32 before the operator"
        )
    return int(found)


class _Result:
    """An array in the words by which the library asks a result for its content."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self._array = np.ascontiguousarray(array)
        self.shape = array.shape

    def flatten(self) -> _Result:
        return self

    def tolist(self) -> np.ndarray[Any, Any]:
        return self._array


def _call(*arrays: Any, **attributes: str) -> tuple[_Result, ...]:
    """What ONNX Runtime calls. It must not raise: the error is kept, and raised by the session."""
    stored = Stored(**attributes)
    outputs = stored.output_types.split()
    try:
        return tuple(map(_Result, _results(stored, arrays, outputs)))
    except BaseException as error:  # noqa: BLE001 - what leaves here ends the process
        _FAILURES.keep(error)
        return tuple(_Result(np.zeros(0, DTYPES[carrier(dtype)].numpy)) for dtype in outputs)


def _results(stored: Stored, arrays: Sequence[Any], outputs: Sequence[str]) -> Iterator[Any]:
    given = [array.astype(DTYPES[dtype].numpy, copy=False) for array, dtype in zip(arrays, stored.input_types.split())]
    results = run(find(stored.operator), Call.from_text(stored.call), given, "numpy")
    found = [result.dtype.name for result in results]
    if found != list(outputs):
        raise OperatorError(f"{stored.operator!r} gave {found}, and gave {list(outputs)} when the model was exported")
    return (result.astype(DTYPES[carrier(dtype)].numpy, copy=False) for result, dtype in zip(results, outputs))


class _Failures:
    """Errors of operators, by the thread that ran them: mostly the one that called the session."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[int] = set()
        self._errors: dict[int, BaseException] = {}

    def keep(self, error: BaseException) -> None:
        with self._lock:
            self._errors.setdefault(threading.get_ident(), error)

    @contextlib.contextmanager
    def raised(self) -> Iterator[None]:
        """Raise what an operator raised meanwhile: in this thread, or in one of ONNX Runtime's own."""
        own = threading.get_ident()
        with self._lock:
            self._running.add(own)
            self._errors.pop(own, None)
        failure: Exception | None = None
        try:
            yield
        except Exception as error:  # noqa: BLE001 - raised again below, unless an operator was the cause of it
            failure = error
        with self._lock:
            self._running.discard(own)
            threads = [own, *(thread for thread in self._errors if thread not in self._running)]
            errors = [self._errors.pop(thread) for thread in threads if thread in self._errors]
        if errors:
            cause = errors[0]
            if not isinstance(cause, Exception):
                raise cause
            raise InteropError(f"a Python operator of the model failed: {type(cause).__name__}: {cause}") from cause
        if failure is not None:
            raise failure


_FAILURES = _Failures()


class _Guarded:
    """A session that raises what its Python operators raised."""

    def __init__(self, session: Any) -> None:
        self._session = session

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # no way around ``run`` to the session beneath
            raise AttributeError(name)
        return getattr(self._session, name)

    def run(self, names: Sequence[str] | None, feed: Mapping[str, Any], options: Any = None) -> Any:
        with _FAILURES.raised():
            return self._session.run(names, feed, options)

    def run_with_iobinding(self, binding: Any, options: Any = None) -> None:
        with _FAILURES.raised():
            self._session.run_with_iobinding(binding, options)

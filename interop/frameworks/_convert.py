"""One decision (``plan``) for every pair, dtype and layout; ``explain`` reports it and ``convert`` carries it out."""

from __future__ import annotations

from typing import Any

import numpy as np

from interop.dtypes import DTYPES
from interop.errors import ConversionError, CopyRequiredError
from interop.frameworks._guard import open_guard
from interop.frameworks._info import Explanation, Framework, Shortcut, TensorInfo, Verdict
from interop.frameworks._memory import fresh, regular, unlocked
from interop.frameworks._table import framework, owner_of
from interop.frameworks._tree import map_tensors

__all__ = ["convert", "describe", "explain", "plan"]

_SHORTCUTS: dict[str, dict[type, Shortcut]] = {}
"""Target -> plain type of the source -> the shortcut of the pair; filled at its first conversion."""
_ASKED: set[tuple[str, type]] = set()
"""Pairs whose shortcut was asked for, also where there is none."""


def convert(x: Any, to: str, *, copy: bool | None = None, guard: bool = False) -> Any:
    """Hand a tensor, or every tensor of a nested structure, to another framework.

    The result has the same values and the same dtype, bit for bit, or there is an error; nothing is narrowed, reordered
    or shared that must not be. What comes out is a plain dense tensor. A view keeps the memory of its source alive.

    * Gradients do not cross: a tensor that requires grad (or a forward-mode dual) crosses by its values, detached.
    * Variables of TensorFlow and Keras cross by a copy of their present value, as their memory moves on assignment.
    * TensorFlow and JAX tensors are immutable in their own framework, but a view of one in torch or ONNX Runtime can be
      written to and the write is seen there; NumPy views of them are read-only. TensorFlow scalars are copied, because
      TensorFlow hands out one cached buffer for equal constants.
    * Read-only NumPy memory is copied for frameworks that cannot mark memory read-only.

    Args:
        x: a tensor, or a dict, list, tuple, named tuple or dataclass with tensors in it, to any depth; other leaves are
            left as they are.
        to: ``"torch"``, ``"tensorflow"``, ``"numpy"``, ``"onnxruntime"``, ``"jax"``, ``"cupy"`` or a third party's.
        copy: None copies only where needed, False never, True always (into memory that shares nothing with the source).
        guard: watch the memory that the result shares, if any, until the open ``interop.guard()`` closes; a NumPy result
            is read-only then. Memory that is watched already is checked first.

    Returns:
        The tensor in the other framework, or the structure rebuilt with converted tensors. A tensor that is already
        there is returned itself, with its graph, unless ``copy=True``.

    Raises:
        ConversionError: it cannot cross, or ``x`` is no tensor at all, or ``to`` is no framework.
        CopyRequiredError: ``copy=False`` and only a copy can cross.
        AliasingError: ``guard=True``, and watched memory was written to.
        MissingExtraError: the framework is not installed.

    Example:
        >>> convert(torch.ones(2, 3), "numpy").shape
        (2, 3)
    """
    if guard:
        return _convert_guarded(x, to, copy)
    if copy is None or copy is False:
        try:
            result = _SHORTCUTS[to][type(x)](x)
        except KeyError:
            result = None
        if result is not None:
            return result
    source = owner_of(type(x))
    target = framework(to)
    return _convert_tree(x, to, copy) if source is None else _convert_one(x, source, target, copy)


def explain(x: Any, to: str, *, copy: bool | None = None) -> Any:
    """Say what ``convert`` would do with the same arguments, and why, without doing it.

    Args:
        x: a tensor or a nested structure of tensors.
        to: the target framework.
        copy: as in ``convert``.

    Returns:
        An ``Explanation``; for a structure, the structure with an ``Explanation`` for each tensor.

    Raises:
        ConversionError: ``x`` is no tensor at all, or ``to`` is no framework.
        MissingExtraError: the framework is not installed.

    Example:
        >>> print(explain(np.ones((2, 3))[:, ::-1], "torch"))
        numpy -> torch float64[2, 3]: copy, torch has no negative strides
    """
    source = owner_of(type(x))
    target = framework(to)
    if source is None:
        return map_tensors(lambda leaf: explain(leaf, to, copy=copy), x)
    return plan(x, source.describe(x), source, target, copy)


def describe(x: Any) -> TensorInfo:
    """Describe a tensor of any framework: dtype, shape, and what crossing to another one depends on.

    Raises:
        ConversionError: ``x`` is no tensor.
    """
    source = owner_of(type(x))
    if source is None:
        raise ConversionError(f"{type(x).__name__} is not a tensor of a loaded framework; numpy.asarray(x) makes one")
    return source.describe(x)


def plan(x: Any, info: TensorInfo, source: Framework, target: Framework, copy: bool | None) -> Explanation:
    """Decide how a tensor crosses.

    Args:
        x: the tensor.
        info: its description.
        source: its framework.
        target: the framework asked for.
        copy: as in ``convert``.
    """
    if not (copy is None or copy is True or copy is False):
        raise ConversionError(f"copy is None (if needed), False (never) or True (always), got {copy!r}")
    verdict, error = _decide(x, info, source, target), ConversionError
    if verdict.outcome == "view" and copy is True:
        verdict = Verdict("copy", "a copy was asked for")
    elif verdict.outcome == "copy" and copy is False:
        verdict = Verdict("refuse", f"only a copy can cross: {verdict.reason}; allow it with copy=None")
        error = CopyRequiredError
    refused = error if verdict.outcome == "refuse" else None
    return Explanation(info.framework, target.NAME, verdict.outcome, verdict.reason, info.dtype, info.shape, refused)


def _decide(x: Any, info: TensorInfo, source: Framework, target: Framework) -> Verdict:
    """What is needed, before the caller's wish about copies."""
    if info.refusal:
        return Verdict("refuse", info.refusal)
    if source is target:
        return _decide_same(x, info)
    verdict = target.takes(info.dtype)
    if verdict.outcome == "refuse":
        return verdict
    if info.unshareable:
        return Verdict("copy", info.unshareable)
    if verdict.outcome == "copy":
        return verdict
    needed = _needed(x, info, source, target)
    return Verdict("copy", needed) if needed else Verdict("view", "the memory is shared")


def _decide_same(x: Any, info: TensorInfo) -> Verdict:
    if isinstance(x, np.generic):
        return Verdict("copy", info.unshareable)
    return Verdict("view", f"it is a {info.framework} tensor already")


def _needed(x: Any, info: TensorInfo, source: Framework, target: Framework) -> str:
    """Why the target cannot take this memory as it is; empty where it can."""
    needs, name = target.NEEDS, target.NAME
    if info.device != "cpu" and not target.reaches(info.device):
        return f"the memory is on {info.device}, which {name} cannot reach here"
    if info.device == "cpu" and not needs.host:
        return f"{name} holds no host memory"
    if needs.writable and info.locked:
        return info.locked
    if needs.contiguous and not info.contiguous:
        return f"{name} takes only row-major memory without gaps"
    if needs.forward and info.strides is not None and min(info.strides) < 0:
        return f"{name} has no negative strides"
    alignment = DTYPES[info.dtype].bits // 8 if info.dtype in needs.natural else needs.alignment
    if alignment > 1 and info.size and source.address(x) % alignment:
        return f"the address is not a multiple of the {alignment} bytes that {name}'s kernels need for {info.dtype}"
    return ""


def _convert_tree(x: Any, to: str, copy: bool | None) -> Any:
    """A function of its own, because a closure in ``convert`` would cost every call."""
    return map_tensors(lambda leaf: convert(leaf, to, copy=copy), x)


def _convert_guarded(x: Any, to: str, copy: bool | None) -> Any:
    watcher = open_guard()
    watcher.check()

    def cross(leaf: Any) -> Any:
        shared = explain(leaf, to, copy=copy).outcome == "view"
        result = convert(leaf, to, copy=copy)
        if not shared or result is leaf:
            return result
        if isinstance(result, np.ndarray):  # a view of ours: here a write can be refused where it happens
            result.flags.writeable = False
        watcher.watch(leaf, result)
        return result

    return map_tensors(cross, x) if owner_of(type(x)) is None else cross(x)


def _convert_one(x: Any, source: Framework, target: Framework, copy: bool | None) -> Any:
    """Decide, then cross; remember the shortcut of the pair for the next call."""
    info = source.describe(x)
    planned = plan(x, info, source, target, copy)
    if planned.error is not None:
        raise planned.error(f"{planned}")
    _remember_shortcut(type(x), source, target)
    if source is target:
        return source.clone(source.settle(x)) if planned.copies else source.settle(x)
    if info.device != "cpu" and target.reaches(info.device):
        return target.from_capsule(source.to_capsule(source.clone(x) if planned.copies else x))
    array = regular(source.to_array(x))
    if planned.copies:
        array = fresh(array)
    elif target.NEEDS.writable:
        array = unlocked(array)
    return target.from_array(array)


def _remember_shortcut(kind: type, source: Framework, target: Framework) -> None:
    pair = target.NAME, kind
    if pair in _ASKED or kind is not source.PLAIN or source is target:
        return
    _ASKED.add(pair)
    shortcut = source.shortcut(target)
    if shortcut is not None:
        _SHORTCUTS.setdefault(target.NAME, {})[kind] = shortcut

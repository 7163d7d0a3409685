"""Forms: what the values at the joints of a graph (both ends of a branch, both ends of a loop) must agree on.

TensorFlow's conditionals and loops carry flat tensors of fixed dtypes. A form says which tensors carry a value; ``join_forms``
finds the form that serves two values, by giving up what differs: a dim, a rank, a known length, a known presence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from exporters.tensorflow._sequences import Optional, StaticSequence, TensorSequence, as_tensors, merge_shapes

__all__ = ["Form", "TensorForm", "form_of", "is_tensor", "join_forms", "pack", "pack_all", "shapes_of", "unpack_all"]


@dataclass(frozen=True)
class TensorForm:
    """A tensor; ``shape`` is a tuple with None for free dims, or None for a free rank."""

    dtype: tf.DType
    shape: tuple[int | None, ...] | None


@dataclass(frozen=True)
class ListForm:
    """A sequence of known length."""

    dtype: tf.DType
    items: tuple[TensorForm, ...]


@dataclass(frozen=True)
class SequenceForm:
    """A sequence of any length; ``element`` is None as long as nothing was put in."""

    dtype: tf.DType
    element: TensorForm | None


@dataclass(frozen=True)
class AbsentForm:
    """An empty optional."""


@dataclass(frozen=True)
class OptionalForm:
    """An optional that may be empty."""

    value: TensorForm | SequenceForm


Form = TensorForm | ListForm | SequenceForm | AbsentForm | OptionalForm


def form_of(value: Any) -> Form:
    """The form of a value."""
    if value is None:
        return AbsentForm()
    if isinstance(value, StaticSequence):
        return ListForm(value.dtype, tuple(_tensor_form(item.dtype, item.shape) for item in value))
    if isinstance(value, TensorSequence):
        element = None if value.shape is None else _tensor_form(value.dtype, value.shape)
        return SequenceForm(value.dtype, element)
    if isinstance(value, Optional):
        return OptionalForm(_free(form_of(value.value)))
    return _tensor_form(value.dtype, value.shape)


def _tensor_form(dtype: tf.DType, shape: tf.TensorShape) -> TensorForm:
    return TensorForm(dtype, None if shape.rank is None else tuple(shape.as_list()))


def _free(form: Form) -> TensorForm | SequenceForm:
    """The form of what an optional holds, with a length that may change."""
    if isinstance(form, ListForm):
        return SequenceForm(form.dtype, _join_elements(form.items))
    assert isinstance(form, TensorForm | SequenceForm)
    return form


def join_forms(one: Form, other: Form) -> Form:
    """The form that serves both.

    Raises:
        TypeError: there is none; the dtypes differ, or one is a tensor and one a sequence.
    """
    if one == other:
        return one
    optionals = (AbsentForm, OptionalForm)
    if isinstance(one, optionals) or isinstance(other, optionals):
        held = [f.value if isinstance(f, OptionalForm) else f for f in (one, other) if not isinstance(f, AbsentForm)]
        joined = _free(held[0]) if len(held) == 1 else _free(join_forms(*held))
        return OptionalForm(joined)
    if one.dtype != other.dtype or isinstance(one, TensorForm) != isinstance(other, TensorForm):
        raise TypeError(f"two values that meet have different types: {one} and {other}")
    if isinstance(one, TensorForm) and isinstance(other, TensorForm):
        return _join_tensors(one, other)
    if isinstance(one, ListForm) and isinstance(other, ListForm) and len(one.items) == len(other.items):
        return ListForm(one.dtype, tuple(map(_join_tensors, one.items, other.items)))
    one, other = _free(one), _free(other)
    assert isinstance(one, SequenceForm) and isinstance(other, SequenceForm)
    elements = [form.element for form in (one, other) if form.element is not None]
    return SequenceForm(one.dtype, _join_elements(elements))


def _join_elements(forms: Sequence[TensorForm]) -> TensorForm | None:
    if not forms:
        return None
    shape = merge_shapes([tf.TensorShape(form.shape) for form in forms])
    assert shape is not None
    return _tensor_form(forms[0].dtype, shape)


def _join_tensors(one: TensorForm, other: TensorForm) -> TensorForm:
    joined = _join_elements([one, other])
    assert joined is not None
    return joined


def pack_all(values: Sequence[Any], forms: Sequence[Form]) -> list[Any]:
    """The flat tensors that carry values."""
    return [tensor for value, form in zip(values, forms) for tensor in pack(value, form)]


def pack(value: Any, form: Form) -> list[Any]:
    """The tensors that carry one value in a form that serves it."""
    if isinstance(form, AbsentForm):
        return []
    if isinstance(form, OptionalForm):
        present = value.present if isinstance(value, Optional) else tf.constant(value is not None)
        held = value.value if isinstance(value, Optional) else value
        return [present, *pack(_stand_in(form.value) if held is None else held, form.value)]
    if isinstance(form, ListForm):
        return list(value)
    return [as_tensors(value).handle] if isinstance(form, SequenceForm) else [value]


def _stand_in(form: TensorForm | SequenceForm) -> Any:
    if isinstance(form, SequenceForm):
        return TensorSequence.empty(form.dtype)
    shape = [dim or 0 for dim in form.shape or ()]
    return tf.fill(shape, "") if form.dtype == tf.string else tf.zeros(shape, form.dtype)


def shapes_of(forms: Sequence[Form]) -> list[tf.TensorShape]:
    """The shapes of the flat tensors, as a loop's invariants."""
    return [shape for form in forms for shape in _shapes(form)]


def _shapes(form: Form) -> list[tf.TensorShape]:
    if isinstance(form, AbsentForm):
        return []
    if isinstance(form, OptionalForm):
        return [tf.TensorShape([]), *_shapes(form.value)]
    if isinstance(form, ListForm):
        return [tf.TensorShape(item.shape) for item in form.items]
    return [tf.TensorShape([])] if isinstance(form, SequenceForm) else [tf.TensorShape(form.shape)]


def unpack_all(tensors: Sequence[Any], forms: Sequence[Form]) -> list[Any]:
    """The values that flat tensors carry."""
    rest = iter(tensors)
    return [_unpack(rest, form) for form in forms]


def _unpack(rest: Iterator[Any], form: Form) -> Any:
    if isinstance(form, AbsentForm):
        return None
    if isinstance(form, OptionalForm):
        present = next(rest)
        return Optional(present, _unpack(rest, form.value))
    if isinstance(form, ListForm):
        return StaticSequence([next(rest) for _ in form.items], form.dtype)
    if isinstance(form, SequenceForm):
        shape = None if form.element is None else tf.TensorShape(form.element.shape)
        return TensorSequence(next(rest), form.dtype, shape)
    return next(rest)


def is_tensor(form: Form) -> bool:
    """Whether a form is that of a plain tensor."""
    return isinstance(form, TensorForm)

"""Live TensorFlow models (Keras models, tf.Modules, tf.functions) as one concrete function of named tensors."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from interop.dtypes import dtype_of
from interop.errors import InputError
from interop.extras import loaded, require
from interop.frameworks import convert, framework_of
from interop.signature import Signature, TensorSpec
from interop.structure import Constant, Leaf, Node, Structure, fill

tf = require("tensorflow", "to run a TensorFlow model")

__all__ = ["MissingExampleError", "live_function"]


class MissingExampleError(InputError):
    """A model in memory does not say what it takes, and no example call was given."""


_PLAIN = (type(None), bool, int, float, str)
_TRACING_ERRORS = (ValueError, TypeError, tf.errors.OpError)


@dataclass
class _Call:
    """How a model is called.

    Attributes:
        function: the callable.
        args: specs of the positional arguments, nested as they like.
        kwargs: specs of the keyword arguments.
        parameters: names of the positional parameters.
        output_names: names of the outputs, where the model has some.
    """

    function: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    parameters: Sequence[str] = ()
    output_names: Sequence[str] = ()


def live_function(model: Any, inputs: Any = None) -> tuple[Any, dict[str, Any]]:
    """The concrete function that calls a model, and its signature and name map as ``METADATA_FILE`` has them.

    Inputs are called as the model calls them: the names of Keras inputs, the keys of a dict, the parameters of a function.

    Args:
        model: a Keras model, a ``tf.function``, a ``ConcreteFunction``, or a ``tf.Module`` that can be called.
        inputs: an example call where the model does not say what it takes: a tensor, a tuple of arguments, or a dict; dim 0 of
            each tensor becomes free where the model allows it.

    Raises:
        InputError: the model does not say what it takes, or gives something else than tensors.
    """
    call = _call_of(model, inputs)
    try:
        return _traced(call)
    except _TRACING_ERRORS as error:
        if inputs is None:
            raise InputError(f"{_name_of(model)} cannot be traced: {str(error)[:500]}") from error
    try:
        return _traced(_call_of(model, inputs, free_batch=False))
    except _TRACING_ERRORS as error:
        raise InputError(f"{_name_of(model)} cannot be traced with these inputs: {str(error)[:500]}") from error


def _traced(call: _Call) -> tuple[Any, dict[str, Any]]:
    specs: dict[str, Any] = {}
    parameters = [*call.parameters, *(f"input_{position}" for position in range(len(call.parameters), len(call.args)))]
    arguments = Node("tuple", tuple(_placed(value, (name,), specs) for name, value in zip(parameters, call.args)))
    keywords = Node("dict", tuple(_placed(v, (k,), specs) for k, v in call.kwargs.items()), tuple(call.kwargs))
    safe = {name: f"input_{position}" for position, name in enumerate(specs)}
    results: list[tuple[Structure, tuple[TensorSpec, ...]]] = []

    def serve(**tensors: Any) -> dict[str, Any]:
        named = {name: tensors[key] for name, key in safe.items()}
        given = call.function(*fill(arguments, named), **fill(keywords, named))
        found: dict[str, Any] = {}
        structure = _result(given, (), found, list(call.output_names))
        results.append((structure, tuple(_output_spec(name, value) for name, value in found.items())))
        return {f"output_{position}": tf.identity(value) for position, value in enumerate(found.values())}

    declared = {safe[name]: tf.TensorSpec(spec.shape, spec.dtype, name=safe[name]) for name, spec in specs.items()}
    function = tf.function(serve, autograph=False).get_concrete_function(**declared)
    structure, outputs = results[-1]
    flat = tuple(_output_spec(name, spec) for name, spec in specs.items())
    signature = Signature(flat, outputs, arguments, keywords, structure, tuple(parameters))
    names = {"inputs": safe, "outputs": {spec.name: f"output_{n}" for n, spec in enumerate(outputs)}}
    return function, {"signature": signature.to_json(), "names": names}


def _placed(value: Any, path: tuple[str, ...], found: dict[str, Any]) -> Structure:
    """A nested argument as a structure; its specs are added under their names."""
    if isinstance(value, Mapping):
        return Node("dict", tuple(_placed(v, (*path, str(k)), found) for k, v in value.items()), tuple(value))
    if isinstance(value, (list, tuple)):
        kind = "list" if isinstance(value, list) else "tuple"
        return Node(kind, tuple(_placed(v, (*path, str(n)), found) for n, v in enumerate(value)))
    if isinstance(value, _PLAIN):
        return Constant(value)
    own = getattr(value, "name", None) if _is_keras_tensor(value) and not _is_key(path) else None
    name = _free(own or _short(path, found), "_".join(path), found)
    found[name] = value
    return Leaf(name)


def _is_key(path: tuple[str, ...]) -> bool:
    return len(path) > 1 and not path[-1].isdigit()


def _short(path: tuple[str, ...], taken: Mapping[str, Any]) -> str:
    """The key of a dict stands alone where nothing else has that name."""
    return path[-1] if _is_key(path) and path[-1] not in taken else "_".join(path)


def _free(name: str, longer: str, taken: Mapping[str, Any]) -> str:
    if name not in taken:
        return name
    numbered = (f"{longer}_{number}" for number in range(1, len(taken) + 2))
    return next(other for other in (longer, *numbered) if other not in taken)


def _result(value: Any, path: tuple[str, ...], found: dict[str, Any], own: list[str]) -> Structure:
    """A nested result as a structure; its tensors are added under their names, the model's own first."""
    if isinstance(value, Mapping):
        return Node("dict", tuple(_result(v, (*path, str(k)), found, []) for k, v in value.items()), tuple(value))
    if isinstance(value, (list, tuple)):
        kind = "list" if isinstance(value, list) else "tuple"
        return Node(kind, tuple(_result(v, (*path, str(n)), found, own) for n, v in enumerate(value)))
    if isinstance(value, _PLAIN):
        return Constant(value)
    if (
        not tf.is_tensor(value)
        or not hasattr(value, "get_shape")
        or isinstance(value, (tf.RaggedTensor, tf.SparseTensor))
    ):
        raise InputError(f"the model gives a {type(value).__name__}; only dense tensors are supported")
    joined = "_".join(path)
    plain = f"output_{joined}".rstrip("_") if not joined or joined[0].isdigit() else joined
    name = _free(own.pop(0) if own else plain, plain, found)
    found[name] = value
    return Leaf(name)


def _output_spec(name: str, value: Any) -> TensorSpec:
    shape = tf.TensorShape(value.shape)
    dims = None if shape.rank is None else tuple(shape.as_list())
    return TensorSpec(name, dtype_of(tf.as_dtype(value.dtype)).name, dims)


def _call_of(model: Any, inputs: Any, *, free_batch: bool = True) -> _Call:
    keras = loaded("keras")
    if keras is not None and isinstance(model, keras.Model):
        return _keras_call(model, inputs, free_batch)
    function = model if hasattr(model, "get_concrete_function") or _is_concrete(model) else _method_of(model)
    declared = _declared(function)
    if declared is None and inputs is not None:
        return _example_call(function, _parameters_of(function), inputs, free_batch)
    if declared is None:
        raise MissingExampleError(
            f"{_name_of(model)} does not say what it takes; give its tf.function an input_signature, or an example: inputs="
        )
    args, kwargs = declared
    return _Call(function, args, kwargs, _parameters_of(function)[: len(args)])


def _keras_call(model: Any, inputs: Any, free_batch: bool) -> _Call:
    parameters = _parameters_of(model.call)
    inner = getattr(model, "_functional", None) or model  # a Sequential keeps its graph there
    names = tuple(getattr(inner, "output_names", ()))
    if getattr(inner, "inputs", None):
        structure = _plain(inner.input)
        alone = isinstance(structure, (list, tuple)) and len(structure) == 1
        return _Call(model, (structure[0] if alone else structure,), parameters=("inputs",), output_names=names)
    if inputs is not None:
        return _example_call(model, parameters, inputs, free_batch)
    shapes = model.get_build_config() or {}
    shapes = shapes.get("shapes_dict") or {"input_shape": shapes.get("input_shape")}
    if not model.built or None in shapes.values():
        raise MissingExampleError(
            f"{_name_of(model)} was never called and does not say what it takes; give an example: inputs="
        )
    args = tuple(_from_shapes(shape, model.input_dtype) for shape in shapes.values())
    return _Call(model, args, parameters=parameters, output_names=names)


def _plain(structure: Any) -> Any:
    """Containers of Keras as those of Python."""
    if isinstance(structure, Mapping):
        return {key: _plain(value) for key, value in structure.items()}
    if isinstance(structure, (list, tuple)):
        items = [_plain(value) for value in structure]
        return items if isinstance(structure, list) else tuple(items)
    return structure


def _from_shapes(shapes: Any, dtype: str) -> Any:
    if isinstance(shapes, Mapping):
        return {key: _from_shapes(value, dtype) for key, value in shapes.items()}
    if any(not isinstance(item, (int, type(None))) for item in shapes):
        return [_from_shapes(value, dtype) for value in shapes]
    return tf.TensorSpec([None, *shapes[1:]], dtype)


def _example_call(function: Any, parameters: Sequence[str], inputs: Any, free_batch: bool) -> _Call:
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = {}
    batch = (
        next((size for size in map(_rows_of, tf.nest.flatten(inputs)) if size is not None), None)
        if free_batch
        else None
    )
    if isinstance(inputs, Mapping) and set(inputs) <= set(parameters):
        kwargs = {name: _spec_of(inputs[name], batch) for name in parameters if name in inputs}
    else:
        given = inputs if isinstance(inputs, tuple) else (inputs,)
        args = tuple(_spec_of(value, batch) for value in given)
    return _Call(function, args, kwargs, tuple(parameters)[: len(args)])


def _rows_of(value: Any) -> int | None:
    """The size of dim 0."""
    shape: Any = getattr(value, "shape", ())
    return int(shape[0]) if len(shape) else None


def _spec_of(value: Any, batch: int | None) -> Any:
    """The spec of an example tensor; dim 0 is free where it is the batch."""
    if isinstance(value, Mapping):
        return {key: _spec_of(item, batch) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_spec_of(item, batch) for item in value)
    if framework_of(value) is None:
        return value
    tensor = convert(value, "tensorflow")
    dims = tensor.shape.as_list()
    return tf.TensorSpec([None, *dims[1:]] if dims and dims[0] == batch else dims, tensor.dtype)


def _declared(function: Any) -> tuple[tuple[Any, ...], Mapping[str, Any]] | None:
    """The specs that a tf.function or a concrete function declares."""
    if _is_concrete(function):
        args, kwargs = function.structured_input_signature
        return tuple(args), dict(kwargs)
    signature = getattr(function, "input_signature", None)
    return None if signature is None else (tuple(signature), {})


def _method_of(model: Any) -> Any:
    """The ``__call__`` of a module, or the one tf.function that it has."""
    if callable(model):
        return model.__call__
    found = list(_functions(model))
    if len(found) == 1:
        return found[0]
    raise InputError(
        f"{_name_of(model)} cannot be called and has {len(found)} functions; give the tf.function itself, such as model.serve"
    )


def _functions(model: Any) -> Iterator[Any]:
    for name in dir(type(model)):
        if not name.startswith("_") and hasattr(getattr(type(model), name), "get_concrete_function"):
            yield getattr(model, name)


def _parameters_of(function: Any) -> tuple[str, ...]:
    if _is_concrete(function):
        return tuple(function.function_type.parameters)
    python = getattr(function, "python_function", function)
    kinds = inspect.Parameter
    found = inspect.signature(python).parameters.values()
    named = [p.name for p in found if p.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)]
    return tuple(name for name in named if name not in ("self", "training"))


def _is_concrete(function: Any) -> bool:
    return hasattr(function, "structured_input_signature") and hasattr(function, "graph")


def _is_keras_tensor(value: Any) -> bool:
    keras = loaded("keras")
    return keras is not None and isinstance(value, keras.KerasTensor)


def _name_of(model: Any) -> str:
    return str(getattr(model, "__name__", type(model).__qualname__))

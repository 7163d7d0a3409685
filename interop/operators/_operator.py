"""A function written in one framework, called with the tensors of any."""

from __future__ import annotations

import functools
import importlib
import re
import weakref
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from interop.dtypes import DTYPES
from interop.extras import loaded
from interop.frameworks import convert, describe, framework_of
from interop.operators._call import Call, call_of
from interop.operators._errors import OperatorError
from interop.operators._pack import Skeleton, pack, unpack

__all__ = ["FRAMEWORKS", "REGISTRY", "Operator", "find", "is_differentiable", "operator", "register", "run"]

FRAMEWORKS: dict[str, str] = {
    "torch": "interop.operators.torch",
    "tensorflow": "interop.operators.tensorflow",
    "jax": "interop.operators.jax",
    "numpy": "interop.operators.numpy",
}
"""What a body may be written in -> the module that differentiates, infers and calls there."""

_PASSIVE = ("numpy", "onnxruntime")
"""Frameworks without gradients: their tensors among others are constants, and decide only where they are alone."""

REGISTRY: weakref.WeakValueDictionary[str, Operator] = weakref.WeakValueDictionary()
"""The operators of this process by name, as long as somebody holds them."""

_CACHE_LIMIT = 1024

_NAME = re.compile(r"[A-Za-z_]\w*")


class Operator:
    """A function that takes and gives tensors of any framework; made by ``interop.operator``.

    Attributes:
        function: the body.
        framework: what it is written in.
        name: under which graphs and ONNX files know it.
        shape: the caller's own shape function, or None.
        override: the caller's own gradient, or None.
        once: whether gradients of gradients are refused, because they would miss something.
    """

    autograph_info__: Any = {}  # AutoGraph leaves what has this as it is

    def __init__(self, function: Callable[..., Any], framework: str, name: str, shape: Any = None) -> None:
        self.function = function
        self.framework = framework
        self.name = name
        self.shape = shape
        self.override: Callable[..., Any] | None = None
        self.once = False
        self._skeletons: dict[str, Skeleton] = {}
        self._cache: dict[Any, Any] = {}
        functools.update_wrapper(self, function, updated=())  # a module or a tf.function has attributes of its own

    def __repr__(self) -> str:
        return f"<operator {self.name}, written in {self.framework}>"

    @property
    def framework_module(self) -> ModuleType:
        """The module that knows the body's framework."""
        return module_of(self.framework)

    def gradient(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Decorate the gradient of this operator, in place of the one that the body's framework derives.

        Args:
            function: takes the cotangent of the result (nested as the result is; None for integers) and then the
                arguments of the body; gives one gradient a tensor argument, None where there is none. It is written in the
                body's framework, whose own rules differentiate it further.

        Example:
            >>> @scaled.gradient
            ... def _(cotangent, x, factor):
            ...     return cotangent * factor
        """
        self.override = function
        self._cache.clear()
        return function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the body with tensors of any framework; the answer is in the framework of the caller's tensors."""
        if _is_traced_by_dynamo():
            return _call_traced(self, args, kwargs)
        tensors: list[Any] = []
        skeleton = pack((args, kwargs), tensors, _is_tensor)
        owner = _owner(tensors) or self.framework
        if owner == self.framework and (self.override is None or owner == "numpy" or _is_exporting()):
            args, kwargs = unpack(skeleton, [_into(tensor, owner) for tensor in tensors])
            return self.function(*args, **kwargs)
        call = call_of(skeleton)
        results = apply(self, call, [_into(tensor, owner) for tensor in tensors], owner)
        return unpack(self.skeleton_of(call), results)

    def at(self, call: Call) -> Callable[..., list[Any]]:
        """The function of flat tensors that a call stands for, in the body's framework."""
        found: Callable[..., list[Any]] = self.cached(call, lambda: self._derived(call))
        return found

    def _derived(self, call: Call) -> Callable[..., list[Any]]:
        if self.once and len(call.derivatives) > 1:
            raise OperatorError(
                f"{self.name!r} can be differentiated once: the gradient of its gradient would lack its variables"
            )
        function: Callable[..., list[Any]] = functools.partial(_run_body, self, call)
        for order, (inputs, wrt) in enumerate(call.derivatives):
            if order == 0 and self.override is not None:
                function = functools.partial(_run_override, self, call, inputs, wrt)
            else:
                function = self.framework_module.differentiate(self, function, inputs, wrt)
        return function

    def cached(self, key: Any, make: Callable[[], Any]) -> Any:
        """What was made for a key before; it lives no longer than the operator."""
        if key not in self._cache:
            if len(self._cache) >= _CACHE_LIMIT:
                self._cache.clear()
            self._cache[key] = make()
        return self._cache[key]

    def record(self, call: Call, skeleton: Skeleton) -> None:
        """Remember how the results of a call nest; the oldest is forgotten."""
        self._skeletons.pop(call.text, None)
        self._skeletons[call.text] = skeleton
        if len(self._skeletons) > _CACHE_LIMIT:
            self._skeletons.pop(next(iter(self._skeletons)), None)

    def skeleton_of(self, call: Call) -> Skeleton:
        """How the results of a call nest, which was carried out or inferred just before."""
        return self._skeletons[call.text]


def operator(
    framework: str, *, name: str | None = None, shape: Callable[..., Any] | None = None
) -> Callable[[Callable[..., Any]], Operator]:
    """Make a function over one framework's tensors an operator for the tensors of all.

    The tensors cross by ``interop.convert``: without a copy where the memory allows it. The result comes back in the
    caller's framework and can be differentiated there, any number of times, as far as the body can. It works inside
    ``tf.function``, under ``torch.compile`` and ``torch.export``, and in ``jax.jit``.

    The body must be a function of its arguments alone: it runs again for the gradient, and graphs may run it any number of
    times. It must not write to its inputs.

    Args:
        framework: what the body is written in: ``"torch"``, ``"tensorflow"``, ``"jax"`` or ``"numpy"``. NumPy has no
            gradients: give one with ``Operator.gradient``.
        name: the name in graphs and files; the function's own by default.
        shape: tells the results' dtypes and shapes where the body's framework cannot (NumPy, sizes that depend on values). It
            takes the body's arguments, with an ``interop.TensorSpec`` for each tensor, and gives them for the results; an
            unknown size is None.

    Returns:
        A decorator. The operator takes tensors, None, bool, int, float and str, by position or name, also nested in tuples,
        lists and dicts, and gives tensors, nested the same ways. Tensors of several frameworks may be mixed: the first that
        is not NumPy's or ONNX Runtime's decides, and only gradients of its framework flow.

    Raises:
        OperatorError: the framework is unknown, or the name is taken by another function.

    Example:
        >>> @interop.operator("tensorflow")
        ... def edges(images):
        ...     return tf.image.sobel_edges(images)
        >>> edges(torch.rand(1, 8, 8, 3, requires_grad=True)).sum().backward()
    """
    if framework not in FRAMEWORKS:
        raise OperatorError(f"an operator is written in {', '.join(FRAMEWORKS)}; got {framework!r}")

    def decorate(function: Callable[..., Any]) -> Operator:
        made = Operator(function, framework, str(name or getattr(function, "__name__", "operator")), shape)
        register(made)
        if loaded("torch") is not None:  # now, and not at the first call: a saved program may be loaded before
            module_of("torch").define(made.name)
        return made

    return decorate


def register(made: Operator) -> None:
    """Let graphs and files find an operator by its name."""
    if not _NAME.fullmatch(made.name):
        raise OperatorError(f"an operator's name is a Python identifier, got {made.name!r}; give another with name=")
    old = REGISTRY.get(made.name)
    if old is not None and _origin(old.function) != _origin(made.function):
        raise OperatorError(
            f"the operator {made.name!r} is defined by {'.'.join(_origin(old.function))} already; give this one another name="
        )
    REGISTRY[made.name] = made


def _origin(function: Any) -> tuple[str, str]:
    return getattr(function, "__module__", ""), getattr(function, "__qualname__", repr(function))


def find(name: str) -> Operator:
    """The operator of a name.

    Raises:
        OperatorError: nobody defined it in this process.
    """
    found = REGISTRY.get(name)
    if found is None:
        raise OperatorError(f"no operator {name!r} is defined in this process; import the module that defines it")
    return found


def module_of(framework: str) -> ModuleType:
    """The module of a framework, which is imported by it."""
    return importlib.import_module(FRAMEWORKS[framework])


def apply(made: Operator, call: Call, tensors: Sequence[Any], owner: str) -> list[Any]:
    """Carry out a call, differentiable in the caller's framework where that has gradients."""
    if owner in FRAMEWORKS and owner != "numpy":
        return list(module_of(owner).apply(made, call, tensors))
    return run(made, call, tensors, owner)


def run(made: Operator, call: Call, tensors: Sequence[Any], owner: str) -> list[Any]:
    """Carry out a call now, on real tensors, without gradients.

    Args:
        made: the operator.
        call: how it is called.
        tensors: of any framework.
        owner: the framework to answer in.
    """
    given = [convert(tensor, made.framework) for tensor in tensors]
    return [convert(result, owner) for result in made.at(call)(*given)]


def _run_body(made: Operator, call: Call, *tensors: Any) -> list[Any]:
    args, kwargs = unpack(call.arguments, tensors)
    results: list[Any] = []
    skeleton = pack(made.function(*args, **kwargs), results, _is_tensor)
    for result in results:
        if framework_of(result) != made.framework:
            raise OperatorError(
                f"the body of {made.name!r} is written in {made.framework} and gave a {framework_of(result)} tensor; "
                f"return {made.framework} tensors"
            )
    made.record(call, skeleton)
    return [np.asarray(result) for result in results] if made.framework == "numpy" else results


def _run_override(made: Operator, call: Call, inputs: int, wrt: tuple[int, ...], *tensors: Any) -> list[Any]:
    assert made.override is not None
    forward = call_of(call.arguments)
    dtypes = tuple(describe(tensor).dtype for tensor in tensors[:inputs])
    skeleton, floats = made.cached(("nesting", forward, dtypes), lambda: _nesting(made, forward, tensors[:inputs]))
    upstream = iter(tensors[inputs:])
    cotangents = [next(upstream) if real else None for real in floats]
    args, kwargs = unpack(call.arguments, tensors[:inputs])
    given = made.override(unpack(skeleton, cotangents), *args, **kwargs)
    gradients = list(given) if isinstance(given, (tuple, list)) else [given]
    if len(gradients) != inputs:
        raise OperatorError(
            f"the gradient of {made.name!r} must give one value a tensor argument ({inputs}, None where there is none), "
            f"got {len(gradients)}"
        )
    zeros = made.framework_module.zeros_like
    return [zeros(tensors[index]) if gradients[index] is None else gradients[index] for index in wrt]


def _nesting(made: Operator, forward: Call, tensors: Sequence[Any]) -> tuple[Skeleton, list[bool]]:
    """How the results for tensors of these dtypes nest, and which of them have gradients: by running the body once."""
    results = _run_body(made, forward, *tensors)
    return made.skeleton_of(forward), [is_differentiable(describe(result).dtype) for result in results]


def is_differentiable(dtype: str) -> bool:
    """Whether gradients of this dtype exist."""
    return dtype in DTYPES and DTYPES[dtype].kind in ("float", "complex")


def _is_tensor(value: Any) -> bool:
    return framework_of(value) is not None


def _owner(tensors: Sequence[Any]) -> str | None:
    owners = [str(framework_of(tensor)) for tensor in tensors]
    return next((owner for owner in owners if owner not in _PASSIVE), owners[0] if owners else None)


def _into(tensor: Any, owner: str) -> Any:
    return tensor if framework_of(tensor) == owner else convert(tensor, owner)


def _is_traced_by_dynamo() -> bool:
    torch = loaded("torch")
    return torch is not None and torch.compiler.is_dynamo_compiling()


def _is_exporting() -> bool:
    torch = loaded("torch")
    return torch is not None and torch.compiler.is_exporting()


def _call_traced(made: Operator, args: Any, kwargs: Any) -> Any:
    """The same call in a form that TorchDynamo can trace; it knows these three functions by their marks."""
    from interop.operators import torch as traced

    if made.framework == "torch" and (made.override is None or _is_exporting()):
        return made.function(*args, **kwargs)
    tensors: list[Any] = []
    text = traced.text_of(pack((args, kwargs), tensors, traced.is_tensor))
    traced.define(made.name)
    results = getattr(traced.namespace, made.name).default(tensors, text)
    return unpack(traced.skeleton_of(made.name, text), results)

"""Captum's attributions on any model, and how far they agree across runtimes.

Perturbation methods (FeatureAblation, Occlusion, ShapleyValueSampling, KernelShap, Lime, ...) call the model only, so they take
whatever ``interop.load`` opens. Gradient methods (Saliency, IntegratedGradients, ...) take torch models, and TensorFlow models
through ``interop.as_torch_module``.

Source: https://captum.ai/api/
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from interop.errors import InputError
from interop.extras import require
from interop.parity.witness import evaluating
from interop.runtimes import load

__all__ = ["AttributionComparison", "AttributionReport", "attribute", "compare_attributions"]

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class AttributionComparison:
    """The attributions of one model against those of the reference, for one input.

    Attributes:
        candidate: the model's label.
        input: the input's name, or its position where it has none.
        correlation: Pearson's, over all elements; 1.0 where both are constant and equal, NaN where one alone is constant.
        top_k_overlap: of the ``top_k`` elements with the largest magnitude, the part that both share; mean over the samples.
        max_difference: largest absolute difference.
        scale: largest magnitude of the reference's attributions.
    """

    candidate: str
    input: str
    correlation: float
    top_k_overlap: float
    max_difference: float
    scale: float


@dataclass(frozen=True)
class AttributionReport:
    """Attributions of several models by one method.

    Attributes:
        method: Captum's name of it.
        reference: the label of the model that the others are compared with.
        attributions: ``{label: {input: array of the input's shape}}``.
        comparisons: one a candidate and input.
    """

    method: str
    reference: str
    attributions: Mapping[str, Mapping[str, Array]]
    comparisons: tuple[AttributionComparison, ...]

    def __str__(self) -> str:
        header = (self.method, "input", "correlation", "top-k overlap", "max difference", "scale")
        rows = [
            (
                one.candidate,
                one.input,
                f"{one.correlation:.6f}",
                f"{one.top_k_overlap:.1%}",
                f"{one.max_difference:.2e}",
                f"{one.scale:.2e}",
            )
            for one in self.comparisons
        ]
        widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in [header, *rows]]
        return "\n".join([*lines, f"compared with {self.reference}"])


def attribute(
    model: Any, method: str | type, inputs: Any, *, output: str | int | None = None, seed: int = 0, **arguments: Any
) -> dict[str, Any]:
    """Attribute a model's answer to its inputs.

    Args:
        model: what ``interop.load`` takes: a torch module (explained in evaluation mode), a model file, an exported model, a
            runtime.
        method: the name of a class of ``captum.attr`` (``"Occlusion"``), or the class.
        inputs: a torch tensor, a tuple of positional arguments, or ``{input name: tensor}``; axis 0 is the batch.
        output: which output, by name or position; needed where the model has several.
        seed: of the methods that draw at random; the process's own random state is left as it was.
        **arguments: of the method's ``attribute``, such as ``target=labels``, ``baselines=0``, ``n_steps=50`` or
            ``sliding_window_shapes=(1, 3, 3)``.

    Returns:
        ``{input: torch tensor of the input's shape}``; the key is the name where inputs were given by name, else the position.

    Raises:
        InputError: no such method, one that needs gradients or layers that this model does not have, or no such output.
        MissingExtraError: Captum is not installed.

    Example:
        >>> attribute("digits.onnx", "FeatureAblation", images, target=labels)
    """
    cls = _method_of(method)
    names, tensors = _flatten(inputs)
    call = _callable_for(cls, model)
    named = isinstance(inputs, Mapping)

    def forward(*args: Any) -> Any:
        result = call(**dict(zip(names, args))) if named else call(*args)
        return _select(result, output)

    torch = require("torch", "to explain a model")
    made = cls(call if _wants_module(cls) else forward)
    with _seeded(torch, seed), _evaluating(torch, call), torch.set_grad_enabled(_needs_gradient(cls)):
        found = made.attribute(tensors, **arguments)
    found = found if isinstance(found, tuple) else (found,)
    return {name: value.detach() for name, value in zip(names, found)}


def compare_attributions(
    models: Mapping[str, Any],
    method: str | type,
    inputs: Any,
    *,
    top_k: int = 10,
    output: str | int | None = None,
    seed: int = 0,
    **arguments: Any,
) -> AttributionReport:
    """Attribute with every model and compare with the first.

    Args:
        models: ``{label: model}``; the first is the reference.
        method: as for ``attribute``, as are ``inputs``, ``output``, ``seed`` and the further arguments.
        inputs: for every model.
        top_k: how many of the most important elements of a sample to compare.
        output: which output.
        seed: the same draws for every model.
        **arguments: of the method's ``attribute``.

    Returns:
        Figures and attributions; judging them is up to the caller.

    Raises:
        InputError: fewer than two models, or as ``attribute``.

    Example:
        >>> print(compare_attributions({"torch": model, "onnx": "digits.onnx"}, "Occlusion", images, target=3,
        ...                            sliding_window_shapes=(1, 3, 3)))
    """
    if len(models) < 2:
        raise InputError('give at least two models: {"torch": model, "onnx": "model.onnx"}')
    if top_k < 1:
        raise InputError(f"top_k is how many elements to compare, at least 1, got {top_k}")
    found = {
        label: {
            name: value.cpu().numpy()
            for name, value in attribute(model, method, inputs, output=output, seed=seed, **arguments).items()
        }
        for label, model in models.items()
    }
    reference, *candidates = found
    comparisons = tuple(
        _compare(label, name, expected, found[label][name], top_k)
        for label in candidates
        for name, expected in found[reference].items()
    )
    return AttributionReport(_method_of(method).__name__, reference, found, comparisons)


def _compare(candidate: str, name: str, expected: Array, given: Array, top_k: int) -> AttributionComparison:
    left, right = expected.astype(np.float64), given.astype(np.float64)
    return AttributionComparison(
        candidate,
        name,
        _correlation(left.ravel(), right.ravel()),
        _overlap(left, right, top_k),
        float(np.abs(left - right).max(initial=0.0)),
        float(np.abs(left).max(initial=0.0)),
    )


def _correlation(left: Array, right: Array) -> float:
    left, right = left - left.mean(), right - right.mean()
    sizes = float(np.linalg.norm(left)), float(np.linalg.norm(right))
    if not any(sizes):
        return 1.0
    return float(left @ right / (sizes[0] * sizes[1])) if all(sizes) else float("nan")


def _overlap(left: Array, right: Array, top_k: int) -> float:
    left, right = (np.abs(side).reshape(len(side) if side.ndim > 1 else 1, -1) for side in (left, right))
    count = min(top_k, left.shape[1])
    best = [np.argsort(-side, axis=1, kind="stable")[:, :count] for side in (left, right)]
    return float(np.mean([len(np.intersect1d(*pair)) / count for pair in zip(*best)]))


def _method_of(method: str | type) -> type:
    require("captum", "to explain a model")
    import captum.attr

    cls = getattr(captum.attr, method, None) if isinstance(method, str) else method
    if not (isinstance(cls, type) and issubclass(cls, captum.attr.Attribution)):
        raise InputError(f'{method!r} is no attribution method of captum.attr; give "FeatureAblation", "Saliency", ...')
    required = [
        name
        for name, item in list(inspect.signature(cls).parameters.items())[1:]
        if item.default is item.empty and item.kind is item.POSITIONAL_OR_KEYWORD
    ]
    if required:
        raise InputError(f"{cls.__name__} also needs {', '.join(required)}; use captum.attr.{cls.__name__} itself")
    return cls


def _needs_gradient(cls: type) -> bool:
    import captum.attr

    return issubclass(cls, captum.attr.GradientAttribution) or _wants_module(cls)


def _wants_module(cls: type) -> bool:
    """Whether it hooks the layers inside a module: a function is not enough for it."""
    return next(iter(inspect.signature(cls).parameters)) == "model"


def _callable_for(cls: type, model: Any) -> Callable[..., Any]:
    if not _needs_gradient(cls):
        return load(model)
    runtime = load(model)
    name = cls.__name__
    if runtime.framework not in ("torch", "tensorflow"):
        raise InputError(
            f"{name} needs gradients and {runtime!r} computes none; use a perturbation method such as FeatureAblation, or the "
            "torch module or the SavedModel of this model"
        )
    if _wants_module(cls) and runtime.framework != "torch":
        raise InputError(
            f"{name} reads the layers of a torch module, which {runtime!r} has not; use the torch original"
        )
    from interop.operators import as_torch_module

    made: Callable[..., Any] = as_torch_module(model)
    return made


def _flatten(inputs: Any) -> tuple[tuple[str, ...], tuple[Any, ...]]:
    if isinstance(inputs, Mapping):
        names, tensors = tuple(inputs), tuple(inputs.values())
    else:
        tensors = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
        names = tuple(map(str, range(len(tensors))))
    torch = require("torch", "to explain a model")
    if not tensors or not all(isinstance(tensor, torch.Tensor) for tensor in tensors):
        raise InputError(
            f'inputs are torch tensors, got {[type(t).__name__ for t in tensors]}; interop.convert(x, "torch") makes them'
        )
    return names, tensors


def _select(result: Any, output: str | int | None) -> Any:
    """One tensor of what a model answers."""
    if hasattr(result, "dim"):
        return result
    values = list(result.values()) if isinstance(result, Mapping) else list(result)
    names = list(map(str, result)) if isinstance(result, Mapping) else list(map(str, range(len(values))))
    if output is None and len(values) == 1:
        return values[0]
    if isinstance(output, int) and -len(values) <= output < len(values):
        return values[output]
    if output in names:
        return values[names.index(str(output))]
    raise InputError(f"the model has outputs {names}; say which one to explain: output={names[0]!r}, got {output!r}")


def _evaluating(torch: Any, call: Any) -> contextlib.AbstractContextManager[None]:
    """A torch module is explained as it is exported: without dropout; afterwards it is in its own mode."""
    module = getattr(call, "module", call)
    return evaluating(module) if isinstance(module, torch.nn.Module) else contextlib.nullcontext()


@contextlib.contextmanager
def _seeded(torch: Any, seed: int) -> Iterator[None]:
    """The same draws every time; afterwards torch's and NumPy's random states are as before."""
    before = np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        np.random.seed(seed % 2**32)
        try:
            yield
        finally:
            np.random.set_state(before)

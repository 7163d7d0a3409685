"""What can be asked for outputs: a torch module (also in other precisions) or a runtime, behind one call.

A module knows no names for its outputs; it is asked under the names of the model that it is compared with. Nothing here
changes the module: it runs in evaluation mode with its state passed in, buffers as copies, and its modes are put back.
"""

from __future__ import annotations

import contextlib
import copy
import gc
import inspect
import itertools
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from interop.errors import InputError, InteropError
from interop.extras import loaded, require
from interop.parity.figures import as_numpy
from interop.parity.quantized import moved_versions
from interop.parity.variants import Variant
from interop.signature import Signature
from interop.structure import Leaf, Node, Structure, fill, pick

__all__ = [
    "ModuleWitness",
    "RuntimeWitness",
    "StructureError",
    "Witness",
    "evaluating",
    "keep_rng",
    "naming_of",
    "positional_names",
    "witness_of",
]

Array = npt.NDArray[Any]


_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class StructureError(InputError):
    """The reference's output is not nested as the candidate's signature says."""


class Witness(Protocol):
    """A model that outputs can be asked of."""

    name: str
    signature: Signature | None
    path: Path | None

    def run(
        self, tensors: Mapping[str, Any], naming: Signature | None, variant: Variant | None = None
    ) -> dict[str, Array]:
        """Outputs as NumPy arrays, under the names that ``naming`` gives.

        Args:
            tensors: ``{input name: tensor}``; the model gets private copies.
            naming: the signature whose names and structures are used; a runtime has its own.
            variant: other arithmetic than the model's own, which a ``ModuleWitness`` can do.
        """


def witness_of(model: Any) -> Witness:
    """A module or exported program as a ``ModuleWitness``, anything else that ``interop.load`` takes as a runtime.

    Raises:
        ModelFileError: the file is not a model.
    """
    from interop.runtimes import load

    runtime = load(model)
    module, torch = getattr(runtime, "module", None), loaded("torch")
    if torch is None or not isinstance(module, torch.nn.Module):
        is_path = isinstance(model, (str, os.PathLike))
        return RuntimeWitness(runtime, model if is_path else None, None if is_path else model)
    # A live module says nothing of its inputs before it is called; an exported program does.
    return ModuleWitness(module, None if module is model else runtime.signature)


def naming_of(reference: Witness, candidate: Witness) -> Signature | None:
    """The names that a candidate is compared under: its own, with the reference's nesting where it has none."""
    naming, own = candidate.signature or reference.signature, reference.signature
    if naming is None or own is None or naming.arguments is not None:
        return naming
    if set(naming.input_names) != set(own.input_names):
        own = _renamed(own, naming)
    if own is None:
        return naming
    return replace(naming, arguments=own.arguments, keywords=own.keywords, parameter_names=own.parameter_names)


def _renamed(own: Signature, naming: Signature) -> Signature | None:
    """A nesting under a file's names, which are in the order of the leaves; None where that cannot be.

    torch.onnx calls an input that is an output too ``x_orig``; a name that both have must be in one place.
    """
    names, wanted = own.input_names, naming.input_names
    if len(names) != len(wanted) or any((a in wanted or b in names) and a != b for a, b in zip(names, wanted)):
        return None
    renames = dict(zip(names, wanted))
    arguments = None if own.arguments is None else _rename(own.arguments, renames)
    return replace(own, arguments=arguments, keywords=_rename(own.keywords, renames))


def _rename(node: Node, names: Mapping[str, str]) -> Node:
    def rename(child: Structure) -> Structure:
        return (
            _rename(child, names)
            if isinstance(child, Node)
            else Leaf(names[child.name])
            if isinstance(child, Leaf)
            else child
        )

    return replace(node, children=tuple(map(rename, node.children)))


class RuntimeWitness:
    """A model that a runtime executes.

    Args:
        runtime: the runtime.
        source: the file that it was loaded from for this check alone, or None where it is the caller's.
        origin: the model in memory that it was loaded from, or None.
    """

    def __init__(self, runtime: Any, source: str | os.PathLike[str] | None = None, origin: Any = None) -> None:
        self._runtime, self._source, self._origin = runtime, source, origin
        self.name = str(getattr(runtime, "name", type(runtime).__name__))
        self.signature: Signature | None = getattr(runtime, "signature", None)
        self.path: Path | None = getattr(runtime, "path", None)
        self._moved: tuple[int, list[Any]] | None = None

    def moved(self, seed: int) -> list[RuntimeWitness]:
        """The model with its constants moved by rounding, where it is a quantised file: see ``interop.parity.quantized``."""
        if self._moved is None or self._moved[0] != seed:
            self._moved = seed, []
            with contextlib.suppress(InteropError):  # a constant says a size: it is measured as any other model
                self._moved[1].extend(map(RuntimeWitness, moved_versions(self.path or self._origin, seed)))
        return self._moved[1]

    @property
    def runtime(self) -> Any:
        """The runtime; what was released is loaded again."""
        if self._runtime is None:
            from interop.runtimes import load

            self._runtime = load(self._source)
        return self._runtime

    def release(self) -> None:
        """Give the weights back until the next run, where they can be loaded again."""
        self._moved = None
        if self._source is not None:
            self._runtime = None
            gc.collect()  # a runtime and its bindings know each other

    def run(
        self, tensors: Mapping[str, Any], naming: Signature | None = None, variant: Variant | None = None
    ) -> dict[str, Array]:
        """See ``Witness``; the runtime's own names are used."""
        copies = {name: np.array(as_numpy(value), copy=True, order="C") for name, value in tensors.items()}
        return {name: as_numpy(value) for name, value in self.runtime.run(copies).items()}


class ModuleWitness:
    """A torch module, run on its own state or on the state that a variant makes of it."""

    def __init__(self, module: Any, signature: Signature | None = None) -> None:
        self.module = module
        self.name = "torch"
        self.signature = signature
        self.path: Path | None = None

    def run(
        self, tensors: Mapping[str, Any], naming: Signature | None = None, variant: Variant | None = None
    ) -> dict[str, Array]:
        """See ``Witness``.

        Args:
            tensors: as there.
            naming: as there.
            variant: other arithmetic, or None for the module as it is.
        """
        values = self.prepare(tensors)
        if variant is not None:
            values = {name: variant.prepare(value) for name, value in values.items()}
        args, kwargs = self.arguments(values, naming)
        torch = require("torch", "to run a module")
        with contextlib.ExitStack() as stack:
            # Eager is the reference; and torch.cond, which compiles its branches, cannot compile under a dispatch mode.
            stack.enter_context(torch.compiler.set_stance("force_eager"))
            stack.enter_context(keep_rng(0))  # a model that draws numbers draws the same ones in every variant
            stack.enter_context(evaluating(self.module))
            stack.enter_context(torch.no_grad())
            if variant is not None:
                stack.enter_context(variant.active())
            output = self._call(args, kwargs, variant)
        return {name: as_numpy(_to_host(value)) for name, value in _name_outputs(output, naming).items()}

    def prepare(self, tensors: Mapping[str, Any]) -> dict[str, Any]:
        """Private torch copies on the module's device."""
        return {name: _to_torch(value, self._device()) for name, value in tensors.items()}

    def record(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Learn from a call how its arguments are nested, where they are and nothing says so yet.

        Keywords may also be the flat names of a file, which ``forward`` knows nothing of: those teach nothing.
        """
        if self.signature is not None or not self._is_nested(args, kwargs):
            return
        torch = require("torch", "to run a module")
        from interop.runtimes.torch import TorchRuntime

        def private(value: Any) -> Any:
            return _to_torch(value, self._device()) if hasattr(value, "shape") else copy.deepcopy(value)

        runtime = TorchRuntime(self.module)
        with (
            keep_rng(0),
            evaluating(self.module),
            contextlib.suppress(Exception),
        ):  # the run itself will say what is wrong
            runtime._record(*torch.utils._pytree.tree_map(private, (tuple(args), dict(kwargs))))
            self.signature = runtime.signature

    def accepts(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """True where ``forward`` can be called like that."""
        return self._bound(args, kwargs) is not None

    def _bound(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> inspect.BoundArguments | None:
        try:
            return inspect.signature(self.module.forward).bind(*args, **kwargs)
        except (TypeError, ValueError):
            return None

    def _is_nested(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """True for a call of ``forward`` that a list of tensors cannot make."""
        bound = self._bound(args, kwargs)
        if bound is None:
            return False
        parameters = bound.signature.parameters
        loose = any(parameters[name].kind is inspect.Parameter.VAR_KEYWORD for name in bound.arguments)
        return loose or any(not hasattr(value, "shape") for value in (*args, *kwargs.values()))

    def _call(self, args: Sequence[Any], kwargs: Mapping[str, Any], variant: Variant | None) -> Any:
        torch = require("torch", "to run a module")
        if isinstance(self.module, torch.jit.ScriptModule):
            if variant is not None:
                raise TypeError("a TorchScript module runs in its own precision only")
            return self.module(*args, **kwargs)
        state: dict[str, Any] = dict(self.module.named_parameters())
        state |= {name: buffer.clone() for name, buffer in self.module.named_buffers()}
        if variant is not None:
            state = variant.prepare_state(state)
        return torch.func.functional_call(self.module, state, tuple(args), dict(kwargs))

    def _device(self) -> Any:
        states = itertools.chain(self.module.parameters(), self.module.buffers())
        return next((tensor.device for tensor in states), None)

    def arguments(self, values: Mapping[str, Any], naming: Signature | None) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """The arguments of a call, nested as the signature says."""
        if naming is not None and naming.arguments is not None:
            from interop.runtimes._rebuild import rebuild

            return fill(naming.arguments, values, rebuild), fill(naming.keywords, values, rebuild)
        if naming is not None and naming.inputs:
            naming.check_names(values)
            values = {name: values[name] for name in naming.input_names}
        parameters = inspect.signature(self.module.forward).parameters
        if all(name in parameters and parameters[name].kind in _NAMED for name in values):
            return (), values
        return list(values.values()), {}


@contextlib.contextmanager
def keep_rng(seed: int) -> Iterator[None]:
    """Seed the global random generators inside, and leave the caller's state as it was."""
    torch = loaded("torch")
    states = random.getstate(), np.random.get_state()  # models may draw from NumPy's global state
    with contextlib.ExitStack() as stack:
        if torch is not None:
            devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else []
            stack.enter_context(torch.random.fork_rng(devices))
        seed_all(seed)
        try:
            yield
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])


def seed_all(seed: int) -> None:
    """Seed the global generators that a model may draw from; only inside ``keep_rng``."""
    if (torch := loaded("torch")) is not None:
        torch.default_generator.manual_seed(seed)  # torch.manual_seed also queues a seed for devices not yet in use
        if torch.cuda.is_initialized():
            torch.cuda.manual_seed_all(seed)
    random.seed(seed)
    np.random.seed(seed)


@contextlib.contextmanager
def evaluating(module: Any) -> Iterator[None]:
    """Evaluation mode inside; afterwards every submodule's attributes are what they were.

    Modes, counters, and what a list, dict or set among the attributes holds are put back. Tensors among them that are
    neither parameters nor buffers are not copied.
    """
    torch = require("torch", "to run a module")
    parts = [part for part in module.modules() if not isinstance(part, torch.jit.ScriptModule)]
    kept = [(part, dict(vars(part)), _containers(part)) for part in parts]
    modes = [(part, part.training) for part in module.modules()]
    for part, _ in modes:
        part.training = False
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training
        for part, attributes, containers in kept:
            _put_back(vars(part), attributes)
            for value, content in containers:
                _refill(value, content)


def _containers(part: Any) -> list[tuple[Any, Any]]:
    return [(value, copy.copy(value)) for value in vars(part).values() if type(value) in (list, dict, set)]


def _put_back(current: dict[str, Any], attributes: Mapping[str, Any]) -> None:
    for name in [name for name in current if name not in attributes]:
        del current[name]
    for name, value in attributes.items():
        if name not in current or current[name] is not value:
            current[name] = value


def _refill(value: Any, content: Any) -> None:
    if isinstance(value, list):
        value[:] = content
    elif isinstance(value, set):
        value.clear()
        value.update(content)
    else:
        _put_back(value, content)


def _to_torch(value: Any, device: Any) -> Any:
    """A private torch copy on the module's device; what is no tensor (a flag, a nested value) is deep-copied."""
    torch = require("torch", "to run a module")
    if isinstance(value, torch.Tensor):
        copied = value.detach().clone()
    elif isinstance(value, (np.ndarray, np.generic)) or hasattr(value, "__dlpack__"):
        from interop.frameworks import convert

        copied = convert(value, "torch", copy=True)
    else:
        return copy.deepcopy(value)
    return copied if device is None else copied.to(device)


def _to_host(value: Any) -> Any:
    torch = require("torch", "to run a module")
    return value.detach().cpu() if isinstance(value, torch.Tensor) else value


def _name_outputs(output: Any, naming: Signature | None) -> dict[str, Any]:
    """A module's output as ``{name: tensor}``."""
    if naming is not None and naming.results is not None:
        try:
            return pick(naming.results, output, "the reference's output")
        except InputError as error:
            raise StructureError(f"it was exported with other outputs: {error}") from error
    from interop.runtimes._torch_tree import named_leaves

    torch = require("torch", "to run a module")
    found = {name: leaf for name, leaf in named_leaves(output, "output") if isinstance(leaf, torch.Tensor)}
    if naming is None or len(naming.outputs) != len(found):
        return found
    return dict(zip(naming.output_names, found.values()))


def positional_names(witness: Witness, count: int) -> list[str]:
    """Names for positional inputs where no signature gives any: the parameters of the module's ``forward``."""
    if not isinstance(witness, ModuleWitness):
        raise InputError(f"{witness.name} has no signature; give inputs by name")
    parameters = [
        name
        for name, parameter in inspect.signature(witness.module.forward).parameters.items()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    return parameters[:count] if len(parameters) >= count else [f"input_{position}" for position in range(count)]

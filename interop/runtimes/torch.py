"""torch: a live module, an ``ExportedProgram``, or an archive written by ``torch.export.save``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree

from interop.dtypes import dtype_of
from interop.errors import InputError, ModelFileError
from interop.frameworks import convert, framework_of
from interop.runtimes._base import Runtime, owner_of
from interop.runtimes._torch_archive import LOAD_ERRORS, load_archive, stored_names
from interop.runtimes._torch_package import PackageRuntime, is_package
from interop.runtimes._torch_tree import flat_names, leaf_or_constant, named_leaves, parameter_names_of, structure_of
from interop.signature import Dim, Signature, TensorSpec
from interop.structure import Constant, Leaf, Node, Structure, fill

__all__ = ["ExportedProgramRuntime", "TorchRuntime", "flat_names"]


class TorchRuntime(Runtime):
    """A live ``nn.Module``.

    A module declares no dtypes and shapes, so ``signature`` is recorded: from ``example_inputs()`` where the module has
    it, else from the first call; its dims are then unknown (None) and only names are checked before a run. The module
    keeps its training or evaluation mode, and runs without gradients unless ``grad=True``.
    """

    name = "torch"
    framework = "torch"

    def __init__(self, module: torch.nn.Module, *, grad: bool = False, path: Path | None = None) -> None:
        super().__init__(None, path)
        self.module = module
        self._grad = grad

    @classmethod
    def open(
        cls, model: Any, *, grad: bool = False, allow_pickle: bool = False, allow_native_code: bool = False
    ) -> Runtime:
        """Wrap a module or program, or load a file.

        Args:
            model: ``nn.Module``, ``ExportedProgram``, the path of a ``torch.export`` archive, or a folder that
                ``export_model(..., "libtorch")`` wrote.
            grad: keep gradients, as plain torch would; default is inference under ``torch.no_grad``.
            allow_pickle: also load files that hold pickles (``.pt``, ``.pth``, archives with pickled parts). A pickle
                runs code of its author's choice when it is read.
            allow_native_code: also load AOTInductor packages, which are compiled code.

        Raises:
            ModelFileError: no archive, a damaged one, or one that needs a permission that was not given.
        """
        if isinstance(model, (str, Path)) and is_package(Path(model)):
            return PackageRuntime.open(Path(model), allow_native_code=allow_native_code)
        if isinstance(model, (str, Path)):
            path = Path(model)
            model = load_archive(path, allow_pickle=allow_pickle, allow_native_code=allow_native_code)
        else:
            path = None
        if isinstance(model, torch.export.ExportedProgram):
            return _open_program(model, grad, path)
        if isinstance(model, torch.nn.Module) or (path is not None and callable(model)):
            return TorchRuntime(model, grad=grad, path=path)
        raise InputError(f"expected an nn.Module, an ExportedProgram or a path, got {type(model).__qualname__}")

    @property
    def signature(self) -> Signature:
        """What the example inputs or the first call showed.

        Raises:
            InputError: neither has happened yet.
        """
        if self._signature is None:
            self._record(*_example_call(self.module))
        return super().signature

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Run the module on flat, named tensors; see ``flat_names`` for the names of nested arguments."""
        if self._signature is None and not hasattr(self.module, "example_inputs"):
            return self._first_run(inputs)
        return super().run(inputs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the module; tensors of other frameworks are converted on the way in and on the way out."""
        if self._signature is not None and all(map(_is_tensor, (*args, *kwargs.values()))):
            return self._call(args, kwargs)
        leaves = [*args, *kwargs.values()]
        flat = None not in map(framework_of, leaves)
        owner = owner_of(leaves if flat else _pytree.tree_leaves((args, kwargs)))
        if flat:  # no nesting to look into
            args, kwargs = tuple(map(_to_torch, args)), {name: _to_torch(value) for name, value in kwargs.items()}
        else:
            args, kwargs = _pytree.tree_map(_to_torch, (args, dict(kwargs)))
        result = self._call(args, kwargs)
        if self._signature is None:
            self._signature = _recorded(self.module, args, kwargs, result)
        if owner == "torch" or isinstance(result, torch.Tensor):
            return _give(result, owner)
        return _pytree.tree_map(lambda leaf: _give(leaf, owner), result)

    def _check(self, found: Mapping[str, tuple[str, Sequence[int]]]) -> None:
        """Names are enough: torch itself knows what a module takes."""

    def _execute(self, inputs: Mapping[str, Any], owner: str) -> dict[str, Any]:
        signature = self.signature
        assert signature.arguments is not None
        tensors = {name: _to_torch(value) for name, value in inputs.items()}
        result = self._call(fill(signature.arguments, tensors), fill(signature.keywords, tensors))
        return self._named(result, owner)

    def _named(self, result: Any, owner: str) -> dict[str, Any]:
        return {
            name: _give(leaf, owner) for name, leaf in named_leaves(result, "output") if isinstance(leaf, torch.Tensor)
        }

    def _call(self, args: Any, kwargs: Any) -> Any:
        if self._grad:
            return self.module(*args, **kwargs)
        with torch.no_grad():
            return self.module(*args, **kwargs)

    def _first_run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        names = [name.lstrip("*") for name in parameter_names_of(self.module)]
        lowered = {name.lower(): name for name in names}
        if unknown := [name for name in inputs if name not in lowered]:
            raise InputError(
                f"{type(self.module).__qualname__}.forward takes {names}, got {list(inputs)} ({unknown} unknown); call "
                "the runtime once with the real arguments so that nested names are known"
            )
        owner = owner_of(inputs.values())
        kwargs = {lowered[name]: _to_torch(value) for name, value in inputs.items()}
        result = self._call((), kwargs)
        self._signature = _recorded(self.module, (), kwargs, result)
        return self._named(result, owner)

    def _record(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Run once on example inputs, leaving buffers and random state as they were."""
        state = {name: buffer.clone() for name, buffer in self.module.named_buffers()}
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            result = torch.func.functional_call(self.module, state, args, kwargs)
        self._signature = _recorded(self.module, args, kwargs, result)


class ExportedProgramRuntime(TorchRuntime):
    """A ``torch.export.ExportedProgram``, whose inputs, symbolic dims and their ranges are known."""

    def __init__(self, program: torch.export.ExportedProgram, *, grad: bool = False, path: Path | None = None) -> None:
        super().__init__(program.module(), grad=grad, path=path)
        self.program = program
        stored = None if path is None else stored_names(path)
        inputs = [_leaf(spec.arg) for spec in program.graph_signature.input_specs if spec.kind is _INPUT]
        outputs = [_leaf(spec.arg) for spec in program.graph_signature.output_specs if spec.kind in _OUTPUTS]
        self._arguments = inputs if stored is None else _under(inputs, stored["inputs"])
        self._outputs = outputs if stored is None else _under(outputs, stored["outputs"])
        self._signature = _signature_of(program, (inputs, self._arguments), (outputs, self._outputs))
        self._ranges = {str(symbol): limits for symbol, limits in program.range_constraints.items()}

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Run the program on flat tensors under the model's own names, or those of its placeholders where it has none."""
        owner = self._accept(inputs).owner
        return self._named(self._call_flat(inputs), owner)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the program with arguments nested as they were when it was exported."""
        inputs = self.signature.bind(args, kwargs)
        owner = self._accept(inputs).owner
        result = self._call_flat(inputs)
        return result if owner == "torch" else _pytree.tree_map(lambda leaf: _give(leaf, owner), result)

    def _check(self, found: Mapping[str, tuple[str, Sequence[int]]]) -> None:
        for symbol, size in self.signature.check(found).items():
            limits = self._ranges.get(symbol)
            if limits is not None and not limits.lower <= size <= limits.upper:
                raise InputError(f"dimension {symbol} must be in {limits.lower}..{limits.upper}, got {size}")

    def _named(self, result: Any, owner: str) -> dict[str, Any]:
        leaves = zip(self._outputs, _pytree.tree_leaves(result))
        found = {leaf.name: value for leaf, value in leaves if isinstance(leaf, Leaf)}
        return {name: _give(found[name], owner) for name in self.signature.output_names}

    def _call_flat(self, inputs: Mapping[str, Any]) -> Any:
        leaves = [
            _to_torch(inputs[leaf.name]) if isinstance(leaf, Leaf) else fill(leaf, {}) for leaf in self._arguments
        ]
        if (self._flat or self._find_flat())[0] is not None:
            args, kwargs = leaves, {}
        else:
            args, kwargs = _pytree.tree_unflatten(leaves, self.program.call_spec.in_spec)
        try:
            return self._call(args, kwargs)
        except AssertionError as error:  # how a program's own guards speak
            raise InputError(f"the program was exported for other inputs: {error}") from error


def _open_program(program: torch.export.ExportedProgram, grad: bool, path: Path | None) -> ExportedProgramRuntime:
    try:
        return ExportedProgramRuntime(program, grad=grad, path=path)
    except LOAD_ERRORS as error:
        if path is None:
            raise
        raise ModelFileError(f"{path}: the archive does not hold together: {error}") from error


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _to_torch(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value
    return value if framework_of(value) is None else convert(value, "torch")


def _give(value: Any, owner: str) -> Any:
    if owner == "torch" or not isinstance(value, torch.Tensor):
        return value
    return convert(value, owner)


def _example_call(module: torch.nn.Module) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """``example_inputs()`` gives one tensor, a tuple of arguments, a dict of keywords, or a pair of both.

    ``example_kwargs()``, where there is one, gives keywords besides.
    """
    make = getattr(module, "example_inputs", None)
    if not callable(make):
        raise InputError(
            f"{type(module).__qualname__} says nothing about its inputs until it was called once; call the runtime "
            "with real arguments, or give the module a method example_inputs()"
        )
    example, more = make(), getattr(module, "example_kwargs", None)
    keywords = dict(more()) if callable(more) else {}
    if isinstance(example, Mapping):
        return (), dict(example) | keywords
    if not isinstance(example, (tuple, list)):
        return (example,), keywords
    if len(example) == 2 and isinstance(example[0], tuple) and isinstance(example[1], Mapping):
        return example[0], dict(example[1]) | keywords
    return tuple(example), keywords


def _recorded(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Signature:
    """The signature that one call shows: ranks and dtypes are known, dims are not."""
    parameters = parameter_names_of(module)
    leaves, spec = _pytree.tree_flatten((tuple(args), dict(kwargs)))
    names = flat_names(args, kwargs, parameters)
    both = structure_of(spec, iter(map(leaf_or_constant, names, leaves)))
    outputs = named_leaves(result, "output")
    results = structure_of(_pytree.tree_structure(result), (leaf_or_constant(*named) for named in outputs))
    assert isinstance(both, Node) and isinstance(both.children[0], Node) and isinstance(both.children[1], Node)
    return Signature(
        _specs(zip(names, leaves)),
        _specs(outputs),
        both.children[0],
        both.children[1],
        results,
        tuple(name for name in parameters if not name.startswith("*")),
    )


def _specs(named: Iterable[tuple[str, Any]]) -> tuple[TensorSpec, ...]:
    return tuple(
        TensorSpec(name, dtype_of(leaf.dtype).name, (None,) * leaf.ndim)
        for name, leaf in named
        if isinstance(leaf, torch.Tensor)
    )


_Leaves = tuple[list[Structure], list[Structure]]  # under the program's names, and under those to use


def _signature_of(program: torch.export.ExportedProgram, inputs: _Leaves, outputs: _Leaves) -> Signature:
    call = program.call_spec
    both = structure_of(call.in_spec, iter(inputs[1]))
    assert isinstance(both, Node) and isinstance(both.children[0], Node) and isinstance(both.children[1], Node)
    signature = program.module_call_graph[0].signature
    names = () if signature is None else tuple(signature.forward_arg_names or ())
    return Signature(
        _fake_specs(program, *inputs),
        _fake_specs(program, *outputs),
        both.children[0],
        both.children[1],
        structure_of(call.out_spec, iter(outputs[1])),
        names,
    )


_INPUT = torch.export.graph_signature.InputKind.USER_INPUT
_KINDS = torch.export.graph_signature.OutputKind
_OUTPUTS = (_KINDS.USER_OUTPUT, _KINDS.LOSS_OUTPUT)


def _leaf(argument: Any) -> Structure:
    if isinstance(argument, torch.export.graph_signature.ConstantArgument):
        return Constant(argument.value)
    return Leaf(argument.name)


def _under(leaves: list[Structure], names: Sequence[str]) -> list[Structure]:
    """The leaves under other names; under their own where there are more or fewer of those."""
    if len(names) != sum(isinstance(leaf, Leaf) for leaf in leaves):
        return leaves
    left = iter(names)
    return [Leaf(next(left)) if isinstance(leaf, Leaf) else leaf for leaf in leaves]


def _fake_specs(
    program: torch.export.ExportedProgram, leaves: list[Structure], named: list[Structure]
) -> tuple[TensorSpec, ...]:
    values = {node.name: node.meta.get("val") for node in program.graph.nodes}
    found = {
        new.name: values[old.name] for old, new in zip(leaves, named) if isinstance(old, Leaf) and isinstance(new, Leaf)
    }
    return tuple(_fake_spec(name, value) for name, value in found.items())


def _fake_spec(name: str, value: Any) -> TensorSpec:
    if not isinstance(value, torch.Tensor):  # a symbolic number: torch hands it over as a Python one
        kind = {torch.SymInt: "int64", torch.SymFloat: "float64", torch.SymBool: "bool"}
        return TensorSpec(name, kind.get(type(value), "int64"), ())
    dims: tuple[Dim, ...] = tuple(dim if isinstance(dim, int) else str(dim) for dim in value.shape)
    return TensorSpec(name, dtype_of(value.dtype).name, dims)

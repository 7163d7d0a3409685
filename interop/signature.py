"""What goes into a model and what comes out: the words that every room speaks."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from interop.dtypes import dtype_of
from interop.errors import InputError
from interop.structure import Node, Structure, fill, names_of, pick, structure_from_json, structure_to_json

__all__ = ["Dim", "Signature", "TensorSpec"]

Dim = int | str | None
"""A dimension: a fixed size, a symbol that stands for one size wherever it appears, or None where nothing is known."""

KINDS = ("tensor", "sequence", "optional", "optional_sequence")


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One input or output.

    Attributes:
        name: the model's own name for it.
        dtype: canonical dtype name (``interop.dtypes``).
        shape: one ``Dim`` per axis, or None where even the rank is unknown.
        kind: ``"tensor"``, or what holds tensors of this dtype and shape: ``"sequence"``, ``"optional"`` or
            ``"optional_sequence"``.
    """

    name: str
    dtype: str
    shape: tuple[Dim, ...] | None
    kind: str = "tensor"

    def __str__(self) -> str:
        dims = "?" if self.shape is None else ", ".join("?" if dim is None else str(dim) for dim in self.shape)
        return f"{self.name}: {self.dtype}[{dims}]"

    @property
    def symbols(self) -> tuple[str, ...]:
        """The symbolic dims, in order of appearance."""
        return tuple(dict.fromkeys(dim for dim in self.shape or () if isinstance(dim, str)))

    def check(self, dtype: str, shape: Sequence[int], sizes: dict[str, int]) -> None:
        """Raise unless a tensor of this dtype and shape fits.

        Args:
            dtype: canonical dtype name of the tensor.
            shape: its shape.
            sizes: sizes that the symbols have so far; symbols met for the first time are added.

        Raises:
            InputError: naming the input, what was expected and what was given.
        """
        if dtype != self.dtype:
            raise InputError(f"input {self.name!r} expects {self.dtype}, got {dtype}; cast it before the call")
        if self.shape is None:
            return
        given = tuple(shape)
        if len(given) != len(self.shape):
            raise InputError(f"input {self} has {len(self.shape)} dimensions, got {len(given)}: shape {given}")
        for axis, (dim, size) in enumerate(zip(self.shape, given)):
            expected = sizes.setdefault(dim, size) if isinstance(dim, str) and dim.isidentifier() else dim
            if isinstance(expected, int) and expected != size:
                symbol = f" ({dim} is {expected} in this call)" if isinstance(dim, str) else ""
                raise InputError(f"input {self} expects {expected} at axis {axis}{symbol}, got shape {given}")


@dataclass(frozen=True)
class Signature:
    """A model's inputs and outputs, by name and in order, and how they sit in its arguments and results.

    Attributes:
        inputs: the flat inputs.
        outputs: the flat outputs.
        arguments: a ``"tuple"`` node of the positional arguments, or None where the file does not say: then the inputs
            are the positional arguments, in order.
        keywords: a ``"dict"`` node of the keyword arguments.
        results: what a call gives, or None: then one output stands alone and several are a tuple.
        parameter_names: the names of the positional arguments, so that they may also be given by keyword.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    arguments: Node | None = None
    keywords: Node = field(default=Node("dict", ()))
    results: Structure | None = None
    parameter_names: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.inputs))}) -> ({', '.join(map(str, self.outputs))})"

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the inputs, in order."""
        return tuple(spec.name for spec in self.inputs)

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of the outputs, in order."""
        return tuple(spec.name for spec in self.outputs)

    @property
    def symbols(self) -> tuple[str, ...]:
        """The symbolic dims of the inputs, in order of appearance."""
        return tuple(dict.fromkeys(symbol for spec in self.inputs for symbol in spec.symbols))

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Flatten a call's arguments to ``{input name: tensor}``, in the order of the inputs.

        Raises:
            InputError: wrong count, unknown or missing names, or another nesting than the exported one.
        """
        if self.arguments is None:
            return self._bind_flat(args, kwargs)
        args, kwargs = self._place(args, kwargs)
        found = pick(self.arguments, tuple(args), "args")
        found |= pick(self.keywords, dict(kwargs), "kwargs")
        return {name: found[name] for name in self.input_names if name in found}

    def _bind_flat(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        names = self.input_names
        if len(args) > len(names):
            raise InputError(f"the model takes {len(names)} inputs {list(names)}, got {len(args)} positional arguments")
        found = dict(zip(names, args))
        if twice := [name for name in kwargs if name in found]:
            raise InputError(f"inputs {twice} were given by position and by name")
        found |= kwargs
        self.check_names(found)
        return {name: found[name] for name in names}

    def _place(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Move keyword arguments that name a positional parameter to their place, and the other way round."""
        assert self.arguments is not None
        rest = dict(kwargs)
        placed = list(args[: len(self.arguments.children)])
        for name in self.parameter_names[len(placed) : len(self.arguments.children)]:
            if name not in rest:
                break
            placed.append(rest.pop(name))
        for name, value in zip(self.parameter_names[len(placed) :], args[len(placed) :]):
            if name in rest:
                raise InputError(f"argument {name!r} was given by position and by name")
            rest[name] = value
        if len(placed) != len(self.arguments.children) or len(args) > max(len(placed), len(self.parameter_names)):
            expected = [*self.parameter_names[: len(self.arguments.children)], *map(str, self.keywords.keys)]
            raise InputError(
                f"the model takes {len(self.arguments.children)} positional arguments ({', '.join(expected)}), got "
                f"{len(args)} and the keywords {list(kwargs)}"
            )
        return tuple(placed), rest

    def check_names(self, given: Iterable[str]) -> None:
        """Raise unless exactly the model's input names are given.

        Raises:
            InputError: with the nearest name as a suggestion.
        """
        given = list(given)
        missing = [name for name in self.input_names if name not in given]
        unknown = [name for name in given if name not in self.input_names]
        if not missing and not unknown:
            return
        message = f"the model's inputs are {list(self.input_names)}, got {given}"
        if missing:
            message += f"; missing {missing}"
        for name in unknown:
            near = difflib.get_close_matches(name, self.input_names, n=1)
            message += f"; unknown {name!r}" + (f" (did you mean {near[0]!r}?)" if near else "")
        raise InputError(message)

    def check(self, tensors: Mapping[str, tuple[str, Sequence[int]]]) -> dict[str, int]:
        """Check dtypes and shapes of all inputs.

        Args:
            tensors: ``{input name: (canonical dtype, shape)}``.

        Returns:
            The size of each symbol.

        Raises:
            InputError: naming the input, what was expected and what was given.
        """
        self.check_names(tensors)
        sizes: dict[str, int] = {}
        for spec in self.inputs:
            dtype, shape = tensors[spec.name]
            spec.check(dtype, shape, sizes)
        return sizes

    def unflatten(self, outputs: Mapping[str, Any], build: Any = None) -> Any:
        """Give ``{output name: tensor}`` the form that the model's own call returns.

        Args:
            outputs: all outputs by name.
            build: see ``interop.structure.fill``.
        """
        if self.results is not None:
            return fill(self.results, outputs, build)
        values = tuple(outputs[name] for name in self.output_names)
        return values[0] if len(values) == 1 else values

    def renamed(self, inputs: Mapping[str, str], outputs: Mapping[str, str]) -> Signature:
        """The same flat signature under other names (structures are dropped)."""
        return Signature(
            tuple(replace(spec, name=inputs.get(spec.name, spec.name)) for spec in self.inputs),
            tuple(replace(spec, name=outputs.get(spec.name, spec.name)) for spec in self.outputs),
        )

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data, as it is stored inside model files."""
        data: dict[str, Any] = {
            "inputs": [_spec_to_json(spec) for spec in self.inputs],
            "outputs": [_spec_to_json(spec) for spec in self.outputs],
        }
        if self.arguments is not None:
            data["arguments"] = structure_to_json(self.arguments)
            data["keywords"] = structure_to_json(self.keywords)
            data["parameter_names"] = list(self.parameter_names)
        if self.results is not None:
            data["results"] = structure_to_json(self.results)
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Signature:
        """The inverse of ``to_json``.

        Raises:
            InputError: the data does not describe a signature.
        """
        try:
            inputs = tuple(_spec_from_json(item) for item in data["inputs"])
            outputs = tuple(_spec_from_json(item) for item in data["outputs"])
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"not a signature: {error!r}") from error
        arguments = structure_from_json(data["arguments"]) if "arguments" in data else None
        keywords = structure_from_json(data["keywords"]) if "keywords" in data else Node("dict", ())
        results = structure_from_json(data["results"]) if "results" in data else None
        if not isinstance(arguments, Node | None) or not isinstance(keywords, Node):
            raise InputError("not a signature: arguments are a tuple and keywords a dict")
        if arguments is not None:
            found = [*names_of(arguments), *names_of(keywords)]
            if sorted(found) != sorted(spec.name for spec in inputs):
                raise InputError(f"not a signature: its arguments name {found}")
        if results is not None and not {*names_of(results)} <= {spec.name for spec in outputs}:
            raise InputError(f"not a signature: its results name {[*names_of(results)]}")
        return cls(inputs, outputs, arguments, keywords, results, tuple(map(str, data.get("parameter_names", ()))))


def _spec_to_json(spec: TensorSpec) -> dict[str, Any]:
    data = {"name": spec.name, "dtype": spec.dtype, "shape": None if spec.shape is None else list(spec.shape)}
    return data if spec.kind == "tensor" else data | {"kind": spec.kind}


def _spec_from_json(data: Mapping[str, Any]) -> TensorSpec:
    shape = data["shape"]
    if shape is not None and not all(dim is None or isinstance(dim, (int, str)) for dim in shape):
        raise ValueError(f"a shape is a list of sizes, symbols and nulls, got {shape}")
    kind = str(data.get("kind", "tensor"))
    if kind not in KINDS:
        raise ValueError(f"a kind is one of {', '.join(KINDS)}, got {kind!r}")
    dims = None if shape is None else tuple(shape)
    return TensorSpec(str(data["name"]), dtype_of(str(data["dtype"])).name, dims, kind)

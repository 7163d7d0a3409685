"""The protocol of every runtime: flat, named tensors in and out, in whatever framework the caller uses."""

from __future__ import annotations

import abc
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from interop.errors import ConversionError, InputError
from interop.frameworks import TensorInfo, describe, framework_of
from interop.runtimes._benchmark import Benchmark, measure, sample_inputs
from interop.runtimes._rebuild import rebuild
from interop.runtimes._stream import stream
from interop.signature import Signature
from interop.structure import Leaf

__all__ = ["Runtime"]

_SEEN_LIMIT = 256


class Accepted(NamedTuple):
    """What is known of inputs that passed the check, and of all others with the same names, types, dtypes and shapes.

    Attributes:
        owner: the framework to answer in.
        route: what the runtime worked out for such inputs (see ``Runtime._plan``).
    """

    owner: str
    route: Any = None


class Runtime(abc.ABC):
    """A model that can be called with the tensors of any framework.

    Outputs come back in the framework of the inputs: the first input (in the signature's order) decides where the
    inputs mix frameworks, and a model without inputs answers in NumPy. A NumPy answer may be a view of the runtime's
    own buffer; no two calls ever share one.

    Example:
        >>> runtime = interop.load("digits.onnx")
        >>> runtime(torch.zeros(1, 1, 8, 8)).shape
        torch.Size([1, 10])
        >>> runtime.run({"images": np.zeros((1, 1, 8, 8), np.float32)})["logits"].dtype
        dtype('float32')
    """

    name: ClassVar[str]
    """Registry name: ``"onnxruntime"``, ``"tensorflow"``, ``"torch"``."""

    framework: ClassVar[str]
    """Import name of the framework whose tensors the model itself works on."""

    open: ClassVar[Callable[..., Runtime]]
    """Class method ``open(model, **options)`` that ``load`` calls; the options are the runtime's own keywords."""

    def __init__(self, signature: Signature | None, path: str | os.PathLike[str] | None = None) -> None:
        self._signature = signature
        self._path = None if path is None else Path(path)
        self._flat: tuple[tuple[str, ...] | None, str | None] | None = None  # see _find_flat
        self._seen: dict[Any, Accepted] = {}  # combinations of dtypes and shapes that passed the check

    def __repr__(self) -> str:
        where = "" if self.path is None else f" {str(self.path)!r}"
        return f"<{type(self).__name__}{where} {self._signature or ''}>"

    @classmethod
    def recognises(cls, model: object) -> bool:
        """True for what ``open`` can take; only asked of runtimes that came by an entry point."""
        return False

    @property
    def signature(self) -> Signature:
        """Names, dtypes and shapes of inputs and outputs, and how they sit in arguments and results."""
        assert self._signature is not None
        return self._signature

    @property
    def path(self) -> Path | None:
        """The file or folder that was loaded; None for a model in memory."""
        return self._path

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Run the model on flat, named tensors.

        Args:
            inputs: ``{input name: tensor}``, exactly the names of ``signature.inputs``, of any framework.

        Returns:
            ``{output name: tensor}`` in the order of ``signature.outputs`` and in the framework of the inputs.

        Raises:
            InputError: a name, dtype, rank or dimension does not fit; the message names input, expected and given.
        """
        return self._execute(inputs, self._accept(inputs).owner)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the model as the exported one was called: same nesting in, same nesting out.

        Objects in the result (dataclasses, ``ModelOutput``, caches) are built where their class is loaded in this
        process, else they come as dicts.

        Raises:
            InputError: the arguments do not fit the signature.
        """
        names, result = self._flat or self._find_flat()
        if names is not None and not kwargs and len(args) == len(names):
            inputs = {names[0]: args[0]} if len(args) == 1 else dict(zip(names, args))
        else:
            inputs = self.signature.bind(args, kwargs)
        outputs = self.run(inputs)
        return outputs[result] if result is not None else self.signature.unflatten(outputs, rebuild)

    def _find_flat(self) -> tuple[tuple[str, ...] | None, str | None]:
        """The names of the arguments, where they are tensors one by one, and of the result, where it is one tensor."""
        signature = self.signature
        arguments, results, names = signature.arguments, signature.results, signature.output_names
        result = results.name if isinstance(results, Leaf) else None
        if results is None and len(names) == 1:
            result = names[0]
        leaves: tuple[str, ...] | None = signature.input_names
        if arguments is not None:
            leaves = tuple(child.name for child in arguments.children if isinstance(child, Leaf))
            if len(leaves) != len(arguments.children) or signature.keywords.children:
                leaves = None
        self._flat = leaves, result
        return self._flat

    def map(self, items: Iterable[Any], *, batch_size: int | None = None, progress: bool = False) -> Iterator[Any]:
        """Run over items one batch at a time, holding no more than a batch; results come as they are asked for.

        Args:
            items: each is ``{input name: tensor}``, a tuple of arguments, or the only argument.
            batch_size: items are single samples, without the batch axis: so many are stacked for a call, and results are
                single samples again. None: each item is a batch already.
            progress: show a bar on stderr.

        Yields:
            What a call gives, in the order of the items.

        Raises:
            InputError: an item does not fit, or an output has no batch axis to take apart.

        Example:
            >>> labels = [scores.argmax() for scores in runtime.map(images, batch_size=64)]
        """
        return stream(self, items, batch_size, progress)

    def benchmark(
        self,
        inputs: Mapping[str, Any] | None = None,
        *,
        sizes: Mapping[str, int] | None = None,
        seconds: float = 1.0,
        warmup: int = 3,
    ) -> Benchmark:
        """Time ``run``.

        Args:
            inputs: as for ``run``; made from the signature where None.
            sizes: sizes of the signature's symbols for made inputs; 1 where not named.
            seconds: about how long to measure.
            warmup: calls before.

        Example:
            >>> print(interop.load("digits.onnx").benchmark(sizes={"batch": 64}))
        """
        given = sample_inputs(self.signature, sizes) if inputs is None else inputs
        return measure(self.name, lambda: self.run(given), seconds=seconds, warmup=warmup)

    @abc.abstractmethod
    def _execute(self, inputs: Mapping[str, Any], owner: str) -> dict[str, Any]:
        """Run checked inputs and answer in the framework ``owner``."""

    def _accept(self, inputs: Mapping[str, Any]) -> Accepted:
        """Check names, dtypes and shapes; remember what passed, because the answer depends on nothing else."""
        try:
            key = tuple([(name, type(x), x.dtype, x.shape, x.device) for name, x in inputs.items()])
            found = self._seen.get(key)
        except (AttributeError, TypeError, ValueError, RuntimeError):  # lists, tensors of unknown rank
            return self._examine(inputs)
        if found is None:
            found = self._examine(inputs)
            if len(self._seen) >= _SEEN_LIMIT:
                self._seen.clear()
            self._seen[key] = found
        return found

    def _examine(self, inputs: Mapping[str, Any]) -> Accepted:
        names = self.signature.input_names
        self.signature.check_names(inputs)
        infos = {name: self._describe(name, inputs[name]) for name in names}
        self._check({name: (info.dtype, info.shape) for name, info in infos.items()})
        owner = owner_of(inputs[name] for name in names)
        return Accepted(owner, self._plan(inputs, infos, owner))

    def _plan(self, inputs: Mapping[str, Any], infos: Mapping[str, TensorInfo], owner: str) -> Any:
        """Work out once what holds for all inputs that look like these; nothing by default."""
        return None

    def _check(self, found: Mapping[str, tuple[str, Sequence[int]]]) -> None:
        """Raise ``InputError`` unless dtypes and shapes fit."""
        self.signature.check(found)

    def _describe(self, name: str, value: Any) -> TensorInfo:
        if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
            return TensorInfo("numpy", "string", (len(value),))
        try:
            return describe(value)
        except ConversionError as error:
            raise InputError(f"input {name!r} must be a tensor: {error}") from error


def owner_of(values: Iterable[Any]) -> str:
    """The framework of the first tensor among values; ``"numpy"`` where none has one that can be answered in."""
    for value in values:
        framework = framework_of(value)
        if framework is not None:
            return "numpy" if framework == "dlpack" else str(framework)
    return "numpy"

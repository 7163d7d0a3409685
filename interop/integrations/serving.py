"""TensorFlow Serving: a client that is called like any other runtime, and the server's ``models.config``.

A client takes and gives tensors of any framework, so ``interop.check(model, client)`` says whether a server computes the same
function as the model. It needs neither TensorFlow nor ``tensorflow-serving-api``.

Source: https://www.tensorflow.org/tfx/serving/api_rest and ``tensorflow_serving/apis/prediction_service.proto``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Protocol, Self

import numpy as np

from interop.errors import InputError, InteropError, ModelFileError
from interop.frameworks import convert
from interop.integrations._serving_config import ServedModel, models_config, write_models_config
from interop.runtimes._base import Accepted, Runtime, owner_of
from interop.runtimes._load import _newest_version
from interop.signature import Signature

__all__ = ["ServedModel", "ServingClient", "ServingError", "Target", "models_config", "write_models_config"]

Array = np.ndarray[Any, Any]

METADATA_FILE = Path("assets.extra") / "tensor_interop.json"
"""Where a SavedModel of this project keeps its signature and the names that the model itself uses."""


class ServingError(InteropError):
    """A server that cannot be reached, does not answer in time, lacks the model, or fails."""


@dataclass(frozen=True)
class Target:
    """What is asked.

    Attributes:
        address: ``host:port``, with ``https://`` before it for a server with a certificate.
        model: the name that the server knows the model by.
        signature: which of its signatures.
        version: a number, a label, or None for the newest.
        timeout: seconds for one call.
    """

    address: str
    model: str
    signature: str = "serving_default"
    version: int | str | None = None
    timeout: float = 10.0

    def __str__(self) -> str:
        version = "" if self.version is None else f" {self.version}"
        return f"model {self.model!r}{version} at {self.address}"

    @property
    def secure(self) -> bool:
        """Whether the address asks for TLS."""
        return self.address.startswith("https://")

    @property
    def host(self) -> str:
        """The address without the scheme."""
        return self.address.removeprefix("https://").removeprefix("http://").rstrip("/")


class Transport(Protocol):
    """How a call reaches the server."""

    def signature(self) -> Signature | None:
        """What the server itself says about the signature; None where it is not asked."""

    def predict(self, arrays: Mapping[str, Array], signature: Signature | None) -> dict[str, Array]:
        """Run by the server's names."""

    def close(self) -> None:
        """Give connections back."""


@dataclass(frozen=True)
class _Boundary:
    """The model's own names, where its SavedModel says them: ``{own name: the server's}``."""

    signature: Signature | None = None
    inputs: Mapping[str, str] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)


class ServingClient(Runtime):
    """A model on a server that speaks TensorFlow Serving's protocol, called like any runtime.

    Outputs come back in the framework of the inputs, in the server's dtypes, bit for bit over gRPC and REST alike.

    Example:
        >>> with ServingClient("localhost:8500", "digits", exported="digits_savedmodel") as client:
        ...     client(torch.zeros(1, 1, 8, 8)).shape
        torch.Size([1, 10])
        >>> interop.check(model, ServingClient("localhost:8501", "digits", protocol="rest")).passed
        True
    """

    name = "serving"
    framework = "numpy"

    def __init__(
        self,
        address: str,
        model: str,
        *,
        signature: str = "serving_default",
        protocol: Literal["grpc", "rest"] = "grpc",
        exported: str | os.PathLike[str] | Mapping[str, Any] | None = None,
        version: int | str | None = None,
        timeout: float = 10.0,
        layout: Literal["columns", "rows"] = "columns",
    ) -> None:
        """Prepare calls; the server is asked at the first one.

        Args:
            address: ``host:port``; gRPC is on port 8500 and REST on 8501 where nobody chose others. ``https://host:port``
                is a server with a certificate, for both.
            model: the name that the server knows the model by.
            signature: which of its signatures.
            protocol: ``"grpc"`` carries every dtype; ``"rest"`` those of ``JSON_DTYPES``.
            exported: the SavedModel, as exported, or the content of its ``assets.extra/tensor_interop.json``: then the model's
                own names and nesting hold here too, and inputs are checked before they are sent. Without it names are the
                server's, which over gRPC come unchecked.
            version: a number, a label such as ``"stable"``, or None for the newest.
            timeout: seconds for one call.
            layout: of JSON: ``"columns"`` (any shapes) or ``"rows"`` (all with one first axis).

        Raises:
            InputError: an unknown protocol or layout, a timeout that is no time, or a model that takes no plain tensors.
            ModelFileError: ``exported`` is no SavedModel of this project.
            MissingExtraError: gRPC is not installed.
        """
        target = Target(address, model, signature, version, timeout)
        self._transport = _open(target, protocol, layout)
        self._boundary = _Boundary() if exported is None else _read_boundary(exported, signature)
        super().__init__(self._boundary.signature)
        self._asked = exported is not None
        self.target = target

    @property
    def signature(self) -> Signature:
        """Inputs and outputs; asked of the server where no exported model was given and REST is spoken.

        Raises:
            InputError: nobody said it.
        """
        found = self._known()
        if found is None:
            raise InputError(
                f"the signature of {self.target} is not known; give exported=FOLDER, or run({{name: tensor}})"
            )
        return found

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the model as the exported one was called; without ``exported`` by names, as a server's maps have no order.

        Returns:
            What the model itself returns; without ``exported`` the only output, or ``{name: tensor}``.

        Raises:
            InputError: the arguments do not fit, or are several without names that only the server could put in order.
        """
        if self._boundary.signature is not None:
            return super().__call__(*args, **kwargs)
        names = self.signature.input_names
        if len(args) > 1 or (args and len(names) > 1):
            raise InputError(
                f"the inputs of {self.target} have no order: name them ({', '.join(names)}), or give exported="
            )
        outputs = self.run(self.signature.bind(args, kwargs))
        return next(iter(outputs.values())) if len(outputs) == 1 else outputs

    def close(self) -> None:
        """Give the connection back."""
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<ServingClient of {self.target}>"

    def _known(self) -> Signature | None:
        if not self._asked:
            self._signature = self._transport.signature()
            self._asked = True
        return self._signature

    def _examine(self, inputs: Mapping[str, Any]) -> Accepted:
        if self._known() is not None:
            return super()._examine(inputs)
        for name, value in inputs.items():
            self._describe(name, value)
        return Accepted(owner_of(inputs.values()))

    def _execute(self, inputs: Mapping[str, Any], owner: str) -> dict[str, Any]:
        names, signature = self._boundary.inputs, self._signature
        arrays = {names.get(name, name): _to_numpy(value) for name, value in inputs.items()}
        served = None if signature is None else signature.renamed(names, self._boundary.outputs)
        answers = self._transport.predict(arrays, served)
        if served is None:
            return {name: _give(array, owner) for name, array in answers.items()}
        self._check_answers(answers, served)
        return {
            own: _give(answers[theirs], owner) for own, theirs in zip(self.signature.output_names, served.output_names)
        }

    def _check_answers(self, answers: Mapping[str, Array], served: Signature) -> None:
        for spec in served.outputs:
            given = answers.get(spec.name)
            dtype = None if given is None else "string" if given.dtype == object else given.dtype.name
            if dtype != spec.dtype:
                got = "nothing" if given is None else f"{dtype}{list(given.shape)}"
                raise ServingError(
                    f"{self.target} answers {spec.name!r} with {got} instead of {spec}; it serves another model or version "
                    "than the exported one: give version=, or the folder of what it serves"
                )


def _open(target: Target, protocol: str, layout: str) -> Transport:
    if protocol not in ("grpc", "rest") or layout not in ("columns", "rows"):
        raise InputError(
            f"protocol is 'grpc' or 'rest' and layout 'columns' or 'rows', got {protocol!r} and {layout!r}"
        )
    if not target.timeout > 0 or not target.model or not target.host:
        raise InputError(f"a client needs an address, a model's name and a timeout above 0, got {target}")
    if protocol == "grpc":
        from interop.integrations._serving_grpc import GrpcTransport

        return GrpcTransport(target)
    from interop.integrations._serving_rest import RestTransport

    return RestTransport(target, "columns" if layout == "columns" else "rows")


def _read_boundary(exported: str | os.PathLike[str] | Mapping[str, Any], signature: str) -> _Boundary:
    where = "the metadata" if isinstance(exported, Mapping) else os.fspath(exported)
    data = exported if isinstance(exported, Mapping) else _read_metadata(Path(exported))
    try:
        if "signatures" in data and signature in data["signatures"]:
            data = data["signatures"][signature]
        found = Signature.from_json(data["signature"])
        names = {kind: dict(data["names"][kind]) for kind in ("inputs", "outputs")}
    except (InputError, KeyError, TypeError, ValueError) as error:
        step = "give the folder that export_model wrote, or leave exported= out to use the server's names"
        raise ModelFileError(f"{where}: no description of the signature {signature!r}: {error}; {step}") from error
    if held := [str(spec) for spec in (*found.inputs, *found.outputs) if spec.kind != "tensor"]:
        raise InputError(f"{where}: a client takes and gives tensors only; this model has {', '.join(held)}")
    return _Boundary(found, names["inputs"], names["outputs"])


def _read_metadata(path: Path) -> Any:
    file = (_newest_version(path) if path.is_dir() else path) / METADATA_FILE
    try:
        return json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        step = "give the SavedModel that export_model wrote, or leave exported= out to use the server's names"
        raise ModelFileError(f"{file} cannot be read: {error}; {step}") from error


def _to_numpy(value: Any) -> Array:
    if isinstance(value, list):
        return np.array(value, dtype=object)
    return np.asarray(convert(value, "numpy"))


def _give(array: Array, owner: str) -> Any:
    """Strings stay in NumPy, where the other frameworks have no place for them."""
    if array.dtype == object and owner != "tensorflow":
        return array
    return convert(array if array.flags.writeable else array.copy(), owner)

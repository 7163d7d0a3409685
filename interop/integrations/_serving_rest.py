"""Predict over REST."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

from interop.errors import ConversionError, InputError, InteropError
from interop.integrations._serving_json import Layout, read_metadata, read_outputs, write_inputs
from interop.integrations.serving import Array, ServingError, Target
from interop.signature import Signature

__all__ = ["RestTransport"]


class RestTransport:
    """A request a call."""

    def __init__(self, target: Target, layout: Layout) -> None:
        self._target = target
        self._layout: Layout = layout
        where = f"/versions/{target.version}" if isinstance(target.version, int) else ""
        where = f"/labels/{_part(target.version)}" if isinstance(target.version, str) else where
        self._url = f"{'https' if target.secure else 'http'}://{target.host}/v1/models/{_part(target.model)}{where}"

    def signature(self) -> Signature:
        """What the server's metadata say: JSON has no dtypes of its own."""
        answer = self._ask("/metadata")
        try:
            return read_metadata(answer, self._target.signature)
        except InputError as error:
            raise InputError(f"{self._target}: {error}") from error
        except (KeyError, TypeError, ValueError, AttributeError, ConversionError) as error:
            raise ServingError(
                f"{self._target}: its metadata cannot be read: {error!r}; give exported=FOLDER"
            ) from error

    def predict(self, arrays: Mapping[str, Array], signature: Signature | None) -> dict[str, Array]:
        """One POST."""
        assert signature is not None  # it was asked
        message = {"signature_name": self._target.signature, **write_inputs(arrays, self._layout)}
        answer = self._ask(":predict", json.dumps(message).encode())
        try:
            return read_outputs(answer, {spec.name: spec for spec in signature.outputs})
        except InputError as error:
            raise ServingError(f"{self._target}: {error}; it may serve another version: give version=") from error

    def close(self) -> None:
        """Nothing is kept open."""

    def _ask(self, verb: str, body: bytes | None = None) -> Any:
        request = urllib.request.Request(self._url + verb, body, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=self._target.timeout) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            raise _explain(self._target, error.code, _message(error.read())) from error
        except TimeoutError as error:
            raise _late(self._target) from error
        except urllib.error.URLError as error:
            if isinstance(error.reason, TimeoutError):
                raise _late(self._target) from error
            raise _unreachable(self._target, error.reason) from error
        except (OSError, ValueError) as error:  # a connection that ends early; what is no JSON
            raise _unreachable(self._target, error) from error


def _part(text: str) -> str:
    return urllib.parse.quote(text, safe="")


def _message(body: bytes) -> str:
    """The server's own words."""
    try:
        text = str(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError):
        text = body.decode(errors="replace")
    return " ".join(text.split())[:500]


def _explain(target: Target, status: int, text: str) -> InteropError:
    if status == 400:
        return InputError(f"{target} refused the request: {text}; names, dtypes and shapes are those of its signature")
    step = "the log of the server says more"
    if status == 404:
        step = "see that the name and version are those in the server's models.config, and that it has loaded them"
    return ServingError(f"{target}: HTTP {status}: {text}; {step}")


def _late(target: Target) -> ServingError:
    step = "give timeout=, or write warm-up requests (warmup=True)"
    return ServingError(f"{target}: no answer within {target.timeout:g} s; {step}")


def _unreachable(target: Target, error: object) -> ServingError:
    step = "see that the server runs and that this is its REST port (8501 by default; 8500 is gRPC)"
    return ServingError(f"{target}: {error}; {step}")

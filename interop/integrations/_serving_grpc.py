"""Predict over gRPC."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from interop.errors import InputError, InteropError
from interop.extras import require
from interop.integrations.serving import Array, ServingError, Target
from interop.signature import Signature

__all__ = ["GrpcTransport"]

METHOD = "/tensorflow.serving.PredictionService/Predict"
_OPTIONS = (("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1))
"""Without the 4 MB that gRPC allows by default, which one batch of images exceeds."""


class GrpcTransport:
    """A channel, opened at the first call."""

    def __init__(self, target: Target) -> None:
        self._grpc = require("grpc", "to call a model server by gRPC")
        require("google.protobuf", "to call a model server by gRPC")
        from interop.integrations import _serving_messages

        self._messages = _serving_messages
        self._target = target
        self._channel = _channel(self._grpc, target)
        self._predict = self._channel.unary_unary(
            METHOD,
            request_serializer=_serving_messages.PredictRequest.SerializeToString,
            response_deserializer=_serving_messages.PredictResponse.FromString,
        )

    def signature(self) -> None:
        """Not asked: Predict carries dtypes and names both ways."""

    def predict(self, arrays: Mapping[str, Array], signature: Signature | None) -> dict[str, Array]:
        """One call of Predict."""
        try:
            answer = self._predict(self._request(arrays), timeout=self._target.timeout)
        except self._grpc.RpcError as error:
            raise _explain(self._target, error.code().name, str(error.details())) from error
        return {name: self._messages.read_tensor(answer.outputs[name]) for name in sorted(answer.outputs)}

    def close(self) -> None:
        """Close the channel."""
        self._channel.close()

    def _request(self, arrays: Mapping[str, Array]) -> Any:
        target = self._target
        number = target.version if isinstance(target.version, int) else None
        request = self._messages.request_of(target.model, arrays, signature=target.signature, version=number)
        if isinstance(target.version, str):
            request.model_spec.version_label = target.version
        return request


def _channel(grpc: Any, target: Target) -> Any:
    if target.secure:
        return grpc.secure_channel(target.host, grpc.ssl_channel_credentials(), options=_OPTIONS)
    return grpc.insecure_channel(target.host, options=_OPTIONS)


def _explain(target: Target, code: str, details: str) -> InteropError:
    text = " ".join(details.split())[:500]
    if code == "INVALID_ARGUMENT":
        return InputError(f"{target} refused the inputs: {text}; names, dtypes and shapes are those of its signature")
    steps = {
        "UNAVAILABLE": "see that the server runs and that this is its gRPC port (8500 by default; 8501 is REST)",
        "DEADLINE_EXCEEDED": f"no answer within {target.timeout:g} s; give timeout=, or write warm-up requests (warmup=True)",
        "NOT_FOUND": "see that the name and version are those in the server's models.config, and that it has loaded them",
        "UNIMPLEMENTED": "this is no TensorFlow Serving, or another port of it (gRPC is 8500 by default)",
    }
    return ServingError(f"{target}: {code}: {text}; {steps.get(code, 'the log of the server says more')}")

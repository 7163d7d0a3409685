"""Further witnesses of a failed run, and which part of the way from the module to the answer stands alone.

An ONNX candidate is also run without ONNX Runtime's graph optimisations and in onnx's own evaluator; a TensorFlow
candidate that is still in memory is also written and loaded again. Who agrees with the reference tells where it broke.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from interop.errors import InteropError
from interop.extras import loaded
from interop.parity.witness import RuntimeWitness, Witness

__all__ = ["EVALUATOR", "RELOADED", "UNOPTIMISED", "blame", "blame_tensorflow", "more_witnesses"]

UNOPTIMISED = "ONNX Runtime without graph optimisations"
EVALUATOR = "onnx's reference evaluator"
RELOADED = "the SavedModel, written and loaded again"

SLOW_ELEMENTS = 1 << 24
"""onnx's evaluator is plain Python in places; a model with more parameters than this is not given to it."""


@contextlib.contextmanager
def more_witnesses(model: Any) -> Iterator[dict[str, Witness]]:
    """The same candidate by other ways; what had to be written is removed on exit.

    Args:
        model: the candidate as the caller gave it.
    """
    with tempfile.TemporaryDirectory(prefix="tensor-interop-", ignore_cleanup_errors=True) as folder:
        found: dict[str, Witness] = {}
        source = _onnx_source(model)
        if source is not None:
            found |= _onnx_witnesses(source)
        elif getattr(model, "format", "") == "tensorflow" and callable(getattr(model, "save", None)):
            found |= _reloaded(model, Path(folder))
        yield found


def _onnx_source(model: Any) -> Any:
    """The path or the graph of an ONNX candidate, else None."""
    artifact = getattr(model, "artifact", None)
    if getattr(model, "format", "") == "onnx" and artifact is not None and hasattr(artifact, "public_model"):
        return artifact.public_model()
    onnx = loaded("onnx")
    if onnx is not None and isinstance(model, onnx.ModelProto):
        return model
    if getattr(model, "name", "onnxruntime") != "onnxruntime" and not isinstance(model, (str, Path)):
        return None
    path = getattr(model, "path", model)
    if not isinstance(path, (str, Path)) or not Path(path).is_file():
        return None
    from interop.runtimes._load import _recognise_path

    return path if _recognise_path(Path(path)) == "onnxruntime" else None


def _onnx_witnesses(source: Any) -> dict[str, Witness]:
    from interop.runtimes import load
    from interop.runtimes.onnxruntime import ort

    found: dict[str, Witness] = {}
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    with contextlib.suppress(InteropError):
        found[UNOPTIMISED] = RuntimeWitness(load(source, runtime="onnxruntime", session_options=options))
    with contextlib.suppress(InteropError):
        if _parameters(source) <= SLOW_ELEMENTS:
            found[EVALUATOR] = RuntimeWitness(load(source, runtime="onnx-reference"))
    return found


def _parameters(source: Any) -> int:
    from interop.parity.graph import open_graph

    graph = open_graph(source)
    return sum(weight.size for weight in graph.weights.values()) if graph is not None else 0


def _reloaded(model: Any, folder: Path) -> dict[str, Witness]:
    from interop.runtimes import load

    own = model.path  # ``save`` notes where; that is the caller's to say
    try:
        written = model.save(folder / "model")
    finally:
        model.path = own
    return {RELOADED: RuntimeWitness(load(written))}


def blame(label: str, verdicts: Mapping[str, bool]) -> str:
    """One sentence on who stands alone with an ONNX candidate; empty where there is nobody to compare with.

    Args:
        label: the candidate that failed.
        verdicts: ``{witness: agrees with the reference}`` of the same candidate by other ways.
    """
    plain, evaluator = verdicts.get(UNOPTIMISED), verdicts.get(EVALUATOR)
    if plain:
        also = f", and so does {EVALUATOR}" if evaluator else ""
        return f"the runtime: {label} agrees with the reference once ONNX Runtime's graph optimisations are off{also}"
    if evaluator:
        return f"the runtime: ONNX Runtime stands alone, {EVALUATOR} computes from {label} what the reference does"
    if evaluator is False:
        return (
            f"the exporter, or what changed the file since: ONNX Runtime, optimised or not, and {EVALUATOR} all compute "
            f"from {label} something else than the reference"
        )
    if plain is False:
        return f"the exporter or the runtime: {label} differs with graph optimisations and without; {EVALUATOR} did not run it"
    return ""


def blame_tensorflow(label: str, others: Sequence[tuple[str, bool]], reloaded: bool | None = None) -> str:
    """The same for a TensorFlow candidate.

    Args:
        label: the candidate that failed.
        others: ``(runtime name, agrees)`` of the check's other candidates.
        reloaded: whether the model agrees with the reference once it is written and loaded again, if that was asked.
    """
    onnx = [agrees for name, agrees in others if name == "onnxruntime"]
    same = "" if reloaded is None else ", live and reloaded"
    if reloaded:
        return f"the live model: {label} agrees with the reference once it is written and loaded again"
    if onnx and all(onnx):
        return (
            f"the converter from ONNX to TensorFlow: the ONNX model agrees with the reference, {label} does not{same}"
        )
    if onnx:
        return f"the exporter: the ONNX model that {label} is made from differs from the reference too"
    return ""

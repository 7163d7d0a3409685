"""A check on disk: inputs, outputs and allowances in one folder, to be judged again without any model.

``run.json`` describes the runs; each run's arrays stand in an ``.npz`` beside it, as plain bytes where NumPy's own file
format lacks the dtype. No pickles. ``run.json`` is written last: a folder without it is an unfinished run.
"""

from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from interop.dtypes import dtype_of
from interop.errors import InteropError, ModelFileError
from interop.parity.compare import compare_all
from interop.parity.figures import as_numpy
from interop.parity.report import CaseResult, ParityReport
from interop.parity.tolerance import Allowance, Tolerance, resolve_tolerance

__all__ = ["Recorder", "SavedRun", "replay"]

Array = npt.NDArray[Any]
_GROUPS = ("inputs", "reference", "outputs", "truths")
_FORMAT = 1


@dataclass(frozen=True)
class SavedRun:
    """One candidate on one set of inputs, with all that its verdict came from.

    Attributes:
        candidate: the candidate's label.
        case: the name of the inputs.
        inputs: ``{input name: tensor}``.
        reference: the reference's outputs.
        outputs: the candidate's outputs.
        truths: the outputs that distances are measured from, where better known than ``reference``.
        allowances: what each output may be off by.
        error: why there are no outputs, or empty.
    """

    candidate: str
    case: str
    inputs: Mapping[str, Any] = field(default_factory=dict)
    reference: Mapping[str, Any] = field(default_factory=dict)
    outputs: Mapping[str, Any] = field(default_factory=dict)
    truths: Mapping[str, Any] = field(default_factory=dict)
    allowances: Mapping[str, Allowance] = field(default_factory=dict)
    error: str = ""


class Recorder:
    """Writes runs as they happen."""

    def __init__(self, folder: Path) -> None:
        """Make the folder, or take an empty one.

        Raises:
            ModelFileError: it cannot be made, or holds files.
        """
        try:
            folder.mkdir(parents=True, exist_ok=True)
            taken = any(folder.iterdir())
        except OSError as error:
            raise ModelFileError(f"{folder}: runs cannot be saved there: {error.strerror}") from error
        if taken:
            raise ModelFileError(f"{folder}: the folder for the runs is not empty; choose another one")
        self.folder = folder
        self._runs: list[dict[str, Any]] = []

    def add(self, run: SavedRun) -> None:
        """Write one run's arrays."""
        arrays: dict[str, Array] = {}
        described = {group: _describe(getattr(run, group), group, arrays) for group in _GROUPS}
        np.savez(self.folder / f"{len(self._runs):04}.npz", allow_pickle=False, **arrays)
        allowances = {name: asdict(allowance) for name, allowance in run.allowances.items()}
        plain = {"candidate": run.candidate, "case": run.case, "error": run.error, "allowances": allowances}
        self._runs.append(plain | described)

    def close(self, report: ParityReport) -> None:
        """Write ``run.json``."""
        head = {"format": _FORMAT, "reference": report.reference, "candidates": report.candidates}
        head |= {"seed": report.seed, "versions": report.versions, "skipped": report.skipped, "runs": self._runs}
        (self.folder / "run.json").write_text(json.dumps(head, indent=1), encoding="utf-8")


def _describe(tensors: Mapping[str, Any], group: str, arrays: dict[str, Array]) -> dict[str, Any]:
    """Put tensors into ``arrays`` and give what is needed to read them back."""
    described = {}
    for position, (name, tensor) in enumerate(tensors.items()):
        values = np.ascontiguousarray(as_numpy(tensor)).reshape(np.shape(as_numpy(tensor)))
        dtype = dtype_of(values.dtype)
        key = f"{group}_{position}"
        if dtype.kind == "string":
            texts = [item.decode("utf-8", "replace") if isinstance(item, bytes) else str(item) for item in values.flat]
            described[name] = {"dtype": dtype.name, "shape": values.shape, "texts": texts}
            continue
        arrays[key] = np.frombuffer(values.tobytes(), np.uint8) if dtype.extension else values
        described[name] = {"dtype": dtype.name, "shape": values.shape, "key": key}
    return described


def replay(folder: Path | str, *, atol: Tolerance = None, rtol: Tolerance = None, indices: Any = None) -> ParityReport:
    """Judge saved runs again, without any model.

    Args:
        folder: what ``check(..., save=folder)`` wrote.
        atol: other tolerances than those of the run; see ``interop.check``.
        rtol: likewise.
        indices: see ``interop.check``.

    Raises:
        ModelFileError: the folder holds no finished run, or a damaged one.
        InputError: a tolerance names no output.
    """
    folder = Path(folder)
    try:
        data = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        if data["format"] != _FORMAT:
            raise ValueError(f"format {data['format']}, this version reads {_FORMAT}")
        runs = [_load(folder, position, item) for position, item in enumerate(data["runs"])]
        labels = tuple(map(str, data["candidates"]))
        head = (str(data["reference"]), labels, data["skipped"], int(data["seed"]), data["versions"])
    except InteropError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, zipfile.BadZipFile, EOFError) as error:
        raise ModelFileError(f"{folder}: no finished run that can be judged again: {error}") from error
    results = tuple(_judge(run, atol, rtol, indices or {}) for run in runs)
    return ParityReport(head[0], head[1], results, *head[2:])


def _load(folder: Path, position: int, item: dict[str, Any]) -> SavedRun:
    with np.load(folder / f"{position:04}.npz", allow_pickle=False) as arrays:
        groups = {group: {name: _read(arrays, d) for name, d in item[group].items()} for group in _GROUPS}
    allowances = {name: Allowance(**values) for name, values in item["allowances"].items()}
    if any(math.isnan(allowance.atol + allowance.rtol) for allowance in allowances.values()):
        raise ValueError("an allowance is not a number")
    return SavedRun(
        str(item["candidate"]), str(item["case"]), allowances=allowances, error=str(item["error"]), **groups
    )


def _read(arrays: Any, described: dict[str, Any]) -> Array:
    shape, dtype = tuple(described["shape"]), dtype_of(str(described["dtype"]))
    if dtype.kind == "string":
        return np.array([*described["texts"], None], dtype=object)[:-1].reshape(shape)
    values: Array = arrays[described["key"]]
    values = values.view(dtype.numpy) if dtype.extension else values
    if values.dtype != dtype.numpy:
        raise ValueError(f"{described['key']} is {values.dtype}, {dtype.name} is described")
    return values.reshape(shape)


def _judge(run: SavedRun, atol: Tolerance, rtol: Tolerance, indices: Mapping[str, Any]) -> CaseResult:
    if run.error:
        return CaseResult(run.candidate, run.case, False, f"it raised {run.error}", error=run.error)
    asked = resolve_tolerance(atol, rtol, list(run.reference))
    truths = {name: truth for name, truth in run.truths.items() if name not in asked}
    judged = compare_all(run.reference, run.outputs, {**run.allowances, **asked}, indices, truths)
    return CaseResult(run.candidate, run.case, judged.passed, judged.reason, judged.outputs)

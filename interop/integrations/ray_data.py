"""Batch inference over Ray Data, straight from the object store's shared memory.

A batch that Ray Data hands to an actor is a read-only NumPy view of memory that other processes see too. Bare DLPack calls lose
that flag: ``torch.from_dlpack`` gives a writable tensor at the same address, and a write through it changes the stored data for
everybody. Here ONNX Runtime reads the view where it is; frameworks that cannot mark memory read-only get a copy.

Source: https://docs.ray.io/en/latest/data/batch_inference.html
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from interop.errors import InputError
from interop.extras import require
from interop.runtimes import Runtime, load

__all__ = ["Predictor", "map_batches", "predictor"]

Batch = Mapping[str, np.ndarray[Any, Any]]


class Predictor:
    """What an actor of Ray Data calls: a batch of columns in, the model's outputs out.

    Attributes:
        runtime: the model.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        columns: Mapping[str, str] | None = None,
        keep: Iterable[str] = (),
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """Load the model, once an actor.

        Args:
            model: path of a model file or SavedModel, on a disk that every machine of the cluster sees.
            columns: ``{input name: column}``, where they differ; a model with one input takes the only column there is.
            keep: columns that stay beside the outputs, such as a key.
            options: of ``interop.load``, such as ``{"threads": 1}``.

        Raises:
            ModelFileError: no model.
            InputError: a column is to be kept that has the name of an output, or an unknown input.
        """
        self.runtime: Runtime = load(model, **dict(options or {}))
        self._columns, self._keep = dict(columns or {}), tuple(keep)
        signature = self.runtime.signature
        if unknown := sorted(set(self._columns) - set(signature.input_names)):
            raise InputError(f"columns={unknown} are no inputs of the model, which has {list(signature.input_names)}")
        if hidden := sorted(set(self._keep) & set(signature.output_names)):
            raise InputError(f"the columns {hidden} cannot be kept: outputs have these names; rename the columns first")

    def __call__(self, batch: Batch) -> dict[str, Any]:
        """Run a batch.

        Args:
            batch: ``{column: array}``; the first axis is the batch. It is read and never written.

        Returns:
            ``{output name: array}``, and the columns that are kept.

        Raises:
            InputError: a column is missing, has rows of different shapes, or does not fit the signature.
        """
        feed = {name: self._column(batch, name) for name in self.runtime.signature.input_names}
        outputs = self.runtime.run(feed)
        return {**{name: _existing(batch, name) for name in self._keep}, **outputs}

    def _column(self, batch: Batch, name: str) -> np.ndarray[Any, Any]:
        column = self._columns.get(name, name)
        if column not in batch and len(batch) == len(self.runtime.signature.inputs) == 1:
            column = next(iter(batch))
        array = _existing(batch, column)
        wanted = next(spec.dtype for spec in self.runtime.signature.inputs if spec.name == name)
        if array.dtype == object and wanted != "string":
            raise InputError(f"column {column!r} holds rows of different shapes; pad or resize them before the model")
        return array


def _existing(batch: Batch, column: str) -> np.ndarray[Any, Any]:
    if column not in batch:
        raise InputError(f"no column {column!r}; the data have {list(batch)}: give columns={{input: column}}")
    return batch[column]


def predictor(model: str | os.PathLike[str], **settings: Any) -> type[Predictor]:
    """A class for ``dataset.map_batches``, bound to a model.

    Args:
        model: see ``Predictor``.
        **settings: its keywords.

    Example:
        >>> dataset.map_batches(predictor("digits.onnx"), batch_size=64, compute=ray.data.ActorPoolStrategy(size=2))
    """
    path = Path(model).absolute()
    if not path.exists():
        raise InputError(f"no file or folder {path}; every actor loads it from there")

    class Bound(Predictor):
        """A ``Predictor`` of one model."""

        def __init__(self) -> None:
            super().__init__(path, **settings)

    return Bound


def map_batches(
    dataset: Any,
    model: str | os.PathLike[str],
    *,
    batch_size: int | None = None,
    actors: int = 1,
    columns: Mapping[str, str] | None = None,
    keep: Iterable[str] = (),
    options: Mapping[str, Any] | None = None,
    **ray_options: Any,
) -> Any:
    """Run a model over a Ray dataset.

    Args:
        dataset: a ``ray.data.Dataset``; where it computes is up to the Ray that this process is connected to.
        model: see ``Predictor``, like ``columns``, ``keep`` and ``options``.
        batch_size: rows in one run; None takes each block as it is, which is what needs no copy: a batch of parts of several
            blocks is put together in new memory.
        actors: processes that hold the model.
        columns: ``{input name: column}``.
        keep: columns that stay.
        options: of ``interop.load``.
        **ray_options: of ``Dataset.map_batches``, such as ``num_cpus``.

    Returns:
        The dataset of outputs, which Ray computes when it is asked for.

    Example:
        >>> map_batches(ray.data.read_numpy("images/"), "digits.onnx").write_parquet("labels/")
    """
    data = require("ray.data", "to run a model over a dataset")
    bound = predictor(model, columns=columns, keep=tuple(keep), options=options)
    asked = {"compute": data.ActorPoolStrategy(size=actors), "batch_format": "numpy", "zero_copy_batch": True}
    return dataset.map_batches(bound, batch_size=batch_size, **{**asked, **ray_options})

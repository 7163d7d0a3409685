"""An exported model as a Keras 3 layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras

from exporters.errors import OptionsError
from exporters.tensorflow._module import LoweredModule

__all__ = ["as_keras_layer"]


class _ExportedLayer(keras.layers.Layer):  # type: ignore[misc]  # keras is untyped
    """Calls the module; its variables are the layer's weights."""

    def __init__(self, module: LoweredModule, **options: Any) -> None:
        super().__init__(**options)
        self._module = module
        for variable in module.weights.values():
            self._track_variable(
                keras.Variable(
                    initializer=variable,  # the TensorFlow backend keeps this very variable
                    trainable=variable.trainable,
                    dtype=variable.dtype.name,
                    name=variable.name.split(":")[0].replace("/", "_"),
                )
            )
        self.built = True

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        """One tensor, a list in the order of the model's inputs, or a dict by their names."""
        if isinstance(inputs, Mapping):
            tensors = [inputs[name] for name in self._module.input_names]
        else:
            tensors = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
        results = self._module(*tensors, training=bool(training) and self._module.trains)
        return next(iter(results.values())) if len(results) == 1 else results


def as_keras_layer(exported: Any, **options: Any) -> keras.layers.Layer:
    """A layer for ``keras.Sequential`` or the functional API, over the live exported model.

    Args:
        exported: the result of ``export_model(model, "tensorflow")``; with the option ``trainable`` its weights train.
        **options: what ``keras.layers.Layer`` takes, such as ``name``.

    Returns:
        The layer: one tensor, a list, or a dict by input names goes in; one tensor or a dict by output names comes out.

    Raises:
        OptionsError: the model was exported to another format.

    Example:
        >>> backbone = as_keras_layer(export_model(model, "tensorflow", options={"trainable": True}))
        >>> classifier = keras.Sequential([backbone, keras.layers.Dense(5)])
    """
    module = getattr(getattr(exported, "artifact", exported), "module", None)
    if not isinstance(module, LoweredModule):
        raise OptionsError(f"as_keras_layer takes the result of export_model(model, 'tensorflow'), got {exported!r}")
    return _ExportedLayer(module, **options)

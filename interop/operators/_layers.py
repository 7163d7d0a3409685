"""Models of one framework as layers of another."""

from __future__ import annotations

from typing import Any

__all__ = ["as_keras_layer", "as_torch_module"]


def as_torch_module(model: Any, *, name: str | None = None) -> Any:
    """Make a loaded model a ``torch.nn.Module``.

    * A TensorFlow model is differentiable by its inputs. Its trainable variables become parameters (copies, which are
      assigned to the variables on each call), differentiable once.
    * A torch model is given as the module that it is.
    * ONNX Runtime and LiteRT have no gradients: outputs do not break the graph, and ``backward`` through one raises.

    The module works under ``torch.compile`` and ``torch.export``. It is called as the runtime is.

    Args:
        model: what ``interop.load`` gives, or takes.
        name: the operator's name in graphs and ONNX files; a running number by default.

    Returns:
        A ``torch.nn.Module``.

    Raises:
        OperatorError: the model has inputs or outputs that are not tensors.

    Example:
        >>> backbone = interop.as_torch_module("backbone_savedmodel")
        >>> head = torch.nn.Sequential(backbone, torch.nn.Linear(64, 10))
    """
    from interop.operators._torch_module import make_module

    return make_module(model, name)


def as_keras_layer(model: Any, *, name: str | None = None, **options: Any) -> Any:
    """Make a torch module, or a loaded ONNX or LiteRT model, a Keras 3 layer on the TensorFlow backend.

    A torch module is run by torch, eagerly, also inside ``tf.function``. Gradients reach its inputs and its parameters: each
    parameter is a Keras weight under its torch name, trainable where it requires grad, and read by torch without a copy.
    ``layer.update_module()`` copies trained weights back into the module. The module runs as ``module.eval()`` left it.

    This is for a model that cannot be exported, or not yet. ``exporters.tensorflow.as_keras_layer`` takes an exported model,
    which is a TensorFlow graph: it can be saved and needs no torch.

    Args:
        model: a ``torch.nn.Module`` in evaluation mode, or what ``interop.load`` gives or takes.
        name: the layer's name.
        **options: what ``keras.layers.Layer`` takes.

    Returns:
        A ``keras.layers.Layer``: one tensor, a list of arguments, or a dict by parameter names goes in; what the model gives
        comes out. It cannot be serialized.

    Raises:
        OperatorError: the module is in training mode, or the model is TensorFlow's own.

    Example:
        >>> model = keras.Sequential([interop.as_keras_layer(backbone.eval()), keras.layers.Dense(10)])
    """
    from interop.operators._keras_layer import make_layer

    return make_layer(model, name, options)

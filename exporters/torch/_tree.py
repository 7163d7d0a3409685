"""The modules and weights of the lowered model, at the places that their names say."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

__all__ = ["Tree", "identifier", "identifiers"]


def identifier(text: str, fallback: str = "value") -> str:
    """A text in the letters of a Python name."""
    safe = re.sub(r"\W", "_", text, flags=re.ASCII).strip("_") or fallback
    return f"_{safe}" if safe[0].isdigit() else f"{safe}_" if keyword.iskeyword(safe) else safe


def identifiers(names: Iterable[str], fallback: str = "value") -> list[str]:
    """Each text as a Python name, no two alike; what is a name already stays.

    Example:
        >>> identifiers(["a:0", "a_0", "1"])
        ['a_0_1', 'a_0', '_1']
    """
    names = list(names)
    kept = {name for name in names if identifier(name, fallback) == name}
    found: list[str] = []
    for name in names:
        safe = made = identifier(name, fallback)
        count = 0
        while made in found or (made in kept and made != name):
            count += 1
            made = f"{safe}_{count}"
        found.append(made)
    return found


class Tree:
    """Grows a tree of modules; a dotted name is the path of a weight in it.

    Attributes:
        root: the tree.
        names: where each weight of the ONNX model stands first.
    """

    def __init__(self) -> None:
        self.root = nn.Module()
        self.names: dict[str, str] = {}
        self._constants: list[str] = []
        self._shared: dict[str, torch.Tensor] = {}

    def add_weight(self, name: str, tensor: torch.Tensor, *, trainable: bool | None) -> str:
        """Place a parameter, or a buffer where ``trainable`` is None.

        Args:
            name: its name in the ONNX model.
            tensor: its value.
            trainable: whether it requires gradients.

        Returns:
            Its path, which is the name where that is free and fit to be one.
        """
        parent, leaf = self._place(name)
        path = f"{parent}.{leaf}" if parent else leaf
        holder = self.root.get_submodule(parent)
        if trainable is None:
            holder.register_buffer(leaf, tensor)
        else:
            holder.register_parameter(leaf, self.share(name, tensor, trainable))
        self.names.setdefault(name, path)
        return path

    def add_constant(self, tensor: torch.Tensor) -> str:
        """Place a constant: it moves with the module, and is no part of its state."""
        path = _free(self.root, "constant")
        self.root.register_buffer(path, tensor)
        self._constants.append(path)
        return path

    def keep_constants_out_of_the_state(self, module: nn.Module) -> None:
        """Mark the constants in a module that was made of this tree, which fx makes buffers like all others."""
        module._non_persistent_buffers_set.update(path for path in self._constants if path in module._buffers)

    def share(self, name: str, tensor: torch.Tensor, trainable: bool) -> nn.Parameter:
        """The one parameter of an initializer, however many modules use it."""
        if name not in self._shared:
            differentiable = tensor.is_floating_point() or tensor.is_complex()
            self._shared[name] = nn.Parameter(tensor, requires_grad=trainable and differentiable)
        found = self._shared[name]
        assert isinstance(found, nn.Parameter)
        return found

    def add_module(self, path: str, module: nn.Module) -> str:
        """Place a module at a path, or beside it where the path is taken."""
        parent, leaf = self._place(path)
        self.root.get_submodule(parent).add_module(leaf, module)
        return f"{parent}.{leaf}" if parent else leaf

    def is_free(self, path: str) -> bool:
        """Whether nothing stands at a path, and nothing but plain containers on the way to it."""
        here: Any = self.root
        for part in path.split("."):
            if type(here) is not nn.Module:
                return False
            if not hasattr(here, part):
                return True
            here = getattr(here, part)
        return False

    def _place(self, name: str) -> tuple[str, str]:
        """The parent's path and a free name in it."""
        parts = [re.sub(r"\W", "_", part, flags=re.ASCII) or "_" for part in name.split(".")]
        here, walked = self.root, list[str]()
        for part in parts[:-1]:
            part = self._container(here, part)
            here = here.get_submodule(part)
            walked.append(part)
        return ".".join(walked), _free(here, parts[-1])

    def _container(self, here: nn.Module, part: str) -> str:
        child = here._modules.get(part)
        if child is not None:
            return part
        free = _free(here, part)
        here.add_module(free, nn.Module())
        return free


def _free(module: nn.Module, name: str) -> str:
    free, count = name, 1
    while hasattr(module, free):
        free, count = f"{name}_{count}", count + 1
    return free

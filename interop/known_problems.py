"""Versions that are known to go wrong, alone or together: one row a problem."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

__all__ = ["Problem", "find_problems", "release"]


@dataclass(frozen=True, slots=True)
class Problem:
    """Something known to go wrong with the versions that are installed here.

    Attributes:
        packages: the packages with their versions.
        what: what goes wrong.
        remedy: what to do instead.
    """

    packages: tuple[str, ...]
    what: str
    remedy: str


def release(version: str) -> tuple[int, ...]:
    """The numbers of a version, without what follows them: ``"2.13.0+cpu"`` -> ``(2, 13, 0)``."""
    match = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, match[0].split("."))) if match else ()


Versions = Mapping[str, str]


def _has(versions: Versions, name: str, low: str = "0", high: str = "9999") -> bool:
    """True where the package is installed with ``low <= version < high``."""
    return name in versions and release(low) <= release(versions[name]) < release(high)


def _torchvision_differs(versions: Versions) -> bool:
    """True where torchvision was built for another torch: its operators then fail to register, and so its import.

    torchvision 0.(n + 15) belongs to torch 2.n, and both carry the build (``+cpu``, ``+cu130``) as local version.
    """
    if not (_has(versions, "torch", "2.0", "3.0") and "torchvision" in versions):
        return False
    torch, vision = versions["torch"], versions["torchvision"]
    if release(vision)[:2] != (0, release(torch)[1] + 15):
        return True
    return torch.partition("+")[2] != vision.partition("+")[2]


_OLD_PROTOBUF = ("tritonclient", "nvidia-pytriton", "mlserver", "kserve")


def _both(first: str, second: str) -> Callable[[Versions], bool]:
    return lambda versions: first in versions and second in versions


_RULES: tuple[tuple[tuple[str, ...], Callable[[Versions], bool], str, str], ...] = (
    (
        ("torch", "numpy"),
        lambda v: _has(v, "torch", "2.12", "2.14"),
        "torch.from_dlpack(array[::-1]) aborts the process: a negative stride",
        'interop.convert(array, "torch") copies such an array',
    ),
    (
        ("torch", "torchvision"),
        _torchvision_differs,
        "torchvision was built for another torch: importing it fails (operator torchvision::nms does not exist)",
        "install both from the same index, torchvision 0.(n+15) beside torch 2.n",
    ),
    (
        ("tensorflow", "tensorflow-cpu"),
        lambda v: _has(v, "tensorflow", "2.21", "2.22") or _has(v, "tensorflow-cpu", "2.21", "2.22"),
        "tf.experimental.dlpack.from_dlpack of memory that is not 64-byte aligned (most NumPy arrays) aborts at the "
        "first operator",
        'interop.convert(x, "tensorflow") copies such a tensor',
    ),
    (
        ("tensorflow", "tensorflow-cpu"),
        _both("tensorflow", "tensorflow-cpu"),
        "both install the same folder; removing one breaks the other",
        "uninstall both, then install one",
    ),
    (
        ("onnxruntime", "onnxruntime-gpu"),
        _both("onnxruntime", "onnxruntime-gpu"),
        "both install the same folder; which one is imported is luck",
        "uninstall both, then install one",
    ),
    (
        ("onnx-tf", "onnx"),
        lambda v: _has(v, "onnx-tf") and _has(v, "onnx", "1.19"),
        "import onnx_tf fails: it needs onnx.mapping, which is gone since onnx 1.19",
        'export_model(model, "tensorflow")',
    ),
    (
        ("tf2onnx", "keras"),
        lambda v: _has(v, "tf2onnx", "1.0", "1.18") and _has(v, "keras", "3.0"),
        "tf2onnx.convert.from_keras raises KeyError on every keras.Sequential",
        'export_model(model, "onnx"), which also corrects what tf2onnx computes otherwise',
    ),
    (
        ("nobuco", "keras"),
        lambda v: _has(v, "nobuco") and _has(v, "keras", "3.0"),
        "import nobuco fails",
        'export_model(model, "tensorflow")',
    ),
    *(
        (
            (name, "protobuf"),
            lambda v, name=name: _has(v, name) and _has(v, "protobuf", "7.0"),
            f"{name} needs protobuf < 7, and TensorFlow here another one",
            f"install {name} in an environment of its own",
        )
        for name in _OLD_PROTOBUF
    ),
)
"""Packages, the condition on their versions, what goes wrong, and what to do instead."""


def find_problems(versions: Versions) -> tuple[Problem, ...]:
    """The known bad pairs among installed versions.

    Args:
        versions: normalised distribution name -> version.
    """
    return tuple(
        Problem(tuple(f"{name} {versions[name]}" for name in names if name in versions), what, remedy)
        for names, applies, what, remedy in _RULES
        if applies(versions)
    )

"""The table of frameworks: recognition without imports, descriptions, third parties, errors."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import keras
import numpy as np
import onnxruntime
import pytest
import tensorflow as tf
import torch

import interop
from interop import ConversionError, convert, explain, framework_of
from interop.frameworks import FRAMEWORKS, TensorInfo, describe, framework

ROOT = Path(__file__).parents[2]


def run_python(code: str, *paths: Path) -> str:
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=ROOT,
        env={"PYTHONPATH": ":".join(map(str, [ROOT, *paths])), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    return run.stdout.strip()


def test_recognition_imports_no_framework() -> None:
    loaded = run_python("""
        import sys
        import numpy as np
        import interop
        from interop.frameworks import describe
        assert interop.framework_of(3) is None
        assert interop.framework_of(np.ones(3)) == "numpy"
        assert interop.framework_of(object()) is None
        interop.convert({"x": np.ones(3), "y": 1}, "numpy")
        describe(np.ones(3))
        print([name for name in ("torch", "tensorflow", "onnxruntime", "jax", "onnx", "keras") if name in sys.modules])
    """)
    assert loaded == "[]"


def test_framework_of_each_framework() -> None:
    assert framework_of(torch.ones(1)) == framework_of(torch.nn.Parameter(torch.ones(1))) == "torch"
    assert (
        framework_of(tf.ones(1)) == framework_of(tf.Variable(1.0)) == framework_of(keras.Variable(1.0)) == "tensorflow"
    )
    assert framework_of(np.ones(1)) == framework_of(np.float32(1)) == framework_of(np.ma.ones(1)) == "numpy"
    assert framework_of(onnxruntime.OrtValue.ortvalue_from_numpy(np.ones(1))) == "onnxruntime"
    assert framework_of(jnp.ones(1)) == "jax"


@pytest.mark.parametrize(
    "value", [None, 1, 1.5, True, "x", b"x", [], {}, object(), int, np, np.str_("x"), torch.float32]
)
def test_framework_of_plain_objects_is_none(value: Any) -> None:
    assert framework_of(value) is None


def test_describe_names_dtype_and_shape_alike() -> None:
    array = np.ones((2, 3), np.float16)
    tensors = [array, torch.from_numpy(array), tf.constant(array), jnp.asarray(array)]
    tensors.append(onnxruntime.OrtValue.ortvalue_from_numpy(array))
    for tensor in tensors:
        info = describe(tensor)
        assert isinstance(info, TensorInfo)
        assert (info.dtype, info.shape, info.contiguous, info.device, info.size) == ("float16", (2, 3), True, "cpu", 6)
    assert describe(array.T).strides == describe(torch.from_numpy(array).T).strides == (1, 3)


def test_describe_refuses_what_is_no_tensor() -> None:
    with pytest.raises(ConversionError, match="not a tensor"):
        describe([1, 2])


def test_explanation_is_one_readable_line() -> None:
    assert str(explain(torch.ones(2, 3), "numpy")) == "torch -> numpy float32[2, 3]: view, the memory is shared"
    assert "\n" not in str(explain(np.ones((2, 3))[::-1], "torch"))


@pytest.mark.parametrize("name", ["pytorch", "tensorflo", "", None, 3])
def test_convert_refuses_unknown_framework(name: Any) -> None:
    with pytest.raises(ConversionError, match="is not a framework; there are numpy, torch"):
        convert(np.ones(2), name)


def test_convert_suggests_the_nearest_framework() -> None:
    with pytest.raises(ConversionError, match="did you mean 'tensorflow'"):
        convert(np.ones(2), "tensorflow2")


def test_convert_names_the_extra_of_a_missing_framework(monkeypatch: pytest.MonkeyPatch) -> None:
    if "cupy" in sys.modules:
        pytest.skip("CuPy is installed")
    with pytest.raises(interop.MissingExtraError, match="cupy is needed to convert"):
        convert(np.ones(2), "cupy")


@pytest.mark.parametrize("copy", ["never", 2, "", 0.5])
def test_convert_refuses_other_values_of_copy(copy: Any) -> None:
    with pytest.raises(ConversionError, match="copy is None"):
        convert(np.ones(2), "torch", copy=copy)


@pytest.mark.parametrize("name", ["numpy", "torch", "tensorflow", "onnxruntime", "jax"])
def test_every_framework_has_the_same_functions(name: str) -> None:
    module = framework(name)
    assert name == module.NAME and FRAMEWORKS[name] == f"interop.frameworks.{name}"
    functions = (
        "owns",
        "describe",
        "address",
        "takes",
        "reaches",
        "to_array",
        "from_array",
        "to_capsule",
        "from_capsule",
    )
    for function in (*functions, "settle", "clone", "shortcut"):
        assert callable(getattr(module, function)), function
    assert not module.owns(int) and module.owns(module.PLAIN)


TOY = '''
"""A framework whose tensor is a list of floats in a bytearray."""
import numpy as np
from interop.frameworks import Needs, TensorInfo, Verdict
from toyframe import Toy

NAME, NEEDS, PLAIN = "toyframe", Needs(contiguous=True), Toy

def owns(kind): return issubclass(kind, Toy)
def describe(x): return TensorInfo(NAME, "float32", (len(x.data) // 4,))
def address(x): return to_array(x).ctypes.data
def takes(dtype): return Verdict("view") if dtype == "float32" else Verdict("refuse", f"toyframe has no {dtype}")
def reaches(device): return False
def to_array(x): return np.frombuffer(x.data, np.float32)
def from_array(array): return Toy(memoryview(array).cast("B"))
def to_capsule(x): raise NotImplementedError
def from_capsule(capsule): raise NotImplementedError
def settle(x): return x
def clone(x): return Toy(bytearray(x.data))
def shortcut(target): return None
'''


def test_third_party_framework_by_entry_point(tmp_path: Path) -> None:
    (tmp_path / "toyframe.py").write_text("class Toy:\n    def __init__(self, data):\n        self.data = data\n")
    (tmp_path / "toyframe_interop.py").write_text(TOY)
    info = tmp_path / "toyframe-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toyframe\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[interop.frameworks]\ntoyframe = toyframe_interop\n")
    printed = run_python(
        """
        import sys
        import numpy as np
        import interop
        assert interop.framework_of(np.ones(2)) == "numpy" and "toyframe" not in sys.modules
        array = np.arange(4, dtype=np.float32)
        toy = interop.convert({"x": array}, "toyframe")["x"]
        assert interop.framework_of(toy) == "toyframe"
        array[0] = 9
        back = interop.convert(toy, "numpy")
        assert back.tolist() == [9, 1, 2, 3] and back.ctypes.data == array.ctypes.data
        assert interop.convert(toy, "numpy", copy=True).ctypes.data != array.ctypes.data
        print(interop.explain(np.ones(2), "toyframe"))
        """,
        tmp_path,
    )
    assert printed == "numpy -> toyframe float64[2]: refuse, toyframe has no float64"

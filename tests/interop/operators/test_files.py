"""Models with operators in ONNX files: what is written, and how it runs."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch

import interop
from exporters import export_model
from interop.operators import OperatorError
from tests.interop.operators.file_operators import Model, bend, order

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return Model().eval()


@pytest.fixture(scope="module")
def file(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("operators") / "model.onnx"
    export_model(model, "onnx", path=path)
    return path


def _nodes(file):
    return [(node.domain, node.op_type) for node in onnx.load(file).graph.node]


def test_a_torch_body_is_traced_through_and_others_are_nodes(file):
    nodes = _nodes(file)
    assert ("ai.tensor_interop.bend.float32.float32_float32", "bend") in nodes
    assert ("ai.tensor_interop.order.float32.int64", "order") in nodes
    assert sum(domain == "" and name == "Mul" for domain, name in nodes) == 2  # of ``triple`` and of ``x * 2``
    assert not any("triple" in name for _, name in nodes)


def test_onnx_runtime_computes_the_same_at_other_sizes(model, file):
    runtime = interop.load(file, threads=1)
    for size in (1, 5):
        x = torch.randn(size, 4)
        for found, expected in zip(runtime(x), model(x)):
            torch.testing.assert_close(found, expected)
    found = runtime(np.ones((3, 4), np.float32))
    np.testing.assert_allclose(found[0], model(torch.ones(3, 4))[0].detach(), rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_other_precisions(dtype, tmp_path):
    torch.manual_seed(0)
    exported = export_model(Model(dtype).eval(), "onnx", path=tmp_path / "m.onnx")  # compared with the model in there
    carried = {torch.float64: "float64"}.get(dtype, "float32")
    assert (f"ai.tensor_interop.bend.{carried}.{carried}_{carried}", "bend") in _nodes(tmp_path / "m.onnx")
    assert exported.parity


def test_where_an_operator_is_not_defined_the_error_says_what_to_import(file):
    code = f"import interop; interop.load({str(file)!r})"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert run.returncode == 1
    assert "the operator 'bend'" in run.stderr
    assert "import tests.interop.operators.file_operators" in run.stderr


def test_an_error_in_an_operator_is_raised_and_the_session_lives_on(model, file):
    runtime = interop.load(file)
    with pytest.raises(interop.InteropError, match="ValueError: a test wants this to fail") as caught:
        runtime(torch.full((2, 4), 99.0))
    assert isinstance(caught.value.__cause__, ValueError)
    torch.testing.assert_close(runtime(torch.ones(2, 4))[0], model(torch.ones(2, 4))[0])


def test_an_error_reaches_the_thread_that_asked(file):
    runtime = interop.load(file)
    found = {}

    def work(index):
        try:
            for _ in range(20):
                runtime(torch.full((2, 4), 99.0 if index % 2 else 1.0))
            found[index] = "fine"
        except interop.InteropError as error:
            found[index] = str(error)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [index for index in range(6) if found[index] == "fine"] == [0, 2, 4]
    assert all("wants this" in found[index] for index in (1, 3, 5))


def test_an_error_in_a_thread_of_onnx_runtime_is_raised_too(file):
    options = ort.SessionOptions()
    options.execution_mode = ort.ExecutionMode.ORT_PARALLEL
    options.inter_op_num_threads = 2
    options.log_severity_level = 4
    with pytest.raises(interop.InteropError, match="wants this"):
        interop.load(file, session_options=options)(torch.full((2, 4), 99.0))


def test_session_options_may_be_used_again(model, file):
    options = ort.SessionOptions()
    for _ in range(2):
        runtime = interop.load(file, session_options=options)
    torch.testing.assert_close(runtime(torch.ones(2, 4))[0], model(torch.ones(2, 4))[0])


_HANDMADE = """
import numpy as np, onnx, interop
from onnx import TensorProto, helper
from interop.operators._call import call_of
from interop.operators._files import Stored, domain_of

def runtime_of(name, shift):
    operator = interop.operator("numpy", name=name)(lambda x: x + shift)
    call = call_of(("tuple", (), (("tuple", (), (0,)), ("dict", (), ()))))
    stored = Stored(name, call.text, "float32", "float32", "")
    domain = domain_of(name, ["float32"], ["float32"])
    node = helper.make_node(name, ["x"], ["y"], domain=domain, **stored._asdict())
    ends = [helper.make_tensor_value_info(end, TensorProto.FLOAT, ["n"]) for end in "xy"]
    graph = helper.make_graph([node], "graph", ends[:1], ends[1:])
    imports = [helper.make_opsetid("", 20), helper.make_opsetid(domain, 1)]
    return operator, interop.load(helper.make_model(graph, opset_imports=imports, ir_version=10))
"""


def test_sessions_survive_operators_that_come_later():
    """The library moves the operators of a domain when it takes a new one; a process died of it when all shared one."""
    code = (
        _HANDMADE
        + """
x = np.arange(3, dtype=np.float32)
kept = []
for shift in range(60):
    kept.append(runtime_of(f"later_{shift}", shift))
    for index in (0, shift // 2, shift):
        assert (kept[index][1](x) == x + index).all()
print("alive")
"""
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert run.stdout.strip() == "alive", run.stderr[-2000:]


def test_bfloat16(tmp_path):
    class Bent(torch.nn.Module):
        def forward(self, x):
            return bend(x)[0]

    exported = export_model(Bent(), "onnx", inputs=torch.linspace(-1, 1, 8).reshape(2, 4).bfloat16())
    x = torch.randn(3, 4).bfloat16()
    torch.testing.assert_close(interop.load(exported)(x), Bent()(x))


def _changed(file, tmp_path, **attributes):
    model = onnx.load(file)
    node = next(node for node in model.graph.node if node.op_type == "bend")
    for attribute in node.attribute:
        attribute.s = attributes.get(attribute.name, attribute.s.decode()).encode()
    onnx.save(model, tmp_path / "changed.onnx")
    return tmp_path / "changed.onnx"


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"operator": "nobody", "module": ""}, "one thing of its types"),
        ({"call": "[]"}, "not the text"),
        ({"call": "[" * 100_000}, "not the text"),
        ({"input_types": "float64"}, "one thing of its types"),
        ({"input_types": "rubbish"}, "one thing of its types"),
    ],
)
def test_a_damaged_node_is_refused(file, tmp_path, attributes, message):
    with pytest.raises(OperatorError, match=message):
        interop.load(_changed(file, tmp_path, **attributes))


def test_an_operator_that_gives_other_types_now_is_refused(file, monkeypatch):
    runtime = interop.load(file)
    monkeypatch.setattr(order, "function", lambda x: x)
    with pytest.raises(interop.InteropError, match=r"'order' gave \['float32'\], and gave \['int64'\]"):
        runtime(torch.ones(2, 4))


def test_a_model_without_operators_needs_no_extensions(tmp_path):
    export_model(torch.nn.Linear(3, 2).eval(), "onnx", path=tmp_path / "m.onnx", inputs=torch.ones(2, 3))
    code = f"import sys, interop; interop.load({str(tmp_path / 'm.onnx')!r}); print('onnxruntime_extensions' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert run.stdout.strip() == "False"


def test_an_operator_with_a_gradient_of_its_own_is_still_traced_through():
    @interop.operator("torch", name="clipped")
    def clipped(x):
        return x.clamp(0, 1)

    clipped.gradient(lambda upstream, x: upstream)

    class Straight(torch.nn.Module):
        def forward(self, x):
            return clipped(x)

    exported = export_model(Straight(), "onnx", inputs=torch.randn(2, 3))
    assert {node.domain for node in exported.artifact.model.graph} == {""}


def test_the_name_of_a_layer_of_another_framework_is_known():
    assert bend.name == "bend"

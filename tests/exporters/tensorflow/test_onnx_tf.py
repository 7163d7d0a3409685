"""The second engine: its stand-ins, its parity check, and what the real package says where it is installed."""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import tensorflow as tf
import torch
from onnx import TensorProto, helper

import interop
import models
from exporters import OptionsError, TranslationError, export_model
from exporters.tensorflow import TensorFlowOptions
from exporters.tensorflow._onnx_tf import standing_in
from interop import ParityError
from tests.node_suite.cases import all_cases

STAND_INS = ("onnx.mapping", "tensorflow_addons", "tensorflow_probability")
ENGINE = {"engine": "onnx-tf"}

needs_onnx_tf = pytest.mark.skipif(
    importlib.util.find_spec("onnx_tf") is None,
    reason="onnx-tf 1.10 is not installed: it requires tensorflow-addons, which has no release for this Python, so that "
    "pip check would fail; make onnx-tf installs it beside the environment and runs these",
)


def _assert_no_stand_ins():
    assert not [name for name in STAND_INS if name in sys.modules]
    assert not hasattr(onnx, "mapping") and not hasattr(onnx.helper, "mapping")


def test_stand_ins_are_there_only_inside_the_block():
    _assert_no_stand_ins()
    with standing_in():
        import tensorflow_addons
        import tensorflow_probability
        from onnx import mapping
        from onnx.helper import mapping as same

        assert mapping is same
        assert mapping.TENSOR_TYPE_TO_NP_TYPE[TensorProto.FLOAT] == np.float32
        assert mapping.NP_TYPE_TO_TENSOR_TYPE[np.dtype("int64")] == TensorProto.INT64
        assert mapping.TENSOR_TYPE_TO_STORAGE_TENSOR_TYPE[TensorProto.FLOAT16] == TensorProto.INT32
        assert mapping.STORAGE_TENSOR_TYPE_TO_FIELD[TensorProto.DOUBLE] == "double_data"
        logits = tf.constant([[1.0, 5.0, 5.0], [3.0, 2.0, 1.0]])
        assert tensorflow_addons.seq2seq.hardmax(logits).numpy().tolist() == [[0, 1, 0], [1, 0, 0]]
        chances = tf.constant([0.0, 1.0, 0.3] * 2000)
        drawn = tensorflow_probability.distributions.Bernoulli(probs=chances, dtype=tf.int32).sample(seed=3)
        assert drawn.dtype == tf.int32
        mean = drawn.numpy().reshape(-1, 3).mean(0)
        assert mean[0] == 0 and mean[1] == 1 and 0.25 < mean[2] < 0.35
    _assert_no_stand_ins()


def test_stand_ins_are_gone_after_a_failure_and_real_modules_stay(monkeypatch):
    real = ModuleType("tensorflow_probability")
    monkeypatch.setitem(sys.modules, "tensorflow_probability", real)
    with pytest.raises(RuntimeError), standing_in():
        assert sys.modules["tensorflow_probability"] is real and "tensorflow_addons" in sys.modules
        raise RuntimeError
    assert sys.modules["tensorflow_probability"] is real
    monkeypatch.undo()
    _assert_no_stand_ins()


def _install(monkeypatch, prepare):
    """A package of that name whose backend is ``prepare``."""
    package, backend = ModuleType("onnx_tf"), ModuleType("onnx_tf.backend")
    package.__spec__ = ModuleSpec("onnx_tf", None)  # torch._dynamo looks for the packages that it knows
    backend.TensorflowBackend = SimpleNamespace(prepare=prepare)
    package.backend = backend
    monkeypatch.setitem(sys.modules, "onnx_tf", package)
    monkeypatch.setitem(sys.modules, "onnx_tf.backend", backend)


def _addition(names, opset=21):
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in names]
    output = helper.make_tensor_value_info("sum", TensorProto.FLOAT, ["n"])
    graph = helper.make_graph([helper.make_node("Add", names, ["sum"])], "g", values, [output])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def test_the_package_gets_an_opset_and_names_that_it_knows_and_the_model_keeps_its_own(monkeypatch):
    seen = []

    def prepare(proto, **_):
        assert all(name in sys.modules for name in STAND_INS)
        seen.append(([value.name for value in proto.graph.input], proto.opset_import[0].version))
        return SimpleNamespace(tf_module=lambda **values: {"sum": tf.add_n(list(values.values()))})

    _install(monkeypatch, prepare)
    model = _addition(["0", "b"])
    before = model.SerializeToString()
    exported = export_model(model, "tensorflow", options=ENGINE)
    ((inputs, opset),) = seen
    assert opset == 16 and all(name.isidentifier() for name in inputs) and inputs[1] == "b"
    assert model.SerializeToString() == before
    assert exported.signature.input_names == ("0", "b")
    results = interop.load(exported).run({"0": np.ones(3, np.float32), "b": np.full(3, 2, np.float32)})
    np.testing.assert_array_equal(results["sum"], [3, 3, 3])
    _assert_no_stand_ins()


def test_another_function_is_refused_even_without_verify(monkeypatch):
    def prepare(proto, **_):
        names = [value.name for value in proto.graph.input]
        return SimpleNamespace(tf_module=lambda **values: {"sum": values[names[0]] - values[names[1]]})

    _install(monkeypatch, prepare)
    with pytest.raises(ParityError, match="another function; use the native engine") as caught:
        export_model(_addition(["a", "b"]), "tensorflow", options=ENGINE, verify=False)
    assert not caught.value.report.passed


def test_whatever_the_package_raises_is_a_refusal_that_names_the_native_engine(monkeypatch):
    def prepare(proto, **_):
        raise NotImplementedError("Add version 14 is not implemented.")

    _install(monkeypatch, prepare)
    with pytest.raises(TranslationError, match=r"Add version 14 is not implemented.*engine='native'"):
        export_model(_addition(["a", "b"]), "tensorflow", options=ENGINE)
    _assert_no_stand_ins()


def test_a_missing_package_is_named_with_the_call_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx_tf", None)
    with pytest.raises(OptionsError, match=r"pip install --no-deps onnx-tf==1\.10\.0"):
        export_model(_addition(["a", "b"]), "tensorflow", options=ENGINE)
    _assert_no_stand_ins()


def test_options_say_what_the_engine_cannot():
    with pytest.raises(OptionsError, match="'native' or 'onnx-tf'"):
        TensorFlowOptions(engine="onnx2tf")
    with pytest.raises(OptionsError, match="needs engine='native'"):
        TensorFlowOptions(engine="onnx-tf", trainable=True)


@needs_onnx_tf
@pytest.mark.parametrize("name", ["digits", "mlp"])
def test_both_engines_agree_with_torch_after_saving(name, tmp_path):
    model = models.load(name)
    for engine in ("native", "onnx-tf"):
        path = export_model(model, "tensorflow", options={"engine": engine}, path=tmp_path / engine).path
        runtime = interop.load(path)
        (x,) = model.example_inputs()
        for batch in (x, torch.cat([x, x])[:3]):
            with torch.no_grad():
                torch.testing.assert_close(runtime(batch), model(batch), rtol=1e-4, atol=1e-5)


@needs_onnx_tf
@pytest.mark.parametrize("name", ["gpt", "lstm_tagger", "resnet"])
def test_models_that_it_cannot_convert_are_refused(name):
    with pytest.raises(TranslationError, match=r"onnx-tf cannot convert this model .*native"):
        export_model(models.load(name), "tensorflow", options=ENGINE)
    _assert_no_stand_ins()


WITNESSED = [
    "test_abs", "test_add_bcast", "test_argmax_keepdims_random", "test_averagepool_2d_default", "test_concat_3d_axis_1",
    "test_conv_with_strides_padding", "test_depthtospace_example", "test_elu", "test_gather_0", "test_hardmax_axis_1",
    "test_matmul_4d", "test_maxpool_2d_default", "test_pow", "test_softmax_axis_1", "test_transpose_default",
]  # fmt: skip


@needs_onnx_tf
@pytest.mark.parametrize("name", WITNESSED)
def test_a_second_witness_agrees_with_the_native_engine_on_a_case_of_the_suite(name):
    case = all_cases()[f"node/{name}"]
    model = ir.from_proto(case.model)
    runtimes = [
        interop.load(export_model(model, "tensorflow", options={"engine": engine}, verify=False))
        for engine in ("native", "onnx-tf")
    ]
    for inputs, expected in case.data():
        for runtime in runtimes:
            found = runtime.run(dict(zip(runtime.signature.input_names, inputs, strict=True)))
            for got, want in zip(found.values(), expected, strict=True):
                np.testing.assert_allclose(got, want, rtol=case.rtol, atol=case.atol)

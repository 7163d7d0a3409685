"""Further signatures of a SavedModel: some outputs, and the inputs that they need."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import tensorflow as tf
import torch
from onnx import TensorProto, helper
from torch import nn

import interop
from exporters import OptionsError, export_model
from exporters.tensorflow import TensorFlowOptions


class TwoTowers(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.image, self.text, self.norm = nn.Linear(4, 3), nn.Linear(5, 3), nn.BatchNorm1d(3)

    def forward(self, image, text):
        i, t = self.norm(self.image(image)), torch.tanh(self.text(text))
        return {"image_embedding": i, "text_embedding": t, "logits": i @ t.T}


EXAMPLE = (torch.randn(2, 4), torch.randn(2, 5))
SIGNATURES = {
    "embed image": "image_embedding",
    "text": ["text_embedding"],
    "both": ("text_embedding", "image_embedding"),
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("signatures") / "model"
    exported = export_model(
        TwoTowers().eval(), "tensorflow", inputs=EXAMPLE, path=path, options={"signatures": SIGNATURES}
    )
    return path, exported


def test_signatures_take_the_inputs_that_their_outputs_need(saved):
    loaded = tf.saved_model.load(str(saved[0]))
    assert set(loaded.signatures) == {"serving_default", *SIGNATURES}
    found = {
        name: (sorted(function.structured_input_signature[1]), sorted(function.structured_outputs))
        for name, function in loaded.signatures.items()
    }
    assert found == {
        "serving_default": (["image", "text"], ["image_embedding", "logits", "text_embedding"]),
        "embed image": (["image"], ["image_embedding"]),
        "text": (["text"], ["text_embedding"]),
        "both": (["image", "text"], ["image_embedding", "text_embedding"]),
    }
    assert loaded.signatures["text"].structured_input_signature[1]["text"].shape.as_list() == [None, 5]


def test_signatures_compute_what_torch_computes_at_another_batch_size(saved):
    image, text = torch.randn(7, 4), torch.randn(7, 5)
    with torch.no_grad():
        expected = TwoTowers().eval()(image, text)
    given = {"image": image, "text": text}
    for model in (saved[0], saved[1].artifact.module):
        for name, outputs in SIGNATURES.items():
            runtime = interop.load(model, signature=name)
            outputs = (outputs,) if isinstance(outputs, str) else tuple(outputs)
            assert runtime.signature.output_names == outputs  # in the order asked for, under the model's names
            results = runtime.run({key: given[key] for key in runtime.signature.input_names})
            for output in outputs:
                torch.testing.assert_close(results[output], expected[output], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(
        interop.load(saved[0], signature="text")(text), expected["text_embedding"], rtol=1e-5, atol=1e-6
    )


def test_the_whole_model_is_as_it_was(saved):
    plain = export_model(TwoTowers().eval(), "tensorflow", inputs=EXAMPLE)
    assert interop.load(saved[0]).signature == interop.load(plain).signature
    assert len(tf.saved_model.load(str(saved[0])).weights) == len(plain.artifact.module.weights)


def test_what_a_signature_does_not_need_is_not_in_its_graph(saved):
    functions = saved[1].artifact.module.signatures_to_save()
    types = {name: [op.type for op in function.graph.get_operations()] for name, function in functions.items()}
    assert types["serving_default"].count("MatMul") == 3 and types["serving_default"].count("Tanh") == 1
    assert types["embed image"].count("MatMul") == 1 and "Tanh" not in types["embed image"]


def test_serving_signatures_stay_in_evaluation_mode_beside_a_training_signature(tmp_path):
    options = TensorFlowOptions(training=True, signatures={"embed": "image_embedding"})
    model = TwoTowers().eval()
    export_model(model, "tensorflow", inputs=EXAMPLE, path=tmp_path / "m", options=options)
    loaded = tf.saved_model.load(str(tmp_path / "m"))
    assert set(loaded.signatures) == {"serving_default", "training", "embed"}
    image = torch.randn(6, 4)
    with torch.no_grad():
        expected = model(image, torch.randn(6, 5))["image_embedding"]
    loaded.weights["image.weight"].assign_add(tf.ones([3, 4]))  # one variable behind all signatures
    with torch.no_grad():
        model.image.weight += 1
        moved = model(image, torch.randn(6, 5))["image_embedding"]
    assert (moved - expected).abs().max() > 0.1
    result = loaded.signatures["embed"](image=tf.constant(image.numpy()))["image_embedding"]
    np.testing.assert_allclose(result, moved.numpy(), rtol=1e-5, atol=1e-5)


def _text(body, opset=21, more=""):
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}{more}]> {body}')


def test_what_branches_capture_is_needed(tmp_path):
    model = _text("""
        model (bool flag, float[3] a, float[3] b, float[3] c) => (float[3] "picked/out", float[3] other) {
            doubled = Add(b, b)
            "picked/out" = If (flag) <
                then_branch = yes () => (float[3] d) { d = Identity(doubled) },
                else_branch = no () => (float[3] n) { n = Mul(a, a) }
            >
            other = Neg(c)
        }""")
    options = {"signatures": {"pick": "picked/out", "same": "other"}}
    export_model(model, "tensorflow", path=tmp_path / "m", options=options, verify=False)
    runtime = interop.load(tmp_path / "m", signature="pick")
    assert runtime.signature.input_names == ("flag", "a", "b")
    a, b = np.float32([1, 2, 3]), np.float32([10, 20, 30])
    for flag, expected in ((True, b * 2), (False, a * a)):
        np.testing.assert_array_equal(runtime.run({"flag": np.array(flag), "a": a, "b": b})["picked/out"], expected)


def test_a_gradient_keeps_the_value_that_it_names(tmp_path):
    # dc/da of c = a * b, where only an attribute says that c is what is differentiated.
    float_ = helper.make_tensor_type_proto(TensorProto.FLOAT, [])
    nodes = [
        helper.make_node("Mul", ["a", "b"], ["c"]),
        helper.make_node(
            "Gradient", ["a", "b"], ["slope"], domain="ai.onnx.preview.training", xs=["a"], zs=["b"], y="c"
        ),
        helper.make_node("Neg", ["a"], ["other"]),
    ]
    values = {name: helper.make_value_info(name, float_) for name in ("a", "b", "slope", "other")}
    graph = helper.make_graph(nodes, "g", [values["a"], values["b"]], [values["slope"], values["other"]])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.preview.training", 1)]
    model = helper.make_model(graph, opset_imports=opsets)
    export_model(model, "tensorflow", path=tmp_path / "m", options={"signatures": {"slope": "slope"}}, verify=False)
    result = interop.load(tmp_path / "m", signature="slope").run({"a": np.float32(3), "b": np.float32(5)})
    assert result["slope"] == 5


def test_an_output_that_is_an_input_and_one_that_is_a_sequence(tmp_path):
    model = _text("""
        model (float[n] x, float[m] y) => (float[m] z, seq(float[k]) parts) {
            z = Identity(y)
            parts = SplitToSequence<axis = 0, keepdims = 1>(x)
        }""")
    options = {"signatures": {"parts": "parts", "z": "z"}}
    export_model(model, "tensorflow", path=tmp_path / "m", options=options, verify=False)
    parts = interop.load(tmp_path / "m", signature="parts")
    assert parts.signature.input_names == ("x",) and parts.signature.outputs[0].kind == "sequence"
    assert [item.tolist() for item in parts.run({"x": np.float32([4, 5])})["parts"]] == [[4], [5]]
    y = np.float32([1, 2, 3])
    np.testing.assert_array_equal(interop.load(tmp_path / "m", signature="z").run({"y": y})["z"], y)


def test_no_stored_name_is_doubted(saved, recwarn):
    for name in ("serving_default", *SIGNATURES):
        interop.load(saved[0], signature=name)
    assert [str(warning.message) for warning in recwarn if "ignored" in str(warning.message)] == []


def test_an_unknown_output_is_an_error_with_those_that_there_are():
    with pytest.raises(
        OptionsError, match=r"'image_embeding', its outputs are image_embedding, .*did you mean 'image_emb"
    ):
        export_model(
            TwoTowers().eval(), "tensorflow", inputs=EXAMPLE, options={"signatures": {"embed": "image_embeding"}}
        )


@pytest.mark.parametrize(
    ("signatures", "said"),
    [
        ({"serving_default": "y"}, "serving_default, training and names in __ are taken"),
        ({"training": "y"}, "cannot name a signature"),
        ({"": "y"}, "cannot name a signature"),
        ({"__saved_model_init_op": "y"}, "cannot name a signature"),
        ({"a": []}, r"got \[\] for 'a'"),
        ({"a": [1]}, r"got \[1\] for 'a'"),
        ({"a": {"outputs": "y"}}, "signatures is"),
        (["y"], "signatures is"),
    ],
)
def test_a_wrong_form_is_an_error(signatures, said):
    with pytest.raises(OptionsError, match=said):
        TensorFlowOptions(signatures=signatures)


def test_onnx_tf_has_one_signature():
    with pytest.raises(OptionsError, match="further ones need engine='native'"):
        TensorFlowOptions(engine="onnx-tf", signatures={"a": "y"})


def test_an_unknown_signature_is_an_error_also_in_memory(saved):
    for model in (saved[0], saved[1].artifact.module):
        with pytest.raises(
            interop.ModelFileError, match="no signature 'embed'; it has both, embed image, serving_default"
        ):
            interop.load(model, signature="embed")

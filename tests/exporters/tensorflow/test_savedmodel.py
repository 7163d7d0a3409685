"""A SavedModel as its users expect it."""

from __future__ import annotations

import keras
import numpy as np
import onnx
import pytest
import tensorflow as tf
import torch
from onnx import TensorProto, helper
from torch import nn

import interop
import models
from exporters import OptionsError, UnsupportedOperatorError, export_model
from exporters.tensorflow import as_keras_layer
from exporters.tensorflow._names import safe_names, variable_names

NAMES = [
    "/x",
    "a:0",
    "_x",
    "onnx::Add_3",
    "input.1",
    "a.b",
    "a_b",
    "a/b",
    "x-y",
    "1in",
    "self",
    "x,x",
    "a b",
    "größe",
    "class",
    "X",
    "x",
]


def _model(names):
    """``out_i = in_i * weight + i``: every input has an effect of its own."""
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 3]) for name in names]
    outputs = [helper.make_tensor_value_info(f"{name}!", TensorProto.FLOAT, ["n", 3]) for name in names]
    nodes = []
    weights = [helper.make_tensor("onnx::w/0", TensorProto.FLOAT, [3], [1.0, 2.0, 3.0])]
    for index, name in enumerate(names):
        weights.append(helper.make_tensor(f"c{index}", TensorProto.FLOAT, [1], [float(index)]))
        nodes.append(helper.make_node("Mul", [name, "onnx::w/0"], [f"product {index}"]))
        nodes.append(helper.make_node("Add", [f"product {index}", f"c{index}"], [f"{name}!"]))
    graph = helper.make_graph(nodes, "names", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


def test_every_name_works_everywhere_and_none_is_mixed_up(tmp_path):
    model = _model(NAMES)
    onnx.checker.check_model(model)
    exported = export_model(model, "tensorflow", path=tmp_path / "m", verify=False)
    feeds = {name: np.full((2, 3), float(i), np.float32) for i, name in enumerate(NAMES)}
    for runtime in (interop.load(exported), interop.load(tmp_path / "m")):
        assert runtime.signature.input_names == tuple(NAMES)
        assert runtime.signature.output_names == tuple(f"{name}!" for name in NAMES)
        results = runtime.run(feeds)
        assert list(results) == [f"{name}!" for name in NAMES]
        for index, name in enumerate(NAMES):
            expected = np.array([1, 2, 3]) * index + index
            np.testing.assert_array_equal(results[f"{name}!"], np.tile(expected, (2, 1)).astype(np.float32))


@pytest.mark.parametrize("name", NAMES)
def test_each_name_alone_survives_saving(name, tmp_path):
    export_model(_model([name]), "tensorflow", path=tmp_path / "m", verify=False)
    result = interop.load(tmp_path / "m").run({name: np.ones((1, 3), np.float32)})
    np.testing.assert_array_equal(result[f"{name}!"], [[1, 2, 3]])


def test_safe_names_are_distinct_identifiers_and_good_names_stay():
    mapping = safe_names(NAMES)
    assert sorted(mapping) == sorted(NAMES)
    assert len({value.lower() for value in mapping.values()}) == len(NAMES)
    assert all(value.isidentifier() and value.isascii() for value in mapping.values())
    assert mapping["a_b"] == "a_b" and mapping["X"] == "X"


def test_variable_names_are_distinct_and_keep_torch_names():
    mapping = variable_names(["layer.0.weight", "a:0", "a_0", "/x", "_x", "onnx::w"])
    assert mapping["layer.0.weight"] == "layer.0.weight"
    assert len(set(mapping.values())) == 6 and not any(":" in value for value in mapping.values())


def test_signature_has_the_onnx_names_exact_dtypes_and_none_for_symbols(tmp_path):
    class Odd(nn.Module):
        def forward(self, tokens, scale, flag, unused):
            return {"b_first": tokens * 2, "a_second": torch.where(flag, scale, -scale), "half": scale.half()}

    example = (
        torch.ones(2, 3, dtype=torch.int64),
        torch.tensor(2.0, dtype=torch.float64),
        torch.tensor(True),
        torch.ones(2, 1),
    )
    export_model(Odd(), "tensorflow", inputs=example, path=tmp_path / "m")
    function = tf.saved_model.load(str(tmp_path / "m")).signatures["serving_default"]
    specs = function.structured_input_signature[1]
    assert {name: (spec.dtype.name, spec.shape.as_list()) for name, spec in specs.items()} == {
        "tokens": ("int64", [None, 3]),
        "scale": ("float64", []),
        "flag": ("bool", []),
        "unused": ("float32", [None, 1]),
    }
    assert {name: spec.dtype.name for name, spec in function.structured_outputs.items()} == {
        "b_first": "int64",
        "a_second": "float64",
        "half": "float16",
    }
    assert interop.load(tmp_path / "m").signature.output_names == ("b_first", "a_second", "half")


@pytest.mark.parametrize("trainable", [False, True])
def test_weights_are_variables_under_their_torch_names(tmp_path, trainable):
    model = models.load("mlp")
    export_model(model, "tensorflow", path=tmp_path / "m", options={"trainable": trainable})
    loaded = tf.saved_model.load(str(tmp_path / "m"))
    parameters = dict(model.named_parameters())
    assert set(loaded.weights) >= set(parameters)
    for name, parameter in parameters.items():
        value = parameter.detach().numpy()
        # A model that does not train has its matrices in the layout of TensorFlow's own layers: (in, out).
        expected = value.T if value.ndim == 2 and not trainable else value
        np.testing.assert_array_equal(loaded.weights[name].numpy(), expected, strict=True)


def test_nothing_large_is_a_constant_in_the_graph(tmp_path):
    table = torch.arange(200_000)

    class Lookup(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("table", table)

        def forward(self, index):
            return self.table[index]

    export_model(Lookup(), "tensorflow", inputs=torch.tensor([3, 5]), path=tmp_path / "m")
    assert (tmp_path / "m" / "saved_model.pb").stat().st_size < 200_000
    assert interop.load(tmp_path / "m")(torch.tensor([199_999])).tolist() == [199_999]


def test_serving_layout_keeps_other_versions(tmp_path):
    for version in (2, 10):
        torch.manual_seed(version)
        export_model(nn.Linear(4, 2), "tensorflow", path=tmp_path / "served", options={"version": version})
    assert sorted(entry.name for entry in (tmp_path / "served").iterdir()) == ["10", "2"]
    x = torch.randn(3, 4)
    for version, path in ((2, tmp_path / "served" / "2"), (10, tmp_path / "served")):  # the newest, as the server does
        torch.manual_seed(version)
        torch.testing.assert_close(interop.load(path)(x), nn.Linear(4, 2)(x).detach())
    with pytest.raises(OptionsError, match="version"):
        export_model(nn.Linear(4, 2), "tensorflow", options={"version": "new"})


def test_the_file_is_a_keras_layer(tmp_path):
    model = models.load("digits")
    export_model(model, "tensorflow", path=tmp_path / "m", options={"trainable": True})
    layer = keras.layers.TFSMLayer(str(tmp_path / "m"), call_endpoint="serving_default")
    (image,) = model.example_inputs()
    with torch.no_grad():
        expected = model(image).numpy()
    np.testing.assert_allclose(layer(image.numpy())["output"], expected, rtol=1e-4, atol=1e-5)
    assert len(layer.trainable_variables) == len(list(model.parameters()))


def test_the_live_object_trains_inside_keras_sequential():
    model = models.load("mlp")
    layer = as_keras_layer(export_model(model, "tensorflow", options={"trainable": True}), name="backbone")
    network = keras.Sequential([keras.Input((16,)), layer, keras.layers.Dense(3)])
    assert len(layer.trainable_variables) == len(list(model.parameters()))
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(64, 16)).astype(np.float32), rng.integers(0, 3, 64)
    before = layer.trainable_variables[0].numpy().copy()
    network.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    losses = network.fit(x, y, epochs=5, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    assert not np.array_equal(layer.trainable_variables[0].numpy(), before)


def test_an_untrainable_export_gives_an_untrainable_layer():
    layer = as_keras_layer(export_model(models.load("mlp"), "tensorflow"))
    assert layer.trainable_variables == [] and len(layer.non_trainable_variables) > 0
    with pytest.raises(OptionsError, match="as_keras_layer"):
        as_keras_layer(3)


def test_any_onnx_file_is_a_source_also_with_external_data(tmp_path):
    torch.manual_seed(0)
    layer = nn.Linear(300, 200)
    program = torch.onnx.export(layer, (torch.ones(2, 300),), dynamo=True, verbose=False)
    program.save(str(tmp_path / "theirs.onnx"), external_data=True)
    assert len(list(tmp_path.iterdir())) == 2
    exported = export_model(str(tmp_path / "theirs.onnx"), "tensorflow", path=tmp_path / "m")
    x = torch.randn(2, 300)
    torch.testing.assert_close(interop.load(exported.path)(x), layer(x).detach(), rtol=1e-4, atol=1e-5)


def test_unsupported_operators_are_all_reported_before_any_work(tmp_path):
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="fine"),
        helper.make_node("Strange", ["a"], ["b"], name="first", domain="my.domain"),
        helper.make_node("Stranger", ["b"], ["y"], name="second", domain="my.domain"),
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "g", [value("x", 1, [2])], [value("y", 1, [2])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("my.domain", 1)])
    with pytest.raises(UnsupportedOperatorError) as caught:
        export_model(model, "tensorflow", path=tmp_path / "m", verify=False)
    assert [(row.operator, row.node) for row in caught.value.unsupported] == [
        ("my.domain::Strange", "first"),
        ("my.domain::Stranger", "second"),
    ]
    assert list(tmp_path.iterdir()) == []

"""SavedModels and TensorFlow modules in memory."""

from __future__ import annotations

import json
import threading

import numpy as np
import pytest
import tensorflow as tf
import torch

import interop
from interop.errors import InputError, ModelFileError
from interop.signature import Signature, TensorSpec
from interop.structure import Leaf, Node
from tests.interop.runtime_models import Nested, Pair, nested_inputs

NAMES = {"inputs": {"x": "x_in", "batch/k:0": "arg_1"}, "outputs": {"total": "t", "p 0": "a", "p 1": "b"}}


def stored_signature(class_name: str = "") -> Signature:
    """What an exporter would store for ``Nested`` with names that TensorFlow does not allow."""
    children = (Leaf("total"), Node("tuple", (Leaf("p 0"), Leaf("p 1"))))
    results = Node("object" if class_name else "dict", children, ("total", "parts"), class_name)
    return Signature(
        tuple(TensorSpec(name, "float32", ("rows", 3)) for name in NAMES["inputs"]),
        tuple(TensorSpec(name, "float32", ("rows", 3)) for name in NAMES["outputs"]),
        Node("tuple", (Leaf("x"), Node("dict", (Leaf("batch/k:0"),), ("k",)))),
        Node("dict", ()),
        results,
        ("x", "batch"),
    )


def metadata(class_name: str = "") -> dict:
    return {"signature": stored_signature(class_name).to_json(), "names": NAMES}


class Module(tf.Module):
    """``Nested`` with a variable in it."""

    def __init__(self) -> None:
        super().__init__()
        self.two = tf.Variable(2.0)

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, 3], tf.float32, name="x_in"),
            tf.TensorSpec([None, 3], tf.float32, name="arg_1"),
        ]
    )
    def serve(self, x_in, arg_1):
        return {"t": x_in * self.two + arg_1, "a": x_in - arg_1, "b": arg_1 + 1}

    def serving_signature(self):
        return self.serve.get_concrete_function()


class ModuleWithMetadata(Module):
    """As an exporter hands it over before it is saved."""

    @property
    def interop_metadata(self):
        return metadata()


def write(folder, data=None):
    module = Module()
    tf.saved_model.save(module, str(folder), signatures={"serving_default": module.serve, "other": module.serve})
    if data is not None:
        extra = folder / "assets.extra"
        extra.mkdir()
        (extra / "tensor_interop.json").write_text(data if isinstance(data, str) else json.dumps(data))
    return folder


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return write(tmp_path_factory.mktemp("plain") / "saved")


@pytest.fixture(scope="module")
def described(tmp_path_factory):
    return write(tmp_path_factory.mktemp("described") / "saved", metadata())


def with_metadata(source, target, text: str):
    """A copy of a SavedModel with other metadata, which is cheaper than saving it again."""
    import shutil

    shutil.copytree(source, target)
    (target / "assets.extra").mkdir(exist_ok=True)
    (target / "assets.extra" / "tensor_interop.json").write_text(text)
    return target


def check(given, x, k) -> None:
    expected = Nested()(x, {"k": k})
    assert list(given) == ["total", "parts"] and isinstance(given["parts"], tuple)
    np.testing.assert_array_equal(np.asarray(given["total"]), expected["total"].numpy())
    np.testing.assert_array_equal(np.asarray(given["parts"][0]), expected["parts"][0].numpy())
    np.testing.assert_array_equal(np.asarray(given["parts"][1]), expected["parts"][1].numpy())


# --- names, order, values


def test_without_metadata_the_names_are_tensorflows(plain):
    runtime = interop.load(plain)
    assert runtime.name == runtime.framework == "tensorflow" and runtime.path == plain
    assert {str(spec) for spec in runtime.signature.inputs} == {"x_in: float32[?, 3]", "arg_1: float32[?, 3]"}
    x, batch = nested_inputs()
    outputs = runtime.run({"x_in": x, "arg_1": batch["k"]})
    assert set(outputs) == {"t", "a", "b"} and torch.equal(outputs["t"], x * 2 + batch["k"])
    assert torch.equal(outputs["a"], x - batch["k"]) and torch.equal(outputs["b"], batch["k"] + 1)


def test_metadata_gives_the_models_own_names_order_and_nesting(described):
    runtime = interop.load(described)
    assert runtime.signature == stored_signature()
    for rows in (4, 1):
        x, batch = nested_inputs(rows)
        check(runtime(x, batch), x, batch["k"])
        outputs = runtime.run({"batch/k:0": batch["k"], "x": x})
        assert list(outputs) == ["total", "p 0", "p 1"] and torch.equal(outputs["p 1"], batch["k"] + 1)


def test_a_loaded_class_is_built_from_metadata(plain, tmp_path):
    folder = with_metadata(plain, tmp_path / "m", json.dumps(metadata(f"{Pair.__module__}:Pair")))
    x, batch = nested_inputs()
    assert isinstance(interop.load(folder)(x, batch), Pair)


def test_a_module_in_memory_and_a_loaded_one_are_the_same_function():
    x, batch = nested_inputs()
    check(interop.load(ModuleWithMetadata())(x, batch), x, batch["k"])
    outputs = interop.load(Module()).run({"x_in": x, "arg_1": batch["k"]})
    assert torch.equal(outputs["t"], x * 2 + batch["k"])


def test_what_tf_saved_model_load_gives_is_a_model(plain):
    x, batch = nested_inputs()
    runtime = interop.load(tf.saved_model.load(str(plain)), signature="other")
    assert torch.equal(runtime.run({"x_in": x, "arg_1": batch["k"]})["t"], x * 2 + batch["k"])


def test_a_keras_savedmodel_runs(tmp_path):
    inputs = tf.keras.Input((3,), name="features")
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(2)(inputs))
    model.export(tmp_path / "m", verbose=False)
    x = torch.rand(4, 3)
    runtime = interop.load(tmp_path / "m")
    torch.testing.assert_close(runtime(x), torch.from_numpy(model(x.numpy()).numpy()))


# --- frameworks and memory


@pytest.mark.parametrize("framework", ["torch", "numpy", "tensorflow"])
def test_outputs_come_back_in_the_framework_of_the_inputs(described, framework):
    x, batch = nested_inputs()
    result = interop.load(described)(interop.convert(x, framework), {"k": interop.convert(batch["k"], framework)})
    assert interop.framework_of(result["total"]) == interop.framework_of(result["parts"][0]) == framework
    check(result, x, batch["k"])


def test_an_identity_gives_back_the_memory_that_went_in():
    class Through(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
        def serve(self, x):
            return {"y": tf.identity(x)}

        def serving_signature(self):
            return self.serve.get_concrete_function()

    runtime = interop.load(Through())
    x = torch.arange(64.0)
    assert x.data_ptr() % 64 == 0
    assert runtime(x).data_ptr() == x.data_ptr()
    odd = torch.arange(65.0)[1:]  # not where TensorFlow's kernels can read: copied, not killed
    assert torch.equal(runtime(odd), odd)


def test_a_second_run_leaves_the_outputs_of_the_first_alone(described):
    runtime = interop.load(described)
    x, batch = nested_inputs()
    first, second = runtime(x, batch)["total"], runtime(x + 1, batch)["total"]
    assert torch.equal(first, x * 2 + batch["k"]) and torch.equal(second, (x + 1) * 2 + batch["k"])


@pytest.mark.parametrize("dtype", ["bool", "int8", "int64", "uint8", "float16", "bfloat16", "float64", "complex64"])
def test_dtypes_pass_bit_for_bit(dtype):
    class Through(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec(None, getattr(tf, dtype), name="x")])
        def serve(self, x):
            return {"y": tf.identity(x)}

        def serving_signature(self):
            return self.serve.get_concrete_function()

    runtime = interop.load(Through())
    assert runtime.signature.inputs[0].shape is None
    for x in (torch.arange(6).reshape(2, 3) % 2, torch.tensor(1), torch.ones(0, 2)):
        x = x.to(getattr(torch, dtype))
        y = runtime(x)
        assert y.dtype == x.dtype and torch.equal(y, x)


def test_strings_go_in_as_lists_or_arrays():
    class Upper(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
        def serve(self, text):
            return {"upper": tf.strings.upper(text)}

        def serving_signature(self):
            return self.serve.get_concrete_function()

    runtime = interop.load(Upper())
    for text in (["a", "bb"], np.array(["a", "bb"])):
        assert runtime(text).tolist() == [b"A", b"BB"]
    assert runtime(tf.constant(["a"])).dtype == tf.string


def test_eight_threads_get_their_own_answers(described):
    runtime, wrong = interop.load(described), []

    def work(me: int) -> None:
        x, batch = nested_inputs(me + 1)
        for turn in range(50):
            if not torch.equal(runtime(x + turn, batch)["total"], (x + turn) * 2 + batch["k"]):
                wrong.append((me, turn))

    threads = [threading.Thread(target=work, args=(me,)) for me in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


# --- what does not fit


@pytest.mark.parametrize(
    ("x", "k", "says"),
    [
        (torch.ones(4, 3, dtype=torch.float64), torch.ones(4, 3), "'x' expects float32, got float64"),
        (torch.ones(12), torch.ones(4, 3), "2 dimensions, got 1"),
        (torch.ones(4, 2), torch.ones(4, 3), "expects 3 at axis 1"),
        (torch.ones(4, 3), torch.ones(5, 3), r"rows is 4 in this call"),
    ],
)
def test_inputs_are_checked(described, x, k, says):
    with pytest.raises(InputError, match=says):
        interop.load(described)(x, {"k": k})


def test_wrong_names_and_failures_inside_are_errors_of_ours(plain):
    runtime = interop.load(plain)
    with pytest.raises(InputError, match="did you mean 'x_in'"):
        runtime.run({"xin": torch.ones(1, 3), "arg_1": torch.ones(1, 3)})
    with pytest.raises(interop.InteropError, match="failed while it ran"):
        runtime.run({"x_in": torch.ones(2, 3), "arg_1": torch.ones(5, 3)})


def test_an_unknown_signature_lists_those_there_are(plain):
    with pytest.raises(ModelFileError, match=r"no signature 'nope'; it has other, serving_default"):
        interop.load(plain, signature="nope")


def test_a_damaged_savedmodel_is_refused(plain, tmp_path):
    import shutil

    for number, (name, content) in enumerate(
        [
            ("saved_model.pb", b""),
            ("saved_model.pb", b"garbage" * 20),
            ("saved_model.pb", (plain / "saved_model.pb").read_bytes()[:500]),
            ("variables/variables.index", None),
            ("variables/variables.index", b"garbage"),
        ]
    ):
        folder = tmp_path / f"m{number}"
        shutil.copytree(plain, folder)
        if content is None:
            (folder / name).unlink()
        else:
            (folder / name).write_bytes(content)
        with pytest.raises(ModelFileError, match=f"m{number}"):
            interop.load(folder)


def test_a_file_is_no_savedmodel(plain):
    with pytest.raises(ModelFileError, match="cannot load"):
        interop.load(plain / "saved_model.pb", runtime="tensorflow")


HOSTILE = {
    "empty": "",
    "no json": "{",
    "a list": "[]",
    "a number": "3",
    "deep": "[" * 100_000,
    "no names": json.dumps({"signature": stored_signature().to_json()}),
    "other names": json.dumps({"names": {"inputs": {"x": "nope"}, "outputs": {}}}),
    "one name twice": json.dumps({"names": {"inputs": {"x": "x_in", "y": "x_in"}, "outputs": NAMES["outputs"]}}),
    "names are lists": json.dumps({"names": {"inputs": ["x_in", "arg_1"], "outputs": ["t", "a", "b"]}}),
    "names are numbers": json.dumps({"names": {"inputs": {"x": 1, "y": {}}, "outputs": NAMES["outputs"]}}),
    "names are text": json.dumps({"names": "x_in"}),
    "other dtype": json.dumps({"signature": stored_signature().to_json(), "names": NAMES}).replace("float32", "int64"),
    "other width": json.dumps({"signature": stored_signature().to_json(), "names": NAMES}).replace(
        '"rows", 3', '"rows", 5'
    ),
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_or_stale_metadata_is_ignored_with_a_warning(plain, tmp_path, text):
    folder = with_metadata(plain, tmp_path / "m", text)
    with pytest.warns(UserWarning, match="ignored"):
        runtime = interop.load(folder)
    x, batch = nested_inputs()
    inputs = dict(zip(runtime.signature.input_names, (x, batch["k"])))
    if "arg_1" in inputs:
        inputs = {"x_in": x, "arg_1": batch["k"]}
    assert set(runtime.run(inputs)) in ({"t", "a", "b"}, set(NAMES["outputs"]))

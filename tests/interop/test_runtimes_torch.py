"""torch modules, exported programs and archives as runtimes."""

from __future__ import annotations

import dataclasses
import json
import shutil
import sys
import threading
import zipfile
from collections import OrderedDict, namedtuple

import numpy as np
import pytest
import torch

import interop
from interop.errors import InputError, ModelFileError
from interop.runtimes.torch import ExportedProgramRuntime, TorchRuntime, flat_names
from interop.structure import Leaf, Node
from tests.interop.runtime_models import Nested, nested_inputs

ROWS = torch.export.Dim("rows", min=1, max=64)


@dataclasses.dataclass
class Result:
    """A result class that torch.export knows."""

    first: torch.Tensor
    second: torch.Tensor | None = None


torch.export.register_dataclass(Result, serialized_type_name="tests.Result")


class Awkward(torch.nn.Module):
    """Every kind of parameter and container at once."""

    def forward(self, d, past=None, *rest, flag=True, z=None):
        total = d["y"] + past[0][1] + rest[0] * 2 + z
        return {"total": total if flag else -total, "tuple": (d["S"]["Y"] * 3, 3, None)}


def awkward_call():
    def make(value: float) -> torch.Tensor:
        return torch.full((2, 3), float(value))

    args = ({"y": make(1), "S": {"Y": make(2)}}, [(make(3), make(4))], make(5), make(6))
    return args, {"z": make(7), "flag": True}


class Counter(torch.nn.Module):
    """Changes a buffer on each call, and behaves differently in training."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))
        self.norm = torch.nn.BatchNorm1d(3)
        self.drop = torch.nn.Dropout(0.5)

    def forward(self, x):
        self.calls += 1
        return self.drop(self.norm(x))

    def example_inputs(self):
        return (torch.ones(4, 3),)


@pytest.fixture(scope="module")
def program():
    return torch.export.export(Nested(), nested_inputs(), dynamic_shapes=({0: ROWS}, {"k": {0: ROWS}}))


@pytest.fixture(scope="module")
def archive(program, tmp_path_factory):
    path = tmp_path_factory.mktemp("archive") / "m.pt2"
    torch.export.save(program, path)
    return path


def check_nested(given, x, k) -> None:
    expected = Nested()(x, {"k": k})
    assert list(given) == ["total", "parts"] and isinstance(given["parts"], tuple)
    np.testing.assert_array_equal(np.asarray(given["total"]), np.asarray(expected["total"]))
    np.testing.assert_array_equal(np.asarray(given["parts"][0]), np.asarray(expected["parts"][0]))


# --- names


@pytest.mark.parametrize(
    ("module", "args", "kwargs"),
    [
        (Awkward(), *awkward_call()),
        (Nested(), nested_inputs(), {}),
        (Nested(), (nested_inputs()[0],), {"batch": nested_inputs()[1]}),
        (Nested(), nested_inputs(), {"scale": torch.ones(3)}),
    ],
)
def test_flat_names_are_those_of_torch_export(module, args, kwargs):
    exported = torch.export.export(module, args, kwargs)
    expected = [spec.arg.name for spec in exported.graph_signature.input_specs]
    names = interop.runtimes.torch.parameter_names_of(module)
    assert flat_names(args, kwargs, names) == expected


def test_flat_names_that_collide_get_numbers_as_in_torch_export():
    class Clash(torch.nn.Module):
        def forward(self, a_b, a, A):  # noqa: N803 - the clash
            return a_b + a["b"] + A["b"] + a["B"]

    t = torch.ones(1)
    args = (t, {"b": t.clone(), "B": t.clone()}, {"b": t.clone()})
    exported = torch.export.export(Clash(), args)
    assert flat_names(args, {}, ("a_b", "a", "A")) == list(exported.graph_signature.user_inputs)


# --- modules


def test_a_module_is_called_as_it_is():
    x, batch = nested_inputs()
    runtime = interop.load(Nested())
    assert isinstance(runtime, TorchRuntime) and runtime.framework == runtime.name == "torch" and runtime.path is None
    check_nested(runtime(x, batch), x, batch["k"])
    check_nested(runtime(x, batch={"k": batch["k"].numpy()}), x, batch["k"])


@pytest.mark.parametrize("framework", ["numpy", "tensorflow"])
@pytest.mark.parametrize("kind", ["module", "program"])
def test_other_frameworks_go_in_and_come_out(program, framework, kind):
    x, batch = nested_inputs()
    runtime = interop.load(Nested() if kind == "module" else program)
    result = runtime(interop.convert(x, framework), {"k": interop.convert(batch["k"], framework)})
    assert interop.framework_of(result["total"]) == interop.framework_of(result["parts"][1]) == framework
    check_nested(result, x, batch["k"])


def test_numpy_shares_memory_with_the_module():
    runtime = interop.load(torch.nn.Identity())
    x = np.ones((2, 3), np.float32)
    y = runtime(x)
    assert y.ctypes.data == x.ctypes.data


def test_a_signature_is_recorded_from_the_first_call():
    runtime = interop.load(Awkward())
    with pytest.raises(InputError, match="example_inputs"):
        _ = runtime.signature
    args, kwargs = awkward_call()
    expected = runtime(*args, **kwargs)
    signature = runtime.signature
    assert signature.input_names == ("d_y", "d_s_y", "past_0_0", "past_0_1", "rest_0", "rest_1", "z")
    assert signature.output_names == ("total", "tuple_0")
    assert all(spec.shape == (None, None) and spec.dtype == "float32" for spec in signature.inputs)
    flat = dict(zip(signature.input_names, torch.utils._pytree.tree_leaves((args, kwargs))))
    outputs = runtime.run(flat)
    assert torch.equal(outputs["total"], expected["total"]) and torch.equal(outputs["tuple_0"], expected["tuple"][0])
    rebuilt = signature.unflatten(outputs)
    assert rebuilt["tuple"][1:] == (3, None) and torch.equal(rebuilt["total"], expected["total"])


def test_plain_parameters_run_by_name_before_any_call():
    x, _ = nested_inputs()
    runtime = interop.load(torch.nn.Linear(3, 2))
    with pytest.raises(InputError, match=r"takes \['input'\], got \['nope'\]"):
        runtime.run({"nope": x})
    outputs = runtime.run({"input": x})
    assert torch.equal(outputs["output"], runtime.module(x)) and not outputs["output"].requires_grad
    with pytest.raises(InputError, match="nope"):
        runtime.run({"nope": x})


def test_example_inputs_give_the_signature_and_change_nothing():
    module = Counter().train()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    runtime = interop.load(module)
    assert runtime.signature.input_names == ("x",) and runtime.signature.output_names == ("output",)
    assert torch.equal(torch.rand(3), expected)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert module.training


@pytest.mark.parametrize("form", ["tensor", "tuple", "dict", "pair", "list", "kwargs"])
def test_every_form_of_example_inputs_is_understood(form):
    x, batch = nested_inputs()
    module = Nested() if form != "tensor" else torch.nn.ReLU()
    module.example_inputs = lambda: {
        "tensor": x,
        "tuple": (x, batch),
        "list": [x, batch],
        "dict": {"x": x, "batch": batch},
        "pair": ((x,), {"batch": batch}),
        "kwargs": x,
    }[form]
    if form == "kwargs":
        module.example_kwargs = lambda: {"batch": batch}
    names = interop.load(module).signature.input_names
    assert names == (("input",) if form == "tensor" else ("x", "batch_k"))


@pytest.mark.parametrize("training", [True, False])
def test_the_mode_of_a_module_is_kept(training):
    module = Counter().train(training)
    runtime = interop.load(module)
    runtime(torch.ones(4, 3))
    assert module.training is training and module.norm.training is training and module.calls == 1


def test_gradients_only_where_asked_for():
    module, x = torch.nn.Linear(3, 2), torch.ones(1, 3, requires_grad=True)
    assert not interop.load(module)(x).requires_grad
    y = interop.load(module, grad=True)(x)
    y.sum().backward()
    assert torch.equal(x.grad, module.weight.sum(0, keepdim=True))
    assert interop.load(module, grad=True)(np.ones((1, 3), np.float32)).shape == (1, 2)


def test_result_objects_keep_their_class_and_their_structure():
    Point = namedtuple("Point", "u v")

    class Objects(torch.nn.Module):
        def forward(self, x):
            return Result(x, x + 1), OrderedDict(p=Point(x, x * 2)), [x]

    runtime = interop.load(Objects())
    first, second, third = runtime(np.ones(3, np.float32))
    assert type(first) is Result and isinstance(first.second, np.ndarray) and first.second.tolist() == [2, 2, 2]
    assert type(second["p"]) is Point and isinstance(third, list)
    results = runtime.signature.results
    names = [spec.name for spec in runtime.signature.outputs]
    assert names == ["output_0_first", "output_0_second", "output_1_p_u", "output_1_p_v", "output_2_0"]
    leaves = iter(map(Leaf, names))
    point = Node("object", (Leaf(names[2]), Leaf(names[3])), ("u", "v"), f"{__name__}:{Point.__qualname__}")
    assert results.children[0] == Node(
        "object", (next(leaves), next(leaves)), ("first", "second"), f"{__name__}:Result"
    )
    assert results.children[1] == Node("dict", (point,), ("p",)) and results.children[2] == Node(
        "list", (Leaf(names[4]),)
    )


def test_transformers_outputs_and_caches_are_taken_apart():
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=11, n_positions=16)
    model = transformers.GPT2LMHeadModel(config).eval()
    ids = torch.tensor([[1, 2, 3]])
    runtime = interop.load(model)
    given = runtime(input_ids=ids.numpy(), use_cache=False)
    with torch.no_grad():
        expected = model(input_ids=ids, use_cache=False)
    assert type(given) is type(expected) and isinstance(given.logits, np.ndarray)
    np.testing.assert_array_equal(given.logits, expected.logits.numpy())
    assert runtime.signature.input_names == ("input_ids",) and runtime.signature.output_names == ("logits",)
    outputs = runtime.run({"input_ids": ids})
    torch.testing.assert_close(outputs["logits"], expected.logits, rtol=0, atol=0)


# --- exported programs


@pytest.mark.parametrize("source", ["program", "archive"])
def test_a_program_runs_by_call_and_by_name(request, source):
    runtime = interop.load(request.getfixturevalue(source))
    assert isinstance(runtime, ExportedProgramRuntime)
    assert runtime.signature.input_names == ("x", "batch_k") and runtime.signature.parameter_names[:2] == ("x", "batch")
    for rows in (4, 2, 9):
        x, batch = nested_inputs(rows)
        check_nested(runtime(x, batch), x, batch["k"])
        check_nested(runtime(x, batch=batch), x, batch["k"])
        outputs = runtime.run({"batch_k": batch["k"], "x": x})
        assert torch.equal(outputs[runtime.signature.output_names[0]], x * 2 + batch["k"])
        check_nested(runtime.signature.unflatten(outputs), x, batch["k"])


def test_a_program_with_every_kind_of_argument_is_the_module():
    args, kwargs = awkward_call()
    runtime = interop.load(torch.export.export(Awkward(), args, kwargs))
    given, expected = runtime(*args, **kwargs), Awkward()(*args, **kwargs)
    assert torch.equal(given["total"], expected["total"]) and torch.equal(given["tuple"][0], expected["tuple"][0])
    assert given["tuple"][1:] == (3, None)
    with pytest.raises(InputError, match="flag"):
        runtime(*args, **(kwargs | {"flag": False}))


def test_outputs_that_repeat_a_tensor_or_an_input_have_one_name():
    class Same(torch.nn.Module):
        def forward(self, x):
            y = x + 1
            return y, y, x

    x = torch.ones(2)
    runtime = interop.load(torch.export.export(Same(), (x,)))
    outputs = runtime.run({"x": x})
    assert set(outputs) == set(runtime.signature.output_names) and len(outputs) == 2
    first, second, third = runtime.signature.unflatten(outputs)
    assert torch.equal(first, x + 1) and torch.equal(second, x + 1) and torch.equal(third, x)


@pytest.mark.parametrize(
    ("x", "k", "says"),
    [
        (torch.ones(4, 3, dtype=torch.float64), torch.ones(4, 3), "'x' expects float32, got float64"),
        (torch.ones(12), torch.ones(4, 3), "2 dimensions, got 1"),
        (torch.ones(4, 2), torch.ones(4, 3), "expects 3 at axis 1"),
        (torch.ones(4, 3), torch.ones(5, 3), "is 4 in this call"),
        (torch.ones(65, 3), torch.ones(65, 3), r"must be in \d+..64, got 65"),
    ],
)
def test_a_program_checks_its_inputs(program, x, k, says):
    runtime = interop.load(program)
    for _ in range(2):
        with pytest.raises(InputError, match=says):
            runtime(x, {"k": k})
        with pytest.raises(InputError, match=says):
            runtime.run({"x": x, "batch_k": k})


def test_threads_share_a_program(program):
    runtime, wrong = interop.load(program), []

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


# --- files


class Payload:
    """A pickle that leaves a trace when it is read."""

    def __init__(self, trace) -> None:
        self.trace = str(trace)

    def __reduce__(self):
        return open, (self.trace, "w")


def rewritten(archive, target, change):
    """Copy an archive, with ``change(name, bytes)`` applied to every entry."""
    with zipfile.ZipFile(archive) as old, zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as new:
        for name in old.namelist():
            data = change(name, old.read(name))
            if data is not None:
                new.writestr(name, data)
    return target


def edited(archive, target, edit):
    """Copy an archive with its model's JSON edited."""

    def change(name, data):
        if not name.endswith("models/model.json"):
            return data
        model = json.loads(data)
        edit(model)
        return json.dumps(model).encode()

    return rewritten(archive, target, change)


def test_an_untouched_copy_of_an_archive_still_loads(archive, tmp_path):
    x, batch = nested_inputs()
    copied = rewritten(archive, tmp_path / "m.pt2", lambda name, data: data)
    check_nested(interop.load(copied)(x, batch), x, batch["k"])
    (tmp_path / "other.name").write_bytes(archive.read_bytes())
    assert interop.load(tmp_path / "other.name").name == "torch"


def test_a_pickled_module_is_refused_until_asked_for_by_name(tmp_path):
    torch.save(torch.nn.Linear(3, 2), tmp_path / "m.pth")
    torch.save(torch.nn.Linear(3, 2), tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    torch.save({"weight": torch.ones(2)}, tmp_path / "state.pt")
    for name in ("m.pth", "old.pt", "state.pt"):
        with pytest.raises(ModelFileError, match="allow_pickle=True"):
            interop.load(tmp_path / name)
    assert interop.load(tmp_path / "m.pth", allow_pickle=True)(torch.ones(1, 3)).shape == (1, 2)
    with pytest.raises(ModelFileError, match=r"not an nn\.Module"):
        interop.load(tmp_path / "state.pt", allow_pickle=True)


def test_no_file_runs_code_when_it_is_opened(archive, tmp_path):
    trace = tmp_path / "trace"
    torch.save(Payload(trace), tmp_path / "raw.pt", _use_new_zipfile_serialization=False)
    torch.save(Payload(trace), tmp_path / "zipped.pt")
    evil = (tmp_path / "zipped.pt").read_bytes()

    def samples(name, data):
        return evil if "sample_inputs" in name else data

    def weights(name, data):
        return data.replace(
            b'{"config": {}}',
            b'{"config": {"w": {"path_name": "weight_0", "is_param": false, "use_pickle": true, "tensor_meta": null}}}',
        )

    def legacy(name, data):
        return None if "weights_config" in name else data

    rewritten(archive, tmp_path / "samples.pt2", samples)
    rewritten(archive, tmp_path / "weights.pt2", weights)
    rewritten(archive, tmp_path / "legacy.pt2", legacy)
    with zipfile.ZipFile(tmp_path / "legacy.pt2", "a") as more:
        more.writestr(f"{archive.stem}/data/weights/model.pt", evil)
    for name in ("raw.pt", "zipped.pt", "samples.pt2", "weights.pt2", "legacy.pt2"):
        with pytest.raises(ModelFileError, match="allow_pickle"):
            interop.load(tmp_path / name)
        assert not trace.exists(), name
    with pytest.raises(ModelFileError, match=r"not a torch.export archive"):  # what the guard stands before
        interop.load(tmp_path / "samples.pt2", allow_pickle=True)
    assert trace.exists()


def _sizes(model):
    for value in model["graph_module"]["graph"]["tensor_values"].values():
        for size in value["sizes"]:
            if "as_expr" in size:
                yield size["as_expr"]


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').mkdir({trace!r})",
        "Max(\"__import__('os').mkdir({trace!r})\", 1)",
        "(lambda: 1)()",
        "exit()",
        "Symbol.__class__",
        "9" * 5000,
        "[1 for _ in s0]",
        "s0[0]",
        "",
    ],
)
def test_expressions_are_arithmetic_only(archive, tmp_path, text):
    trace = tmp_path / "trace"

    def edit(model):
        for size in _sizes(model):
            size["expr_str"] = text.format(trace=str(trace))

    with pytest.raises(ModelFileError, match="arithmetic on sizes"):
        interop.load(edited(archive, tmp_path / "m.pt2", edit))
    assert not trace.exists()


@pytest.mark.parametrize(
    "target",
    ["torch.os.system", "torch.load", "torch.hub.load", "_operator.methodcaller", "_operator.call", "torch.ops.load_library",
     "torch.ops.load_library.__call__", "torch.ops.aten.from_file.default", "math.__loader__", "torch.ops.aten.add",
     "torch.sys.exit"],
)  # fmt: skip
def test_graphs_call_operators_only(archive, tmp_path, target):
    def edit(model):
        model["graph_module"]["graph"]["nodes"][0]["target"] = target

    with pytest.raises(ModelFileError, match="no operator"):
        interop.load(edited(archive, tmp_path / "m.pt2", edit))


@pytest.mark.parametrize(
    "guard", ["__import__('os').mkdir('x')", "L['x'].__class__", "exec('1')", "L.pop('x')", "max(eval('1'), 1)"]
)
def test_guards_compare_shapes_only(archive, tmp_path, guard):
    with pytest.raises(ModelFileError, match="arithmetic on sizes"):
        interop.load(edited(archive, tmp_path / "m.pt2", lambda model: model.__setitem__("guards_code", [guard])))


def test_guards_may_compare_the_largest_of_sizes(archive, tmp_path):
    guard = "max(1, L['x'].size()[0]) == min(L['x'].size()[0], abs(64))"
    path = edited(archive, tmp_path / "m.pt2", lambda model: model.__setitem__("guards_code", [guard]))
    assert interop.load(path).name == "torch"


def test_specs_import_nothing(archive, tmp_path, monkeypatch):
    (tmp_path / "hostile_spec.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    spec = {"default_factory_module": "hostile_spec", "default_factory_name": "x", "dict_context": []}
    tree = [1, {"type": "collections.defaultdict", "context": json.dumps(spec), "children_spec": []}]

    def edit(model):
        for entry in model["graph_module"]["module_call_graph"]:
            entry["signature"]["out_spec"] = json.dumps(tree)

    with pytest.raises(ModelFileError, match="import"):
        interop.load(edited(archive, tmp_path / "m.pt2", edit))
    assert "hostile_spec" not in sys.modules


def test_compiled_packages_need_permission(tmp_path):
    with zipfile.ZipFile(tmp_path / "m.pt2", "w") as package:
        package.writestr("m/archive_format", "pt2")
        package.writestr("m/data/aotinductor/model/x.wrapper.so", b"\x7fELF")
    with pytest.raises(ModelFileError, match="allow_native_code=True"):
        interop.load(tmp_path / "m.pt2")
    with pytest.raises(ModelFileError, match="cannot be loaded"):
        interop.load(tmp_path / "m.pt2", allow_native_code=True)


def test_damaged_archives_are_refused(archive, tmp_path):
    data = archive.read_bytes()
    for length in (2, 30, len(data) // 2, len(data) - 10):
        (tmp_path / "cut.pt2").write_bytes(data[:length])
        with pytest.raises(ModelFileError, match=r"cut\.pt2"):
            interop.load(tmp_path / "cut.pt2")
    broken = bytearray(data)
    middle = data.index(b'"graph_module"')
    broken[middle : middle + 14] = b"x" * 14
    (tmp_path / "broken.pt2").write_bytes(broken)
    with pytest.raises(ModelFileError, match="broken"):
        interop.load(tmp_path / "broken.pt2")


@pytest.mark.parametrize("drop", ["models/", "archive_version", "sample_inputs", "weights_config", "constants_config"])
def test_incomplete_archives_are_refused(archive, tmp_path, drop):
    with pytest.raises(ModelFileError):
        interop.load(rewritten(archive, tmp_path / "m.pt2", lambda name, data: None if drop in name else data))


@pytest.mark.parametrize("content", [b"{}", b"[]", b"null", b'{"graph_module": 3}', b"[" * 100_000, b"not json"])
def test_archives_with_another_json_are_refused(archive, tmp_path, content):
    def change(name, data):
        return content if name.endswith("models/model.json") else data

    with pytest.raises(ModelFileError):
        interop.load(rewritten(archive, tmp_path / "m.pt2", change))


def test_other_zip_files_are_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "notes.pt2", "w") as other:
        other.writestr("notes.txt", "hello")
    with pytest.raises(ModelFileError, match=r"no torch.export archive \(it holds notes.txt\)"):
        interop.load(tmp_path / "notes.pt2")
    shutil.copy(tmp_path / "notes.pt2", tmp_path / "m.keras")
    with pytest.raises(ModelFileError, match="Keras"):
        interop.load(tmp_path / "m.keras")

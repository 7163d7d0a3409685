"""``interop.check`` on real exports: right ones pass, wrong ones fail, and nothing of the caller's is changed."""

import copy
import io
import json
import random
import warnings
from dataclasses import replace

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper
from torch import nn

import interop
from interop.errors import InputError, ModelFileError, ParityError
from interop.parity import ParityReport
from interop.signature import Signature, TensorSpec

BATCH = {0: torch.export.Dim("batch", min=1)}


class Net(nn.Module):
    """A small classifier with a convolution, a normalisation and two outputs."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.head = nn.Linear(4 * 36, 5)

    def forward(self, image):
        hidden = torch.relu(self.norm(self.conv(image)))
        return self.head(hidden.flatten(1)), hidden.mean((2, 3)) @ torch.ones(4, 5)


class Tagger(nn.Module):
    """Integer tokens, a float mask, a dict out."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 8)
        self.out = nn.Linear(8, 3)

    def forward(self, tokens, scale):
        scores = self.out(torch.nn.functional.gelu(self.table(tokens))) * scale
        return {"scores": scores, "best": scores.argmax(-1)}


def seeded(cls):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return cls().eval()


def export(model, args, path, shapes=None, **kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            model, args, kwargs=kwargs, dynamic_shapes=shapes, dynamo=True, verbose=False, external_data=False
        )
    program.save(path)
    return path


@pytest.fixture(scope="module")
def net():
    return seeded(Net)


@pytest.fixture(scope="module")
def net_onnx(net, tmp_path_factory):
    return export(net, (torch.randn(2, 1, 6, 6),), tmp_path_factory.mktemp("net") / "net.onnx", (BATCH,))


@pytest.fixture(scope="module")
def tagger():
    return seeded(Tagger)


@pytest.fixture(scope="module")
def tagger_onnx(tagger, tmp_path_factory):
    shapes = ({0: BATCH[0], 1: torch.export.Dim("time", min=1)}, {})
    path = tmp_path_factory.mktemp("tagger") / "tagger.onnx"
    return export(tagger, (torch.randint(0, 50, (2, 3)), torch.ones(1)), path, shapes)


def planted(path, target, change):
    """The ONNX file with one change."""
    model = onnx.load(path)
    change(model.graph)
    onnx.save(model, target)
    return target


def change_weight(shape, change):
    def apply(graph):
        tensor = next(item for item in graph.initializer if tuple(item.dims) == shape)
        values = numpy_helper.to_array(tensor).copy()
        change(values)
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))

    return apply


def swap_outputs(graph):
    first, second = (item.name for item in graph.output)
    names = {first: second, second: first}
    for node in graph.node:
        for position, name in enumerate(node.output):
            node.output[position] = names.get(name, name)
        for position, name in enumerate(node.input):
            node.input[position] = names.get(name, name)


def drop_relu(graph):
    next(node for node in graph.node if node.op_type == "Relu").op_type = "Identity"


def one_weight_off(values):
    values.flat[7] *= 1.001


def one_bias_off(values):
    values.flat[2] += 1e-5


def to_half(values):
    values[:] = values.astype(np.float16)


FAULTS = {
    "one_weight_off_by_1e_3": change_weight((5, 144), one_weight_off),
    "one_bias_off_by_1e_5": change_weight((5,), one_bias_off),
    "weights_rounded_to_float16": change_weight((5, 144), to_half),
    "swapped_outputs": swap_outputs,
    "dropped_relu": drop_relu,
}


@pytest.mark.parametrize("seed", range(20))
def test_right_export_passes(net, net_onnx, seed):
    report = interop.check(net, net_onnx, seed=seed)
    assert report.passed, str(report)
    assert len(report.cases) == 3
    assert {output.rule for output in report.outputs.values()} == {"noise"}


@pytest.mark.parametrize("seed", range(20))
def test_right_export_with_tokens_passes(tagger, tagger_onnx, seed):
    report = interop.check(tagger, tagger_onnx, seed=seed)
    assert report.passed, str(report)


@pytest.mark.parametrize("family", ["uniform", "negative", "zeros", "ties", "large", "tiny", "nonfinite"])
def test_right_export_passes_on_every_family(net, net_onnx, family):
    # On NaN and infinities the convolution spreads them over every output, on both sides alike.
    assert interop.check(net, net_onnx, families=[family]).passed


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("seed", range(3))
def test_planted_fault_fails(net, net_onnx, tmp_path, fault, seed):
    wrong = planted(net_onnx, tmp_path / "wrong.onnx", FAULTS[fault])
    report = interop.check(net, wrong, seed=seed)
    assert not report.passed
    with pytest.raises(ParityError, match=r"wrong\.onnx differs from Net") as caught:
        report.raise_for_failure()
    assert caught.value.report is report
    assert str(caught.value).count("\n") <= 3


def test_numpys_allclose_misses_what_check_finds(net, net_onnx, tmp_path):
    wrong = planted(net_onnx, tmp_path / "wrong.onnx", FAULTS["one_weight_off_by_1e_3"])
    image = torch.randn(2, 1, 6, 6, generator=torch.Generator().manual_seed(0))
    assert interop.check(net, wrong, inputs=image, atol=1e-3).passed
    assert not interop.check(net, wrong, inputs=image).passed


def test_fault_hidden_from_ones_is_found(tmp_path, net, net_onnx):
    def transpose(graph):
        tensor = next(item for item in graph.initializer if tuple(item.dims) == (4, 1, 3, 3))
        values = numpy_helper.to_array(tensor).transpose(0, 1, 3, 2).copy()
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))

    assert not interop.check(net, planted(net_onnx, tmp_path / "wrong.onnx", transpose)).passed


def test_made_tokens_cover_the_vocabulary(tagger, tagger_onnx, tmp_path):
    def last_row(graph):
        change_weight((50, 8), lambda values: values[40:].__imul__(1.01))(graph)

    wrong = planted(tagger_onnx, tmp_path / "wrong.onnx", last_row)
    sizes = [{"batch": 8, "time": 32}]
    assert not interop.check(tagger, wrong, sizes=sizes).passed
    assert interop.check(tagger, wrong, sizes=sizes, ranges={"tokens": (0, 40)}).passed


def test_one_candidate_of_several_fails_alone(net, net_onnx, tmp_path):
    wrong = planted(net_onnx, tmp_path / "wrong.onnx", drop_relu)
    report = interop.check(net, net_onnx, wrong)
    assert not report.passed
    assert {result.candidate for result in report.failures} == {"wrong.onnx"}
    assert report.candidates == ("net.onnx", "wrong.onnx")


def test_same_candidates_get_different_labels(net, net_onnx):
    report = interop.check(net, net_onnx, net_onnx, inputs=torch.zeros(1, 1, 6, 6))
    assert len(set(report.candidates)) == 2
    assert interop.check(net, net_onnx, names=["mine"], inputs=torch.zeros(1, 1, 6, 6)).candidates == ("mine",)


@pytest.mark.parametrize("form", ["tensor", "tuple", "dict", "numpy", "list", "generator"])
def test_inputs_come_in_every_form(net, net_onnx, form):
    image = torch.ones(2, 1, 6, 6)
    inputs = {
        "tensor": image,
        "tuple": (image,),
        "dict": {"image": image},
        "numpy": {"image": image.numpy()},
        "list": [(image,), {"image": image}],
        "generator": (image for _ in range(2)),
    }[form]
    report = interop.check(net, net_onnx, inputs=inputs)
    assert report.passed
    assert len(report.cases) == (2 if form in ("list", "generator") else 1)


def test_no_batches_is_no_pass(net, net_onnx):
    report = interop.check(net, net_onnx, inputs=[])
    assert not report.passed
    with pytest.raises(ParityError, match="nothing was compared"):
        report.raise_for_failure()


def test_no_candidate_is_an_error(net):
    with pytest.raises(InputError, match="at least one candidate"):
        interop.check(net)


def test_candidate_with_other_results_is_a_failed_candidate(net):
    from interop.structure import Leaf, Node

    other = Model(lambda x: {"y": x})
    other._signature = replace(other.signature, results=Node("dict", (Leaf("y"),), ("y",)))
    report = interop.check(nn.Linear(3, 3), other)
    assert not report.passed
    assert "exported with other outputs" in report.failures[0].reason


def test_missing_file_is_an_error(net, tmp_path):
    with pytest.raises(ModelFileError):
        interop.check(net, tmp_path / "none.onnx")


def test_inputs_that_the_reference_refuses_are_an_error(net, net_onnx):
    with pytest.raises(InputError, match="the reference fails on inputs 'batch 0'"):
        interop.check(net, net_onnx, inputs=torch.zeros(2, 3, 6, 6))


def test_inputs_with_wrong_names_are_an_error(net, net_onnx):
    with pytest.raises(InputError, match="imag"):
        interop.check(net, net_onnx, inputs={"imag": torch.zeros(1, 1, 6, 6)})


class Model(interop.Runtime):
    """A runtime around a function of one array."""

    name = "function"
    framework = "numpy"

    def __init__(self, answer, outputs=("y",)):
        specs = tuple(TensorSpec(name, "float32", ("batch", 3)) for name in outputs)
        super().__init__(Signature((TensorSpec("x", "float32", ("batch", 3)),), specs))
        self.answer = answer

    @classmethod
    def open(cls, model, **options):
        raise NotImplementedError

    def _execute(self, inputs, owner):
        return self.answer(np.asarray(inputs["x"]))


def double(x):
    return {"y": x * 2}


def boom(x):
    raise RuntimeError("out of\nmemory")


WRONG_ANSWERS = {
    "raises": (boom, "RuntimeError: out of memory"),
    "nothing": (lambda x: {}, "missing"),
    "other_name": (lambda x: {"z": x * 2}, "unexpected"),
    "one_more": (lambda x: {"y": x * 2, "z": x}, "2 outputs instead of 1"),
    "other_dtype": (lambda x: {"y": (x * 2).astype(np.float64)}, "dtype"),
    "other_shape": (lambda x: {"y": x[:1] * 2}, "shape"),
    "frozen_batch": (lambda x: {"y": np.resize(x, (2, 3)) * 2}, "shape"),
    "nan": (lambda x: {"y": x * np.float32("nan")}, "NaN"),
    "a_little_off": (lambda x: {"y": x * np.float32(2.0001)}, "differ"),
    "biased": (lambda x: {"y": x * 2 + np.float32(1e-5)}, "differ"),
}


@pytest.mark.parametrize("name", WRONG_ANSWERS)
def test_wrong_answer_fails(name):
    answer, said = WRONG_ANSWERS[name]
    report = interop.check(Model(double), Model(answer))
    assert not report.passed
    assert said in report.summary or any(said in result.reason for result in report.failures)


def test_one_element_off_among_thousands_fails():
    class Double(nn.Module):
        def forward(self, x):
            return x * 2

    def off(x):
        y = x * 2
        y[17, 1] += np.float32(40) * np.spacing(np.abs(y).max())
        return {"y": y}

    x = np.random.default_rng(0).standard_normal((1000, 3)).astype(np.float32)
    report = interop.check(Double(), Model(off), inputs=x)
    assert not report.passed
    assert report.outputs["y"].mismatches == 1 and report.outputs["y"].worst_index == (17, 1)
    assert interop.check(Double(), Model(double), inputs=x).passed


def test_crash_is_a_failed_candidate_with_its_error():
    report = interop.check(Model(double), Model(boom), Model(double), names=["bad", "good"])
    assert {result.candidate: result.passed for result in report.cases} == {"bad": False, "good": True}
    assert report.failures[0].error == "RuntimeError: out of memory"


def test_runtimes_compare_by_perturbed_inputs():
    report = interop.check(Model(double), Model(lambda x: {"y": np.nextafter(x * 2, np.float32(9))}))
    assert report.passed
    assert "perturbation" in report.outputs["y"].note


def test_made_inputs_that_the_reference_refuses_are_skipped_and_said():
    def picky(x):
        if len(x) == 1:
            raise ValueError("a batch of one is too small")
        return double(x)

    report = interop.check(Model(picky), Model(double))
    assert report.passed and len(report.cases) == 2
    assert list(report.skipped) == ["normal batch=1"]
    assert "too small" in str(report)


def test_nothing_but_skipped_inputs_is_no_pass():
    report = interop.check(Model(boom), Model(double))
    assert not report.passed and len(report.skipped) == 3


def test_models_get_private_copies_of_the_inputs():
    def spoil(x):
        x += 1
        return {"y": (x - 1) * 2}

    x = np.ones((2, 3), np.float32)
    report = interop.check(Model(spoil), Model(spoil), inputs={"x": x}, atol=1e-5)
    assert report.passed and (x == 1).all()


class Spoiler(nn.Module):
    """Changes its input, its buffer and its own state."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))
        self.weight = nn.Parameter(torch.ones(3))
        self.count = 0
        self.seen = []

    def forward(self, x):
        self.calls += 1
        self.count = self.count + 1
        self.seen.append(x.shape)
        self.last = x
        x.mul_(2)
        return x * self.weight + self.calls


def test_module_is_left_as_it_was():
    module = Spoiler().train()
    module.add_module("part", nn.Dropout(0.5))
    module.part.eval()
    before = copy.deepcopy(module.state_dict())
    x = torch.ones(2, 3)
    report = interop.check(module, Model(lambda x: {"y": x * 2 + np.float32(1)}), inputs=x)
    assert report.passed, str(report)
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    assert module.training and not module.part.training
    assert module.count == 0 and module.seen == [] and not hasattr(module, "last")
    assert (x == 1).all()
    assert module.weight.grad is None and module.weight.requires_grad


def test_random_states_and_default_dtype_are_left_as_they_were(net, net_onnx):
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tobytes()
    interop.check(net, net_onnx)
    assert torch.equal(states[0], torch.get_rng_state())
    assert random.getstate() == states[1]
    assert np.random.get_state()[1].tobytes() == states[2]
    assert torch.get_default_dtype() is torch.float32
    assert torch.is_grad_enabled()


def test_reference_runs_in_evaluation_mode(net, net_onnx):
    training = copy.deepcopy(net).train()
    assert interop.check(training, net_onnx).passed
    assert training.training and training.norm.num_batches_tracked == net.norm.num_batches_tracked


@pytest.mark.parametrize("form", ["module", "program", "archive"])
def test_reference_may_be_any_torch_model(net, net_onnx, tmp_path, form):
    reference = net
    if form != "module":
        reference = torch.export.export(net, (torch.randn(2, 1, 6, 6),), dynamic_shapes=(BATCH,))
    if form == "archive":
        torch.export.save(reference, tmp_path / "net.pt2")
        reference = tmp_path / "net.pt2"
    report = interop.check(reference, net_onnx)
    assert report.passed, str(report)
    assert all("float64" in output.note for output in report.outputs.values())


def test_candidate_may_be_a_module(net):
    image = torch.randn(2, 1, 6, 6, generator=torch.Generator().manual_seed(0))
    wrong = copy.deepcopy(net)
    with torch.no_grad():
        wrong.head.bias += 1e-4
    assert interop.check(net, copy.deepcopy(net), inputs=image).passed
    assert not interop.check(net, wrong, inputs=image).passed


class Nested(nn.Module):
    def forward(self, pair, *, shift):
        left, right = pair["left"], pair["right"]
        return {"total": left - 2 * right + shift, "parts": [left.sin(), right.cos()]}

    def example_inputs(self):
        return ({"left": torch.rand(2, 3), "right": torch.rand(2, 3)},)

    def example_kwargs(self):
        return {"shift": torch.rand(3)}


def test_nested_arguments_are_placed_by_the_reference(tmp_path):
    model = Nested()
    path = export(model, model.example_inputs(), tmp_path / "nested.onnx", **model.example_kwargs())
    report = interop.check(model, path)
    assert report.passed, str(report)
    assert report.cases[0].case == "example"
    assert len(report.outputs) == 3


def test_explicit_tolerance_overrides_the_noise(net, net_onnx, tmp_path):
    wrong = planted(net_onnx, tmp_path / "wrong.onnx", FAULTS["one_bias_off_by_1e_5"])
    names = [spec.name for spec in interop.load(net_onnx).signature.outputs]
    report = interop.check(net, wrong, atol={names[0]: 1e-3})
    assert report.passed
    assert report.outputs[names[0]].rule == "tolerance" and report.outputs[names[1]].rule == "noise"
    assert not interop.check(net, net_onnx, atol=0).passed


def test_index_outputs_are_judged_by_values():
    scores = np.array([[1, 1, 0]], np.float32)
    first = Model(lambda x: {"y": scores, "best": np.array([0])}, ("y", "best"))
    second = Model(lambda x: {"y": scores, "best": np.array([1])}, ("y", "best"))
    report = interop.check(first, second, indices={"best": "y"})
    assert report.passed and report.outputs["best"].rule == "indices"
    assert not interop.check(first, second).passed


class Hard(nn.Module):
    """Asks for float32 in its own code, as many normalisations do."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8))
        self.table = torch.linspace(0, 1, 8)

    def forward(self, x):
        wide = x.to(torch.float32)
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        state = torch.zeros(x.shape[0], 8, dtype=torch.float32)
        return (wide + state).to(x.dtype) * self.weight * self.table


def test_float64_reaches_code_that_asks_for_float32():
    from interop.parity.variants import Float64
    from interop.parity.witness import ModuleWitness

    x = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)
    witness = ModuleWitness(Hard())
    exact = witness.run({"x": x}, None, Float64())["output"]
    wide = x.astype(np.float64)
    table = np.asarray(torch.linspace(0, 1, 8)).astype(np.float64)
    expected = wide / np.sqrt((wide**2).mean(-1, keepdims=True) + 1e-6) * table
    assert exact.dtype == np.float64
    np.testing.assert_allclose(exact, expected, rtol=1e-14)
    own = witness.run({"x": x}, None)["output"]
    assert own.dtype == np.float32 and 0 < np.abs(own - expected).max() < 1e-6


def test_float64_that_takes_another_path_is_no_witness():
    class Masked(nn.Module):
        def forward(self, x):
            return torch.where(x > 0, x, torch.finfo(x.dtype).min)

    report = interop.check(Masked(), Model(lambda x: {"y": np.where(x > 0, x, np.finfo(np.float32).min)}))
    assert report.passed, str(report)
    assert "perturbation" in report.outputs["y"].note


def test_ill_conditioned_difference_is_explained():
    class Sum(nn.Module):
        def forward(self, x):
            return x.mul(1e6).sum(-1, keepdim=True).sub(x.sum(-1, keepdim=True) * 1e6)

    def backwards(x):
        big = np.float32(1e6)
        return {"y": (x[:, ::-1] * big).sum(-1, keepdims=True) - x.sum(-1, keepdims=True) * big}

    other = Model(backwards)  # zero in exact arithmetic: every order of summation leaves a residue of about 0.1
    assert interop.check(Sum(), other).passed
    wrong = Model(lambda x: {"y": x.sum(-1, keepdims=True) * np.float32(1e6)})
    assert not interop.check(Sum(), wrong).passed


class Threshold(nn.Module):
    """A bool that hangs on the last bit: 0.1 + 0.2 - 0.3 is above zero in some roundings only."""

    def forward(self, x):
        return ((x * 0.1 + x * 0.2 - x * 0.3) > 0), x > 0


def threshold(x):
    return {"y": np.ones(x.shape, bool), "z": x > 0}


def test_discrete_output_may_fall_where_the_reference_wavers():
    ones = np.ones((2, 3), np.float32)
    report = interop.check(Threshold(), Model(threshold, ("y", "z")), inputs=ones)
    assert report.passed, str(report)
    assert {name: output.rule for name, output in report.outputs.items()} == {"y": "noise", "z": "exact"}
    assert "wavers" in report.outputs["y"].note


def test_discrete_output_fails_where_the_reference_is_sure():
    wrong = Model(lambda x: threshold(x) | {"z": x > 5}, ("y", "z"))
    assert not interop.check(Threshold(), wrong, inputs=np.ones((2, 3), np.float32)).passed


@pytest.mark.parametrize("start", range(0, 100, 25))
def test_right_scalar_output_passes(start):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 64), nn.Tanh(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 1))
    weights = [value.detach().numpy() for value in model.parameters()]

    def answer(x):  # the same network in another order of summation
        first = np.tanh((x[:, ::-1] @ weights[0].T[::-1]) + weights[1])
        hidden = torch.from_numpy(first[:, ::-1].copy() @ weights[2].T[::-1].copy() + weights[3])
        hidden = (hidden * 0.5 * (1 + torch.erf(hidden / 2**0.5))).numpy()
        return {"y": (hidden[:, ::-1] * weights[4][:, ::-1]).sum(-1, keepdims=True) + weights[5]}

    other = Model(answer)
    for seed in range(start, start + 25):
        x = np.random.default_rng(seed).standard_normal((1, 3)).astype(np.float32)
        report = interop.check(model, other, inputs=x, seed=seed)
        assert report.passed, str(report)


def test_control_flow_keeps_its_float64_witness():
    class Branch(nn.Module):
        def forward(self, x):
            return torch.cond(x.sum() > 0, lambda v: v.exp(), lambda v: v.sin(), (x,))

    def answer(x):
        return {"y": np.exp(x) if x.sum() > 0 else np.sin(x)}

    for _ in range(2):
        report = interop.check(Branch(), Model(answer))
        assert report.passed and "float64" in report.outputs["y"].note


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_models_are_judged_in_their_own_precision(dtype):
    model = seeded(Tagger).to(dtype)

    class Cast(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = model

        def forward(self, tokens):
            return self.inner(tokens, torch.ones(1, dtype=dtype))["scores"]

    tokens = torch.arange(12).reshape(3, 4)
    other = copy.deepcopy(Cast())
    assert interop.check(Cast(), other, inputs=tokens).passed
    with torch.no_grad():
        other.inner.out.bias += 0.1
    report = interop.check(Cast(), other, inputs=tokens)
    assert not report.passed
    assert report.outputs["output"].dtype == str(dtype).removeprefix("torch.")


def test_report_is_a_readable_table(net, net_onnx):
    text = str(interop.check(net, net_onnx))
    lines = text.splitlines()
    assert lines[0].split()[:3] == ["candidate", "inputs", "output"]
    assert all(word in lines[0] for word in ("dtype", "shape", "max abs", "max rel", "ulp", "allowed", "verdict"))
    assert "2x5" in text and "net.onnx" in text and "float32" in text
    assert max(map(len, lines)) < 160


def test_report_travels_as_json(net, net_onnx, tmp_path):
    report = interop.check(net, net_onnx, planted(net_onnx, tmp_path / "wrong.onnx", drop_relu))
    data = json.loads(report.to_json())
    assert data["passed"] is False and data["cases"][0]["outputs"]
    again = ParityReport.from_json(report.to_json())
    assert again == report and str(again) == str(report)


def test_report_renders_in_rich(net, net_onnx):
    from rich.console import Console

    console = Console(width=80, record=True, file=io.StringIO())
    console.print(interop.check(net, net_onnx))
    lines = console.export_text().splitlines()
    assert any("net.onnx" in line and line.rstrip().endswith("pass") for line in lines)

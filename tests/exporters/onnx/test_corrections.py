"""Own translations and decompositions, against eager torch, and that torch.onnx still needs them."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

from exporters import TranslationError, export_model
from exporters.onnx import _translate
from exporters.onnx.corrections import DECOMPOSITIONS, TRANSLATIONS, _reports
from interop import InteropError
from tests.exporters.onnx.correction_cases import BY_DYNAMIC_SIZE, ELSEWHERE, REFUSED, SIGNED_ZEROS, WRONG
from tools.aten import Verdict, page, probe
from tools.aten_cases import core_operators

CASES = WRONG | REFUSED
RECORD = Path(__file__).with_name("aten_verdicts.json")


class Calls(nn.Module):
    """Many operators in one model: an export costs more than a call."""

    def __init__(self, cases):
        super().__init__()
        self.cases = dict(cases)

    def forward(self, inputs):
        return {key: pytree.tree_leaves(case[0](*inputs[key])) for key, case in self.cases.items()}


def _answers(cases):
    inputs = {key: list(case[1:]) for key, case in cases.items()}
    model = Calls(cases)
    exported = export_model(model, "onnx", inputs=(inputs,), dynamic_shapes=None, verify=False)
    return exported(inputs), model(inputs)


GROUPS = {key: number // 20 for number, key in enumerate(CASES)}


@functools.cache
def _corrected(group):
    """Several models, so that one failure does not hide all others."""
    return _answers({key: CASES[key] for key, number in GROUPS.items() if number == group})


def _same(result, expected, signed):
    if result.shape != expected.shape or result.dtype != expected.dtype:
        return False
    if signed and not torch.equal(torch.signbit(result) & ~result.isnan(), torch.signbit(expected) & ~expected.isnan()):
        return False
    tiny = 1e-12 if signed else 1e-6
    return torch.allclose(result, expected, rtol=1e-5, atol=tiny, equal_nan=True)


def _agree(key, results, expected):
    return all(_same(result, want, key in SIGNED_ZEROS) for result, want in zip(results, expected, strict=True))


@pytest.fixture
def without_corrections(monkeypatch):
    monkeypatch.setattr(_translate, "TRANSLATIONS", {})
    monkeypatch.setattr(_translate, "decompose", lambda program: program)


@pytest.mark.parametrize("key", CASES)
def test_corrected_operator_gives_the_values_of_torch(key):
    results, expected = (answers[key] for answers in _corrected(GROUPS[key]))
    assert _agree(key, results, expected), f"{results} instead of {expected}"


def test_every_entry_of_the_tables_has_a_case():
    entries = {str(entry).removeprefix("aten.") for entry in (*TRANSLATIONS, *DECOMPOSITIONS)}
    assert entries == {key for key in CASES if "." in key} | {*BY_DYNAMIC_SIZE, *ELSEWHERE}


def test_every_report_is_of_an_entry():
    entries = {str(entry).removeprefix("aten.") for entry in (*TRANSLATIONS, *DECOMPOSITIONS)}
    assert set(_reports._REPORTS) <= entries
    assert all(re.fullmatch(r"[\w-]+/[\w-]+#\d+", one) for each in _reports._REPORTS.values() for one in each)
    assert _reports.reports_of("atan2.default") and not _reports.reports_of("hypot.default")


def _right_by_itself(cases):
    """The cases that agree with torch; what fails together is halved, and what fails alone is not right."""
    try:
        results, expected = _answers(cases)
    except InteropError:
        keys = list(cases)
        halves = [keys[: len(keys) // 2], keys[len(keys) // 2 :]] if len(keys) > 1 else []
        return [key for half in halves for key in _right_by_itself({key: cases[key] for key in half})]
    return [key for key in cases if _agree(key, results[key], expected[key])]


def test_wrong_values_of_torch_onnx_are_still_wrong_without_the_entries(without_corrections):
    fixed = _right_by_itself(WRONG)
    assert not fixed, f"torch.onnx or ONNX Runtime answers right by itself now; remove the entries {fixed}"


@pytest.mark.parametrize("key", REFUSED)
def test_refused_operator_is_still_refused_without_the_entry(key, without_corrections):
    # most are refused by name; for a scatter it is ONNX Runtime that refuses the model
    with pytest.raises(InteropError):
        _answers({key: REFUSED[key]})


class Adaptive(nn.Module):
    def forward(self, image, volume):
        functional = nn.functional
        return (
            functional.adaptive_avg_pool1d(image[:, :, 0], 3),
            functional.adaptive_avg_pool2d(image, (2, 3)),
            functional.adaptive_avg_pool2d(image, (None, 1)),
            functional.adaptive_avg_pool3d(volume, (2, 3, 2)),
            functional.adaptive_max_pool2d(image, (3, 2), return_indices=True),
        )


def _sized(batch, height, width):
    generator = torch.Generator().manual_seed(height)
    image = torch.randn(batch, 3, height, width, generator=generator)
    return image, torch.randn(batch, 2, height, 4, width, generator=generator)


_ADAPTIVE_DIMS = {"image": {0: "n", 2: "h", 3: "w"}, "volume": {0: "n", 2: "h", 4: "w"}}


@pytest.fixture(scope="module")
def adaptive():
    return export_model(Adaptive(), "onnx", inputs=_sized(2, 5, 7), dynamic_shapes=_ADAPTIVE_DIMS, verify=False)


@pytest.mark.parametrize("size", [(2, 5, 7), (1, 8, 4), (3, 6, 6), (2, 2, 2), (2, 11, 9)])
def test_adaptive_pooling_of_a_dynamic_size_follows_the_size(adaptive, size):
    inputs = _sized(*size)
    for result, want in zip(
        pytree.tree_leaves(adaptive(*inputs)), pytree.tree_leaves(Adaptive()(*inputs)), strict=True
    ):
        torch.testing.assert_close(result, want, rtol=1e-5, atol=1e-6)


def test_adaptive_pooling_of_a_dynamic_size_is_still_wrong_without_the_entries(without_corrections):
    class Average(nn.Module):
        def forward(self, image):
            return nn.functional.adaptive_avg_pool2d(image, (2, 3))

    image, other = _sized(2, 4, 6)[0], _sized(2, 5, 7)[0]
    try:
        exported = export_model(
            Average(), "onnx", inputs=image, dynamic_shapes={"image": {2: "h", 3: "w"}}, verify=False
        )
        result = exported(other)
    except Exception as error:  # noqa: BLE001  # whatever it is, it is not the right answer
        pytest.skip(f"refused: {type(error).__name__}")
    want = Average()(other)
    assert result.shape != want.shape or not torch.allclose(result, want, atol=1e-5)


class Bucketize(nn.Module):
    def forward(self, values, bounds):
        return torch.bucketize(values, bounds, right=True)


_BUCKETS = (torch.tensor([[0.0, 3, 9], [float("nan"), 5, 7]]), torch.tensor([1.0, 3, 3, 5, 7]))


def _bucketized():
    return export_model(
        Bucketize(), "onnx", inputs=_BUCKETS, dynamic_shapes={"values": {0: "n"}, "bounds": {0: "k"}}, verify=False
    )


def test_bucketize_takes_boundaries_as_an_input():
    exported = _bucketized()
    for rows in (_BUCKETS[0], _BUCKETS[0][:1]):
        assert torch.equal(exported(rows, _BUCKETS[1]), Bucketize()(rows, _BUCKETS[1]))


def test_bucketize_of_a_dynamic_size_is_still_refused_without_the_entry(without_corrections):
    with pytest.raises(TranslationError):
        _bucketized()


@pytest.mark.parametrize("nonlinearity", ["tanh", "relu"])
@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True, "batch_first": True, "bias": False}])
def test_plain_rnn_takes_other_numbers_of_steps(nonlinearity, options):
    torch.manual_seed(0)
    model = nn.RNN(3, 5, nonlinearity=nonlinearity, **options).eval()
    exported = export_model(
        model, "onnx", inputs=torch.randn(4, 6, 3), dynamic_shapes={"input": {0: "a", 1: "b"}}, verify=False
    )
    for shape in ((4, 6, 3), (7, 2, 3)):
        data = torch.randn(shape)
        with torch.no_grad():
            expected = model(data)
        torch.testing.assert_close(tuple(exported(data)), expected, rtol=1e-4, atol=1e-5)


SAMPLE = (
    "atan2.default",
    "max.dim",
    "scatter_reduce.two",
    "avg_pool2d.default",
    "sort.default",
    "remainder.Tensor",
    "div.Tensor",
)


def test_page_of_the_core_operators_is_that_of_the_record():
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    assert set(record) == set(core_operators())
    written = (RECORD.parents[3] / "docs" / "aten.md").read_text(encoding="utf-8")
    assert page({name: Verdict(*each) for name, each in record.items()}) == written
    assert {status for status, _ in record.values()} == {"right", "shape only", "refused"}
    assert all(why for status, why in record.values() if status != "right")


def test_record_of_the_core_operators_holds_for_a_sample():
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    assert {name: verdict.status for name, verdict in probe(SAMPLE).items()} == {
        name: record[name][0] for name in SAMPLE
    }

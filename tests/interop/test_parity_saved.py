"""Saved runs are judged again without models, and a damaged folder is an error."""

import json
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

import interop
from interop.errors import InputError, ModelFileError
from interop.parity import ParityReport, replay
from interop.parity.saved import Recorder, SavedRun
from interop.parity.tolerance import Allowance
from interop.signature import Signature, TensorSpec


class Function(interop.Runtime):
    """A runtime around a function from one array to named arrays."""

    name = "function"
    framework = "numpy"

    def __init__(self, answer):
        super().__init__(Signature((TensorSpec("x", "float32", ("batch", 3)),), ()))
        self.answer = answer

    @classmethod
    def open(cls, model, **options):
        raise NotImplementedError

    def _execute(self, inputs, owner):
        return self.answer(np.asarray(inputs["x"]))


def right(x):
    return {
        "y": x * 2,
        "half": x.astype(ml_dtypes.bfloat16),
        "count": np.array(x.size),
        "words": np.array(["a", "é"], object),
        "none": np.zeros((0, 2), np.float32),
    }


def wrong(x):
    return right(x) | {"y": x * np.float32(2.001)}


def boom(x):
    raise RuntimeError("out of memory")


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "run"


def test_replay_gives_the_same_report(folder):
    report = interop.check(Function(right), Function(right), Function(wrong), Function(boom), save=folder)
    again = replay(folder)
    assert not report.passed
    assert again == replace(report, first_difference=None)


def test_replay_judges_by_other_tolerances(folder):
    report = interop.check(Function(right), Function(wrong), save=folder)
    assert not report.passed and not replay(folder).passed
    assert replay(folder, rtol={"y": 0.01}).passed
    assert not replay(folder, rtol={"y": 1e-4}).passed
    with pytest.raises(InputError, match="did you mean 'half'"):
        replay(folder, rtol={"hal": 1})


def test_replay_measures_other_tolerances_from_the_reference(folder):
    one, two = np.array([1.0]), np.array([2.0])
    recorder = Recorder(folder)
    recorder.add(SavedRun("c", "x", {}, {"y": one}, {"y": one}, {"y": two}, {"y": Allowance(5.0)}))
    recorder.close(ParityReport("r", ("c",), ()))
    assert replay(folder).outputs["y"].max_abs == 1.0
    assert replay(folder, atol=0).passed


def test_saved_inputs_are_the_ones_that_ran(folder):
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    interop.check(Function(right), Function(right), inputs=[{"x": x}, {"x": x + 1}], save=folder)
    with np.load(folder / "0001.npz", allow_pickle=False) as arrays:
        assert np.array_equal(arrays["inputs_0"], x + 1)


def test_folder_that_is_taken_is_left_alone(folder):
    folder.mkdir()
    (folder / "mine").write_text("x")
    with pytest.raises(ModelFileError, match="not empty"):
        interop.check(Function(right), Function(right), save=folder)
    assert [item.name for item in folder.iterdir()] == ["mine"]


def spoil_json(folder):
    (folder / "run.json").write_text("{")


def spoil_format(folder):
    data = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(data | {"format": 99}))


def spoil_arrays(folder):
    (folder / "0000.npz").write_bytes(b"PK\x03\x04")


def spoil_shape(folder):
    text = (folder / "run.json").read_text()
    data = json.loads(text)
    data["runs"][0]["inputs"]["x"]["shape"] = [99]
    (folder / "run.json").write_text(json.dumps(data))


def spoil_with_pickle(folder):
    np.savez(folder / "0000.npz", allow_pickle=True, inputs_0=np.array([{"a": 1}], object))


def unfinished(folder):
    (folder / "run.json").unlink()


@pytest.mark.parametrize(
    "spoil",
    [spoil_json, spoil_format, spoil_arrays, spoil_shape, spoil_with_pickle, unfinished],
    ids=lambda f: f.__name__,
)
def test_damaged_run_is_an_error(folder, spoil):
    interop.check(Function(right), Function(right), save=folder)
    spoil(folder)
    with pytest.raises(ModelFileError, match="no finished run"):
        replay(folder)

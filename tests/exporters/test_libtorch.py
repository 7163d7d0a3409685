"""Models for C++. What compiles takes minutes, so that it runs by ``make libtorch``; what does not runs always."""

import json
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch

import interop
import models
from exporters import ExportRequest, OptionsError, TranslationError, export_model
from exporters.libtorch import LibtorchArtifact, LibtorchOptions
from exporters.libtorch._identifiers import identifiers
from exporters.libtorch._package import settings_of
from exporters.libtorch._program import capture
from exporters.libtorch._project import render
from interop import InputError, ModelFileError, Signature, TensorSpec

compiles = pytest.mark.skipif(
    "TENSOR_INTEROP_LIBTORCH" not in os.environ,
    reason="compiles for minutes: make libtorch (TENSOR_INTEROP_LIBTORCH=1)",
)

SIGNATURE = Signature(
    (TensorSpec("row/numbers", "float32", ("batch", 6)), TensorSpec("class", "int64", ("batch",))),
    (TensorSpec("label\n", "int64", ("batch",)), TensorSpec("2", "bool", ())),
)


def test_identifiers_are_unique_and_keep_good_names():
    names = ["image", "class", "/x", "x", "2", "a__b", "a_b", "é", "_y", ""]
    found = identifiers(names)
    assert list(found) != [] and set(found) == set(names)
    assert found["image"] == "image" and found["x"] == "x" and found["a_b"] == "a_b" and found["class"] == "class_"
    assert len(set(found.values())) == len(names)
    for identifier in found.values():
        assert re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", identifier) and "__" not in identifier


def test_identifiers_of_the_docstring():
    assert identifiers(["image", "class", "/x", "x", "2"]) == {
        "image": "image", "x": "x", "class": "class_", "/x": "x_2", "2": "value_2",
    }  # fmt: skip


def test_header_has_the_names_types_and_shapes_of_the_model():
    header = render(SIGNATURE, "net")["model.h"]
    assert "namespace net {" in header
    assert "at::Tensor row_numbers;  // row/numbers: float32[batch, 6]" in header
    assert 'checked(inputs.class_, "class", at::kLong, {-1}),' in header
    assert 'checked(inputs.row_numbers, "row/numbers", at::kFloat, {-1, 6}),' in header
    assert "at::Tensor value_2;  // 2: bool[]" in header
    assert "at::Tensor label;  // label : int64[batch]" in header  # a line break in a name stays a comment


def test_main_reads_and_writes_one_file_a_tensor():
    main = render(SIGNATURE, "net")["main.cpp"]
    assert re.findall(r'npy::load\(from / "(.*?)"\)', main) == ["row_numbers.npy", "class_.npy"]
    assert re.findall(r'npy::save\(to / "(.*?)", outputs\.\w+\)', main) == ["label.npy", "value_2.npy"]


def test_dtypes_that_libtorch_does_not_name_are_refused():
    with pytest.raises(TranslationError, match="float8_e4m3fn"):
        render(Signature((TensorSpec("x", "float8_e4m3fn", (2,)),), ()), "net")


@pytest.mark.parametrize("options", [{"portable": 1}, {"namespace": "a b"}, {"fast": True}])
def test_wrong_options_are_refused(options):
    with pytest.raises(OptionsError):
        export_model(models.load("mlp"), "libtorch", options=options)


def test_portable_settings_name_an_instruction_set():
    assert settings_of(False) == {}
    if os.uname().machine == "x86_64":
        assert settings_of(True) == {"cpp.simdlen": 256, "cpp.march": "x86-64-v3"}


def _request(model):
    example = model.example_inputs()
    args, kwargs = ((), example) if isinstance(example, dict) else (example, {})
    return ExportRequest(model, args, kwargs | getattr(model, "example_kwargs", dict)())


def test_capture_keeps_names_and_dynamic_dims():
    captured = capture(_request(models.load("two_inputs")))
    assert captured.signature.input_names == ("query", "documents", "prior")
    assert captured.signature.symbols == ("batch", "documents")
    nodes = [node for node in captured.program.graph.nodes if node.op == "placeholder"][
        -len(captured.signature.inputs) :
    ]
    for node, spec in zip(nodes, captured.signature.inputs, strict=True):
        found = [isinstance(dim, int) for dim in node.meta["val"].shape]
        assert found == [isinstance(dim, int) for dim in spec.shape]


def test_capture_of_an_onnx_source_goes_through_torch(tmp_path):
    export_model(models.load("mlp"), "onnx", path=tmp_path / "m.onnx", verify=False)
    captured = capture(ExportRequest(str(tmp_path / "m.onnx")))
    assert captured.signature.input_names == ("x",) and isinstance(captured.program, torch.export.ExportedProgram)


def test_a_model_elsewhere_than_on_the_cpu_is_refused():
    with pytest.raises(TranslationError, match=r"model\.cpu\(\)"):
        capture(ExportRequest(torch.nn.Linear(2, 2, device="meta"), (torch.zeros(1, 2),)))


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "model"
    LibtorchArtifact(b"PK not really", SIGNATURE).write(path)
    return path


def test_project_folder_is_complete(folder):
    names = {"model.pt2", "tensor_interop.json", "CMakeLists.txt", "main.cpp", "model.h", "npy.h"}
    assert {entry.name for entry in folder.iterdir()} == names
    assert Signature.from_json(json.loads((folder / "tensor_interop.json").read_text())["signature"]) == SIGNATURE


def test_a_damaged_package_is_an_error(folder):
    with pytest.raises(ModelFileError):
        interop.load(folder, allow_native_code=True)
    (folder / "tensor_interop.json").write_text("{}")
    with pytest.raises(ModelFileError, match="not the signature"):
        interop.load(folder, allow_native_code=True)


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_sources_are_valid_cplusplus(folder):
    from torch.utils.cpp_extension import include_paths

    includes = [f"-I{path}" for path in include_paths()]
    command = ["g++", "-std=c++20", "-fsyntax-only", "-Wall", "-Werror=return-type", *includes, "main.cpp"]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-3000:]


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A model with a dict, integers and three outputs, exported and built."""
    source, build = tmp_path_factory.mktemp("source") / "model", tmp_path_factory.mktemp("build")
    model = models.load("dict_model")
    exported = export_model(model, "libtorch", path=source, options={"portable": True, "namespace": "rows"})
    prefix = f"-DCMAKE_PREFIX_PATH={torch.utils.cmake_prefix_path}"
    cmake = shutil.which("cmake")
    assert cmake, "make libtorch needs cmake and a C++ compiler"
    subprocess.run([cmake, "-S", source, "-B", build, prefix], check=True, capture_output=True)
    subprocess.run([cmake, "--build", build], check=True, capture_output=True)
    return model, exported, source, build / "run"


def _run(project, inputs, folder):
    _, _, source, program = project
    (folder / "in").mkdir()
    for name, value in inputs.items():
        np.save(folder / "in" / f"{name}.npy", value.numpy())
    command = [program, source / "model.pt2", folder / "in", folder / "out"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@compiles
@pytest.mark.parametrize("batch", [1, 2, 5])
def test_program_computes_what_eager_torch_does(project, batch, tmp_path):
    model, exported, _, _ = project
    generator = torch.Generator().manual_seed(batch)
    inputs = {
        "row_numbers": torch.randn(batch, 6, generator=generator),
        "row_category": torch.randint(0, 2, (batch,), generator=generator),
    }
    run = _run(project, inputs, tmp_path)
    assert run.returncode == 0, run.stderr
    with torch.no_grad():
        expected = model({"numbers": inputs["row_numbers"], "category": inputs["row_category"]})
    assert exported.signature.output_names == ("logits", "probabilities", "label")
    for name, right in zip(exported.signature.output_names, torch.utils._pytree.tree_leaves(expected), strict=True):
        found = np.load(tmp_path / "out" / f"{name}.npy")
        assert found.dtype == right.numpy().dtype
        np.testing.assert_allclose(found, right.numpy(), atol=1e-5)


@compiles
def test_program_refuses_another_shape_and_says_which(project, tmp_path):
    run = _run(project, {"row_numbers": torch.zeros(2, 7), "row_category": torch.zeros(2, dtype=torch.int64)}, tmp_path)
    assert run.returncode == 1 and "row_numbers" in run.stderr and "[-1, 6]" in run.stderr


@compiles
def test_folder_runs_in_this_process_with_permission_only(project):
    model, _, source, _ = project
    with pytest.raises(ModelFileError, match="allow_native_code"):
        interop.load(source)
    runtime = interop.load(source, allow_native_code=True)
    assert interop.check(model, runtime).passed
    inputs = {"row_numbers": np.zeros((2, 6), np.float32)[:, ::-1], "row_category": np.array([1, 0])}
    assert isinstance(runtime.run(inputs)["logits"], np.ndarray)  # strides that the package was not compiled for
    with pytest.raises(InputError, match="row_numbers"):
        runtime.run(inputs | {"row_numbers": np.zeros((2, 5), np.float32)})


@compiles
def test_portable_package_says_so(project):
    _, _, source, _ = project
    loader = torch._C._aoti.AOTIModelPackageLoader(str(source / "model.pt2"), "model", False, 1, -1)
    assert loader.get_metadata()["AOTI_CPU_ISA"] == "AVX2" or os.uname().machine != "x86_64"


@compiles
def test_export_replaces_an_older_project(project):
    _, exported, source, _ = project
    (source / "main.cpp").unlink()
    exported.save(source)
    assert (source / "main.cpp").is_file()


def test_options_are_frozen_and_documented():
    assert LibtorchOptions() == LibtorchOptions(portable=False, namespace="model")
    assert sys.modules["exporters.libtorch"].LibtorchExporter.format == "libtorch"

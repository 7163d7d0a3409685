"""A client against the real Predict protocol, over gRPC and REST; against a real server where one is named.

``TENSORFLOW_SERVING_ADDRESS=host:8500`` (and ``TENSORFLOW_SERVING_REST_ADDRESS=host:8501``) name a TensorFlow Serving that
serves the folder ``TENSORFLOW_SERVING_MODELS``, which this test writes its model ``odd`` to, in versions 1 and 2.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import torch
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

import interop
from exporters import export_model
from interop.errors import InputError, ModelFileError
from interop.integrations.serving import ServedModel, ServingClient, ServingError, models_config, write_models_config
from tests.serving_server import Server, serve_grpc, serve_rest

PROTOCOLS = ("grpc", "rest")
REAL = {"grpc": os.environ.get("TENSORFLOW_SERVING_ADDRESS"), "rest": os.environ.get("TENSORFLOW_SERVING_REST_ADDRESS")}


class Odd(torch.nn.Module):
    """Nested arguments and results, names that TensorFlow refuses, several dtypes; exact in any order of additions."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = torch.nn.Parameter(torch.tensor(factor))

    def forward(self, batch, self_):
        total = batch["a.b"] * self.factor
        return {"the total": total, "count": self_ + 1, "more": (total.double() / 3, total > 0)}


def _inputs(rows: int = 3):
    values = torch.arange(rows * 2, dtype=torch.float32).reshape(rows, 2) - 2
    return {"a.b": values}, torch.arange(rows, dtype=torch.int64) + 2**40


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    chosen = os.environ.get("TENSORFLOW_SERVING_MODELS")
    base = (Path(chosen) if chosen else tmp_path_factory.mktemp("models")) / "odd"
    shapes = ({"a.b": {0: torch.export.Dim("rows")}}, {0: torch.export.Dim("rows")})
    for version, factor in ((1, 2.0), (2, 4.0)):
        options = {"version": version, "signatures": {"counted": "count"}, "warmup": True}
        export_model(
            Odd(factor), "tensorflow", inputs=_inputs(), dynamic_shapes=shapes, path=base, options=options, verify=False
        )
    return base


@pytest.fixture(scope="module")
def server(base: Path) -> Server:
    return Server({"odd": base}, {"stable": 1})


@pytest.fixture(scope="module")
def addresses(server: Server) -> Iterator[dict[str, str]]:
    with serve_grpc(server) as by_grpc, serve_rest(server) as by_rest:
        yield {"grpc": by_grpc, "rest": by_rest}


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _client(addresses, protocol, base, **options):
    return ServingClient(addresses[protocol], "odd", protocol=protocol, exported=base, **options)


def test_the_server_ran_the_warm_up_requests_when_it_loaded(server):
    assert sorted(server.warmed) == [f"odd/{n}:{name}" for n in (1, 2) for name in ("counted", "serving_default")]


@pytest.mark.parametrize("where", ["reference", "real"])
def test_a_served_model_is_called_like_the_original(addresses, protocol, base, where):
    known = addresses if where == "reference" else REAL
    if not known[protocol]:
        pytest.skip(f"no real server for {protocol}: set TENSORFLOW_SERVING_ADDRESS and the like")
    expected = Odd(4.0)(*_inputs())  # the newest version
    with _client(known, protocol, base) as client:
        got = client(*_inputs())
    assert got.keys() == expected.keys()
    pairs = [(got[name], expected[name]) for name in ("the total", "count")] + list(zip(got["more"], expected["more"]))
    for given, wanted in pairs:
        assert isinstance(given, torch.Tensor)
        torch.testing.assert_close(given, wanted.detach(), rtol=0, atol=0)


@pytest.mark.parametrize("framework", ["numpy", "tensorflow", "torch"])
def test_answers_come_in_the_framework_of_the_inputs(addresses, protocol, base, framework):
    batch, counts = _inputs()
    given = interop.convert([batch["a.b"]], framework)[0]
    with _client(addresses, protocol, base) as client:
        outputs = client.run(dict(zip(client.signature.input_names, (given, counts.numpy()))))
    kind = {"numpy": np.ndarray, "tensorflow": tf.Tensor, "torch": torch.Tensor}[framework]
    first = outputs[client.signature.output_names[0]]
    assert isinstance(first, kind)
    np.testing.assert_array_equal(np.asarray(first), batch["a.b"].numpy() * 4, strict=True)


def test_check_says_that_a_server_is_the_same_function(addresses, protocol, base):
    with _client(addresses, protocol, base) as client:
        assert interop.check(Odd(4.0), client, inputs=_inputs(5)).passed
        report = interop.check(Odd(4.0625), client, inputs=_inputs(5), witnesses=False, locate=False)
    assert not report.passed


def test_without_the_export_names_are_the_server_s(addresses, protocol):
    counts = _inputs()[1]
    with ServingClient(addresses[protocol], "odd", protocol=protocol, signature="counted") as client:
        if protocol == "rest":
            (name,) = client.signature.input_names
            assert client.signature.inputs[0].dtype == "int64"
        else:
            name = "self_"
            with pytest.raises(InputError, match="give exported=FOLDER, or run"):
                client(counts)
        outputs = client.run({name: counts})
    assert [value.tolist() for value in outputs.values()] == [(counts + 1).tolist()]


def test_without_the_export_positions_mean_nothing(addresses):
    batch, counts = _inputs()
    with ServingClient(addresses["rest"], "odd", protocol="rest") as client:
        with pytest.raises(InputError, match=r"no order: name them \("):
            client(batch["a.b"], counts)
        (values,) = set(client.signature.input_names) - {"self_"}
        outputs = client(**{values: batch["a.b"], "self_": counts})
    assert outputs.keys() == {"count", *client.signature.output_names} and len(outputs) == 4
    assert torch.equal(outputs["count"], counts + 1)
    with ServingClient(addresses["rest"], "odd", protocol="rest", signature="counted") as client:
        assert torch.equal(client(counts), counts + 1)


def test_versions_and_labels_choose(addresses, protocol, base):
    for version, factor in ((1, 2), (2, 4), ("stable", 2), (None, 4)):
        with _client(addresses, protocol, base, version=version) as client:
            assert torch.equal(client(*_inputs())["the total"], _inputs()[0]["a.b"] * factor), version


def test_rows_carry_the_same(addresses, base):
    with _client(addresses, "rest", base, layout="rows") as client:
        got = client(*_inputs())
        assert torch.equal(got["the total"], _inputs()[0]["a.b"] * 4)
        assert got["count"].dtype == torch.int64 and got["count"].tolist() == [2**40 + n + 1 for n in range(3)]


def test_floats_that_json_has_no_words_for_arrive(addresses, protocol, base):
    values = torch.tensor([[float("nan"), float("inf")], [-float("inf"), -0.0], [1.1754944e-38, 1.7014118e38]])
    counts = torch.zeros(3, dtype=torch.int64)
    with _client(addresses, protocol, base, version=1) as client:
        got = client({"a.b": values}, counts)["the total"]
    expected = values * 2
    assert torch.equal(got.view(torch.int32)[~expected.isnan()], expected.view(torch.int32)[~expected.isnan()])
    assert torch.equal(got.isnan(), expected.isnan())


def test_more_than_four_megabytes_pass(addresses, base):
    rows = 700_000
    values = torch.arange(rows * 2, dtype=torch.float32).reshape(rows, 2)
    with _client(addresses, "grpc", base) as client:
        got = client({"a.b": values}, torch.zeros(rows, dtype=torch.int64))
    assert torch.equal(got["the total"], values * 4)


def test_wrong_inputs_are_refused_before_they_are_sent(addresses, protocol, base):
    with _client(addresses, protocol, base) as client, pytest.raises(InputError, match="expects float32, got float64"):
        client({"a.b": torch.zeros(3, 2, dtype=torch.float64)}, torch.zeros(3, dtype=torch.int64))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"model": "none"}, "models.config"),
        ({"version": 9}, "models.config"),
    ],
)
def test_a_model_that_is_not_served_is_an_error_with_a_next_step(addresses, protocol, base, options, said):
    asked = {"model": "odd", "exported": base, **options}
    with (
        ServingClient(addresses[protocol], protocol=protocol, **asked) as client,
        pytest.raises(ServingError, match=said),
    ):
        client(*_inputs())


def test_the_server_s_own_refusal_is_an_input_error(addresses, protocol):
    client = ServingClient(addresses[protocol], "odd", protocol=protocol, signature="nothing")
    with client, pytest.raises((InputError, ServingError), match="nothing"):
        client.run({"x": np.zeros(2, np.float32)})


@pytest.mark.parametrize("address", ["127.0.0.1:9", "https://127.0.0.1:9"])
def test_a_server_that_is_not_there_is_an_error_with_a_next_step(protocol, base, address):
    client = ServingClient(address, "odd", protocol=protocol, exported=base, timeout=20)
    with client, pytest.raises(ServingError, match=r"see that the server runs"):
        client(*_inputs())


def test_a_late_answer_is_an_error(server, protocol, base):
    with {"grpc": serve_grpc, "rest": serve_rest}[protocol](server) as address:
        server.delay = 1.0
        try:
            started = time.monotonic()
            client = ServingClient(address, "odd", protocol=protocol, exported=base, timeout=0.2)
            with client, pytest.raises(ServingError, match=r"no answer within 0.2 s; give timeout="):
                client(*_inputs())
            assert time.monotonic() - started < 0.9
        finally:
            server.delay = 0.0


def test_a_server_of_another_model_is_found_out(addresses, protocol, base):
    data = json.loads((base / "2" / "assets.extra" / "tensor_interop.json").read_text())
    data["signature"]["outputs"][0]["dtype"] = "float64" if protocol == "grpc" else "int64"
    client = ServingClient(addresses[protocol], "odd", protocol=protocol, exported=data)
    with client, pytest.raises(ServingError, match="another"):
        client(*_inputs())


def test_an_export_without_a_description_is_an_error(tmp_path):
    with pytest.raises(ModelFileError, match="leave exported= out"):
        ServingClient("localhost:8500", "m", exported=tmp_path)
    with pytest.raises(ModelFileError, match="no description of the signature 'x'"):
        ServingClient("localhost:8500", "m", exported={"names": {}}, signature="x")


@pytest.mark.parametrize(
    "options", [{"protocol": "http"}, {"protocol": "rest", "layout": "column"}, {"timeout": 0}, {"model": ""}]
)
def test_what_a_client_cannot_be_is_an_error(options):
    with pytest.raises(InputError):
        ServingClient(**{"address": "localhost:1", "model": "m", **options})


# ----------------------------------------------------------------------------------------------------- models.config


def _config_class():
    """``tensorflow.serving.ModelServerConfig`` by its public field numbers and types."""
    proto = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="config.proto", package="t", syntax="proto3")

    def add(name, /, **kinds):
        message = file.message_type.add(name=name)
        for field, (number, kind, many) in kinds.items():
            label = proto.LABEL_REPEATED if many else proto.LABEL_OPTIONAL
            made = message.field.add(name=field, number=number, label=label)
            if kind in ("string", "int64", "uint32"):
                made.type = getattr(proto, f"TYPE_{kind.upper()}")
            else:
                made.type, made.type_name = proto.TYPE_MESSAGE, f".t.{kind}"

    add("Latest", num_versions=(1, "uint32", False))
    add("All")
    add("Specific", versions=(1, "int64", True))
    add("Policy", latest=(100, "Latest", False), all=(101, "All", False), specific=(102, "Specific", False))
    add("Label", key=(1, "string", False), value=(2, "int64", False))
    add(
        "Config",
        name=(1, "string", False),
        base_path=(2, "string", False),
        model_platform=(4, "string", False),
        model_version_policy=(7, "Policy", False),
        version_labels=(8, "Label", True),
    )
    add("List", config=(1, "Config", True))
    add("Server", model_config_list=(1, "List", False))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("t.Server"))


def test_a_models_config_says_to_protobuf_what_was_meant():
    text = models_config(
        [
            ServedModel("digits", "/models/digits", latest=2, labels={"stable": 1, "canary": 2}),
            ServedModel('größe "x" \\', "/m/a b", versions=(3, 5)),
            ServedModel("whole", "/m/all", versions="all"),
        ]
    )
    assert text.isascii()
    first, second, third = text_format.Parse(text, _config_class()()).model_config_list.config
    assert (first.name, first.base_path, first.model_platform) == ("digits", "/models/digits", "tensorflow")
    assert first.model_version_policy.latest.num_versions == 2
    assert {label.key: label.value for label in first.version_labels} == {"stable": 1, "canary": 2}
    assert (second.name, second.base_path) == ('größe "x" \\', "/m/a b")
    assert list(second.model_version_policy.specific.versions) == [3, 5]
    assert third.model_version_policy.HasField("all")


def test_a_models_config_is_written_where_the_versions_are(base, tmp_path):
    path = write_models_config(tmp_path / "models.config", [ServedModel("odd", base, versions=(1, 2))])
    assert path.read_text() == models_config([ServedModel("odd", base, versions=(1, 2))])
    with pytest.raises(ModelFileError, match=r"no versions \[3\]; it has \[1, 2\]"):
        write_models_config(tmp_path / "models.config", [ServedModel("odd", base, labels={"new": 3})])
    with pytest.raises(ModelFileError, match="give check=False"):
        write_models_config(tmp_path / "other", [ServedModel("odd", tmp_path)])
    assert write_models_config(tmp_path / "other", [ServedModel("odd", tmp_path)], check=False).exists()
    assert {item.name for item in tmp_path.iterdir()} == {"models.config", "other"}


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: models_config([]), "at least one"),
        (lambda: models_config([ServedModel("a", "/m")] * 2), "models of one name"),
        (lambda: ServedModel("a", "m"), "absolute"),
        (lambda: ServedModel("", "/m"), "needs a name"),
        (lambda: ServedModel("a", "/m", versions="new"), "'latest', 'all'"),
        (lambda: ServedModel("a", "/m", versions=(-1,)), "from 0 on"),
        (lambda: ServedModel("a", "/m", versions=(1,), labels={"x": 2}), "none of the loaded"),
        (lambda: ServedModel("a", "/m", latest=0), "at least 1"),
    ],
)
def test_a_config_that_no_server_would_load_is_an_error(make, said):
    with pytest.raises(InputError, match=said):
        make()

"""A Ray cluster that runs already is used by its address, and runs on afterwards."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import interop
from exporters import export_model
from interop.integrations.ray import Job, check_many
from interop.integrations.ray_serve import deployment, running
from interop.integrations.ray_tune import Choice, Variant, search

ray = pytest.importorskip("ray", reason="Ray is not installed")

NET = """
import torch


def build():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Tanh()).eval()
"""


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _ray(*arguments: str, temporary: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "RAY_TMPDIR": temporary}
    command = [sys.executable, "-m", "ray.scripts.scripts", *arguments]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )


@pytest.fixture(scope="module")
def address():
    """A head node of its own that wants a token, started as an administrator would."""
    temporary = tempfile.mkdtemp(prefix="ray")  # a short path: Ray's sockets lie in it
    (Path(temporary) / "token").write_text("0123456789abcdef" * 4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_AUTH_TOKEN_PATH", str(Path(temporary) / "token"))
        yield from _head(temporary)


def _head(temporary: str) -> Iterator[str]:
    port = _free_port()
    size = str(100 << 20)
    head = _ray(
        *("start", "--head", "--block", "--node-ip-address", "127.0.0.1", "--port", str(port), "--num-cpus", "2"),
        *("--object-store-memory", size, "--include-dashboard", "false", "--temp-dir", temporary),
        temporary=temporary,
    )
    try:
        _wait(port, head)
        yield f"127.0.0.1:{port}"
    finally:
        head.terminate()
        head.wait(60)
        shutil.rmtree(temporary, ignore_errors=True)


def _wait(port: int, head: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 120
    while time.monotonic() < end:
        assert head.poll() is None, f"ray start ended with {head.returncode}"
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                time.sleep(3)  # the node joins after its port is open
                return
        time.sleep(0.5)
    raise AssertionError("ray start did not open its port")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("place")
    (folder / "nets.py").write_text(NET)
    export_model(_net(), "onnx", inputs=torch.ones(2, 3), path=folder / "net.onnx", verify=False)
    return folder


def _net() -> torch.nn.Module:
    names: dict = {}
    exec(NET, names)  # the text above, which the workers read from a file
    return names["build"]()


def _call(seed: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Inputs of a call, and what eager torch answers."""
    x = np.random.default_rng(seed).standard_normal((4, 3)).astype(np.float32)
    with torch.no_grad():
        return {"input": x}, _net()(torch.from_numpy(x)).numpy()


def test_checks_run_on_it_twice_and_it_stays(address, place):
    for seed in (1, 2):
        inputs, _ = _call(seed)
        job = Job(f"{place / 'nets.py'}:build", (str(place / "net.onnx"),), f"shard {seed}", {"inputs": inputs})
        report = check_many([job], address=address)
        assert report.passed and len(report.cases) == 1, report.summary
        assert not ray.is_initialized()


def test_a_cluster_of_its_own_does_not_change_how_this_process_logs_in(address, place, monkeypatch):
    """Ray remembers, for the whole process, whether the first cluster wanted a token."""
    inputs, _ = _call(5)
    job = Job(f"{place / 'nets.py'}:build", (str(place / "net.onnx"),), "one", {"inputs": inputs})
    with monkeypatch.context() as patch:
        patch.delenv("RAY_AUTH_MODE")  # the one for a single check wants none
        assert check_many([job], cpus=1).passed
    assert check_many([job], address=address).passed


def test_a_model_is_served_on_it(address, place):
    inputs, expected = _call(3)
    with running(deployment(place / "net.onnx"), address=address, port=_free_port()) as handle:
        [found] = handle.predict.remote(inputs).result(timeout_s=60).values()
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert not ray.is_initialized()


def test_choices_are_measured_on_it(address, place):
    inputs, expected = _call(4)
    variant = Variant(None, "float32", str(place / "net.onnx"))
    [name] = interop.load(place / "net.onnx").signature.output_names
    report = search([Choice(threads=1)], [variant], inputs, {name: expected}, seconds=0.02, address=address)
    [trial] = report.trials
    assert trial.problem == "" and trial.latency > 0 and trial.error == 0
    assert not ray.is_initialized()

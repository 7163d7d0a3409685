"""Build Horovod for the installed torch, keep the wheel, and run the distributed example with it: ``make horovod``.

Horovod 0.28.1 asks its compiler for C++14 and torch's headers need C++17, so the compiler it is given is a wrapper that says
``-std=c++17`` last. The build is bound to torch's version and kept by ``tools.cache``; Horovod is imported from there and never
installed into the environment. ``python -m tools.horovod --where`` prints the folder to put on ``PYTHONPATH``.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tools import cache

ROOT = Path(__file__).resolve().parent.parent
VERSION = "0.28.1"
SWITCHES = {
    "HOROVOD_WITH_PYTORCH": "1",
    "HOROVOD_WITHOUT_TENSORFLOW": "1",
    "HOROVOD_WITHOUT_MXNET": "1",
    "HOROVOD_WITH_GLOO": "1",
    "HOROVOD_WITHOUT_MPI": "1",
    "MAKEFLAGS": "-j2",
}


def folder() -> Path:
    """Where the build for this torch and Python is kept."""
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    return cache.folder(f"horovod-{VERSION}-torch-{importlib.metadata.version('torch')}-{python}")


def site() -> Path:
    """The folder to import Horovod from."""
    return folder() / "site"


def cached() -> bool:
    """Whether it was built already."""
    return (site() / "horovod").is_dir()


def build() -> None:
    """Build the wheel (about four minutes of CPU time) and unpack it; both appear whole or not at all.

    Raises:
        SystemExit: a tool is missing, or the build fails.
    """
    for tool in ("cmake", "make", "c++"):
        if shutil.which(tool) is None:
            raise SystemExit(f"{tool} is needed to build Horovod and is not installed: apt-get install cmake g++ make")
    place = folder()
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent) as scratch:
        compiler = Path(scratch) / "c++17"
        compiler.write_text(f'#!/bin/sh\nexec {shutil.which("c++")} "$@" -std=c++17\n', encoding="utf-8")
        compiler.chmod(0o755)
        made = Path(scratch) / "made"
        environment = {**os.environ, **SWITCHES, "CXX": str(compiler)}
        _pip("wheel", "--no-build-isolation", "--wheel-dir", str(made), f"horovod=={VERSION}", environment=environment)
        _pip("install", "--target", str(made / "site"), *map(str, made.glob("*.whl")), environment=environment)
        if place.exists():
            shutil.rmtree(place)
        made.rename(place)


def _pip(verb: str, *arguments: str, environment: dict[str, str]) -> None:
    command = [sys.executable, "-m", "pip", verb, "--quiet", "--no-deps", *arguments]
    done = subprocess.run(command, env=environment, check=False, cwd=ROOT)
    if done.returncode:
        raise SystemExit(f"pip {verb} failed with status {done.returncode}; its messages are above")


def run(out: Path, steps: int = 20) -> dict[str, Any]:
    """Run the example on two processes.

    Args:
        out: where rank 0 writes the model.
        steps: of training.

    Returns:
        What rank 0 prints.

    Raises:
        RuntimeError: it failed.
    """
    paths = [str(site()), str(ROOT), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": "1"}
    launcher = [sys.executable, "-m", "horovod.runner.launch", "-np", "2", "--gloo"]
    example = [sys.executable, "-m", "examples.distributed_training", "--library", "horovod"]
    command = [*launcher, *example, "--steps", str(steps), "--out", str(out)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=ROOT, timeout=300)
    lines = [line[line.index("{") :] for line in done.stdout.splitlines() if '"library"' in line]
    if done.returncode or len(lines) != 1:
        raise RuntimeError(f"status {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    report: dict[str, Any] = json.loads(lines[0])
    return report


def main() -> None:
    """Build where that was not done, run, and judge; with ``--where`` only say where it is."""
    if "--where" in sys.argv[1:]:
        sys.stdout.write(f"{site()}\n")
        return
    if not cached():
        build()
    with tempfile.TemporaryDirectory() as scratch:
        report = run(Path(scratch) / "model.onnx")
    equal = len(set(report["after"])) == 1 and len(set(report["before"])) == 2
    sys.stdout.write(json.dumps(report, indent=2) + "\n")
    if not equal:
        raise SystemExit("the two workers do not have equal parameters")


if __name__ == "__main__":
    main()

"""What is installed here, what of it is known to go wrong together, and what the frameworks can share."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import platform
import re
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from interop.known_problems import Problem, find_problems, release
from interop.probe import Sharing, probe_sharing

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["DoctorReport", "Goal", "Package", "Problem", "doctor", "versions_tested"]

TESTED: dict[str, str] = {
    "ai-edge-litert": "2.3.0",
    "captum": "0.9.0",
    "grpcio": "1.85.3",
    "jax": "0.10.2",
    "keras": "3.15.1",
    "kornia": "0.9.0",
    "ml-dtypes": "0.6.0",
    "mlflow": "3.17.2",
    "numpy": "2.4.6",
    "onnx": "1.23.2",
    "onnx-ir": "1.1.0",
    "onnxruntime": "1.32.0",
    "onnxscript": "0.7.2",
    "optree": "0.20.0",
    "protobuf": "7.36.2",
    "ray": "2.60.0",
    "safetensors": "0.8.0",
    "tensorboard": "2.21.0",
    "tensorflow-cpu": "2.21.0",
    "tf2onnx": "1.17.0",
    "torch": "2.13.0",
    "transformers": "5.24.0",
}
"""The versions that this release was tested with, for installations without the repository's constraints.txt."""

_SAME_MODULE = {
    "onnxruntime": ("onnxruntime", "onnxruntime-gpu"),
    "tensorflow-cpu": ("tensorflow-cpu", "tensorflow"),
}
"""Distributions that install the same import package; the tested one first."""


_Rows = list[tuple[str, ...]]
_Table = tuple[str, tuple[str, ...], _Rows]  # title, header, rows


@dataclass(frozen=True, slots=True)
class Package:
    """A library that this project works with.

    Attributes:
        name: distribution name, as pip knows it.
        version: what is installed, or None.
        tested: the version that this release was tested with.
    """

    name: str
    version: str | None
    tested: str

    @property
    def state(self) -> str:
        """``"tested"``, ``"newer"``, ``"older"``, ``"other build"`` (a pre-release, say) or ``"missing"``."""
        if self.version is None:
            return "missing"
        if self.version.partition("+")[0] == self.tested.partition("+")[0]:
            return "tested"
        present, tested = release(self.version), release(self.tested)
        return "newer" if present > tested else "older" if present < tested else "other build"


@dataclass(frozen=True, slots=True)
class Goal:
    """Something to do with this toolkit.

    Attributes:
        name: what one wants.
        how: the call that does it.
        extra: the extra of this project that it needs; empty where none installs it.
        missing: import names that are not installed; empty where the goal can be reached.
        purpose: what it is a part of, such as ``"explain"``.
        untested: packages that it uses at another version than this release was tested with.
    """

    name: str
    how: str
    extra: str
    missing: tuple[str, ...]
    purpose: str = ""
    untested: tuple[Package, ...] = ()

    @property
    def ready(self) -> bool:
        """True where everything it needs is installed."""
        return not self.missing

    @property
    def state(self) -> str:
        """``"ready"``, with the packages whose version was not tested, or what to do first."""
        if self.missing:
            needs = f"needs {', '.join(self.missing)}"
            return f"pip install 'tensor-interop[{self.extra}]'" if self.extra else needs
        if not self.untested:
            return "ready"
        others = ", ".join(f"{package.name} {package.version} (tested: {package.tested})" for package in self.untested)
        return f"ready, not tested with {others}"


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """The state of an installation, as plain data; print it to read it.

    Attributes:
        python: version of Python.
        platform: operating system and machine.
        packages: what is installed, beside what was tested.
        problems: known bad pairs among them, and frameworks that do not import.
        goals: what can be done with what is installed.
        sharing: what each pair of frameworks shares; empty where that was not probed.
    """

    python: str
    platform: str
    packages: tuple[Package, ...]
    problems: tuple[Problem, ...]
    goals: tuple[Goal, ...]
    sharing: tuple[Sharing, ...]

    def to_json(self, indent: int | None = None) -> str:
        """The report as JSON, with the derived states."""
        data = asdict(self)
        for item, package in zip(data["packages"], self.packages):
            item["state"] = package.state
        for item, goal in zip(data["goals"], self.goals):
            item["ready"] = goal.ready
            item["state"] = goal.state
            for part, package in zip(item["untested"], goal.untested):
                part["state"] = package.state
        return json.dumps(data, indent=indent)

    def __str__(self) -> str:
        parts = [f"Python {self.python} on {self.platform}"]
        for title, header, rows in self._tables():
            widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
            lines = [
                "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in [header, *rows]
            ]
            parts.append("\n  ".join([title, *lines]))
        return "\n\n".join([*parts, *self._remarks()])

    def __rich__(self) -> RenderableType:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        parts: list[RenderableType] = [Text(f"Python {self.python} on {self.platform}")]
        for title, header, rows in self._tables():
            table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
            for name in header:
                table.add_column(name, overflow="fold")
            for row in rows:
                table.add_row(*map(Text, row))
            parts += [Text(), table]
        for remark in self._remarks():
            parts += [Text(), Text(remark)]
        return Group(*parts)

    def _tables(self) -> list[_Table]:
        packages: _Rows = [(p.name, p.version or "-", p.tested, p.state) for p in self.packages]
        problems: _Rows = [(" + ".join(p.packages), p.what, p.remedy) for p in self.problems]
        goals: _Rows = [(g.purpose, g.name, g.how, g.state) for g in self.goals]
        tables: list[_Table] = [
            ("Packages", ("package", "installed", "tested", "state"), packages),
            ("Known to go wrong with these versions", ("with", "what happens", "instead"), problems),
            ("What you can do here", ("goal", "part", "call", "state"), goals),
            (
                "Who shares memory with whom (probed just now)",
                ("from", "to", "shared", "copied", "refused"),
                self._pairs(),
            ),
            ("Why not shared", ("to", "dtype", "reason"), self._reasons()),
        ]
        return [table for table in tables if table[2]]

    def _pairs(self) -> _Rows:
        return [
            (s.source, s.target, *(", ".join(names) or "-" for names in (s.shared, s.copied, s.refused)))
            for s in self.sharing
        ]

    def _reasons(self) -> _Rows:
        return sorted({(s.target, dtype, reason) for s in self.sharing for dtype, reason in s.reasons.items()})

    def _remarks(self) -> list[str]:
        return [] if self.problems else ["Nothing is known to go wrong with these versions."]


def doctor(*, quick: bool = False) -> DoctorReport:
    """Examine this installation.

    Frameworks are imported in a child process: one that crashes there is reported, and this process stays as it is.

    Args:
        quick: look at versions only and import no framework.

    Returns:
        The report.

    Example:
        >>> print(doctor(quick=True))  # doctest: +SKIP
    """
    packages = _packages()
    sharing, failures = ((), ()) if quick else probe_sharing()
    failed = [Problem((name,), what, f"reinstall {name}, then run interop doctor again") for name, what in failures]
    return DoctorReport(
        python=platform.python_version(),
        platform=f"{platform.system()} {platform.machine()}",
        packages=packages,
        problems=(*failed, *_broken_promises(sharing), *find_problems(_installed())),
        goals=_goals(packages),
        sharing=sharing,
    )


def _broken_promises(sharing: Iterable[Sharing]) -> list[Problem]:
    return [
        Problem(
            (s.source, s.target),
            f"interop.explain is wrong about {', '.join(s.broken)}",
            "pass copy=True to interop.convert",
        )
        for s in sharing
        if s.broken
    ]


def versions_tested() -> dict[str, str]:
    """The versions that this release was tested with: the committed lock in a checkout, else ``TESTED``."""
    root = Path(__file__).resolve().parent.parent
    lock = root / "constraints.txt"
    if not lock.is_file() or not (root / "pyproject.toml").is_file():
        return dict(TESTED)
    return {name: version for name, version in _read_lock(lock.read_text()).items() if name in TESTED}


def _read_lock(text: str) -> dict[str, str]:
    pins = re.findall(r"^\s*([A-Za-z0-9._-]+)\s*==\s*([^\s;#]+)", text, flags=re.MULTILINE)
    return {_normal(name): version for name, version in pins}


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _installed() -> dict[str, str]:
    """Distribution name -> version; the first on the path wins, as it does for imports."""
    found: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        name = distribution.metadata["Name"]
        if name:  # a half-removed distribution has no metadata
            found.setdefault(_normal(name), distribution.version)
    return found


def _packages() -> tuple[Package, ...]:
    installed, packages = _installed(), []
    for name, tested in versions_tested().items():
        present = next((other for other in _SAME_MODULE.get(name, (name,)) if other in installed), name)
        packages.append(Package(present, installed.get(present), tested))
    return tuple(packages)


def _missing(modules: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in modules if name not in sys.modules and importlib.util.find_spec(name) is None)


def _goals(packages: Iterable[Package]) -> tuple[Goal, ...]:
    known = {package.name: package for package in packages}

    def untested(modules: Iterable[str]) -> tuple[Package, ...]:
        names = [name for module in modules for name in _distributions_of(module) if name in known]
        return tuple(known[name] for name in names if known[name].state not in ("tested", "missing"))

    return tuple(
        Goal(name, how, extra, _missing(modules), purpose, untested(modules))
        for purpose, rows in GOALS.items()
        for name, how, extra, modules in rows
    )


def _distributions_of(module: str) -> tuple[str, ...]:
    name = {"tensorflow": "tensorflow-cpu", "grpc": "grpcio"}.get(module, _normal(module))
    return _SAME_MODULE.get(name, (name,))


_ONNX = ("torch", "onnx", "onnx_ir", "onnxscript")
_RAY_DATA = ("ray", "pyarrow")
_INTEGRATIONS = "interop.integrations"
GOALS: dict[str, tuple[tuple[str, str, str, tuple[str, ...]], ...]] = {
    "exchange models": (
        ("export to ONNX", 'export_model(model, "onnx")', "onnx", _ONNX),
        ("export to TensorFlow", 'export_model(model, "tensorflow")', "tensorflow", (*_ONNX, "tensorflow")),
        ("export to LiteRT", 'export_model(model, "litert")', "litert", (*_ONNX, "tensorflow", "ai_edge_litert")),
        ("TensorFlow to ONNX", 'export_model("saved_model", "onnx")', "tensorflow", ("tensorflow", "tf2onnx", "onnx")),
        ("ONNX back to torch", 'export_model("model.onnx", "torch")', "onnx", (*_ONNX, "onnxruntime")),
        ("run torch models and .pt2 files", 'interop.load("model.pt2")', "torch", ("torch",)),
        ("run ONNX files", 'interop.load("model.onnx")', "onnx", ("onnxruntime", "onnx")),
        ("run SavedModels", 'interop.load("saved_model")', "tensorflow", ("tensorflow",)),
        ("check that two models agree", "interop.check(model, file)", "onnx", ("torch", "onnx", "onnxruntime")),
        ("share tensors with TensorFlow", 'interop.convert(x, "tensorflow")', "tensorflow", ("tensorflow",)),
        ("share tensors with JAX", 'interop.convert(x, "jax")', "jax", ("jax",)),
        ("preprocessing in the graph", "examples/kornia_pipeline.py", "kornia", (*_ONNX, "kornia")),
    ),
    "train on several machines": (
        ("torch.distributed", "torchrun -m examples.distributed_training", "onnx", _ONNX),
        ("Horovod", "make horovod", "onnx", _ONNX),  # builds Horovod itself, for the installed torch
        (
            "in TensorFlow",
            'export_model(model, "tensorflow", options={"training": True})',
            "tensorflow",
            ("tensorflow",),
        ),
    ),
    "serve from C++": (
        ("LibTorch", 'export_model(model, "libtorch", path=folder)', "onnx", (*_ONNX, "onnxruntime")),
        ("ONNX Runtime", 'export_model(model, "onnx")', "onnx", _ONNX),
        ("LiteRT", 'export_model(model, "litert")', "litert", (*_ONNX, "tensorflow", "ai_edge_litert")),
    ),
    "serve over the network": (
        ("TensorFlow Serving", f"{_INTEGRATIONS}.serving.ServingClient", "serving", ("grpc",)),
        ("Ray Serve", f"{_INTEGRATIONS}.ray_serve.deployment(path)", "ray", ("ray", "starlette")),
        ("large data sets", f"{_INTEGRATIONS}.ray_data.map_batches(data, path)", "ray", _RAY_DATA),
    ),
    "track": (
        ("MLflow", f"{_INTEGRATIONS}.mlflow.log_model(exported, name)", "mlflow", ("mlflow",)),
        (
            "TensorBoard",
            f"{_INTEGRATIONS}.tensorboard.log_parity(folder, report)",
            "tensorboard",
            ("tensorboard", "torch"),
        ),
    ),
    "tune": (("latency against parity", "interop tune MODEL", "ray", (*_RAY_DATA, "onnxruntime")),),
    "explain": (
        ("attributions", f"{_INTEGRATIONS}.captum.attribute(model, method, x)", "captum", ("captum", "torch")),
        (
            "across runtimes",
            f"{_INTEGRATIONS}.captum.compare_attributions(models, method, x)",
            "captum",
            ("captum", "torch"),
        ),
        ("the first operator that differs", "interop.check(model, file)", "onnx", ("torch", "onnx", "onnxruntime")),
    ),
}
"""Goal -> its parts: name, the call that does it, the extra that installs it, and the import names that it needs."""

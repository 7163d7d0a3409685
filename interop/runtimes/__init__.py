"""What executes a model: one file a runtime, the same protocol in each.

Importing this package imports no framework; a runtime's own file does, when a model asks for it.
"""

from __future__ import annotations

from interop.runtimes._base import Runtime
from interop.runtimes._benchmark import Benchmark
from interop.runtimes._load import RUNTIMES, available_runtimes, is_model, load

__all__ = ["load", "is_model", "available_runtimes", "Runtime", "Benchmark", "RUNTIMES"]

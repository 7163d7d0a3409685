"""Are two models the same function? Inputs to ask with, the float noise to allow, the verdict, and the report.

Importing this package imports no framework.
"""

from __future__ import annotations

from interop.parity.check import check
from interop.parity.compare import Comparison, OutputComparison, compare
from interop.parity.difference import Difference
from interop.parity.locate import locate
from interop.parity.report import CaseResult, ParityReport
from interop.parity.saved import replay

__all__ = [
    "check",
    "compare",
    "locate",
    "replay",
    "CaseResult",
    "Comparison",
    "Difference",
    "OutputComparison",
    "ParityReport",
]

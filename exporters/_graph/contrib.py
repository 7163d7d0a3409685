"""What both tables know of ONNX Runtime's own operators.

Source: the operator schemas of onnxruntime, ``docs/ContribOperators.md``.
"""

from __future__ import annotations

__all__ = ["FLOAT32_MIN_EPSILON", "HIDDEN", "MICROSOFT"]

MICROSOFT = "com.microsoft"
"""The domain."""

FLOAT32_MIN_EPSILON = 9.999999960041972e-13
"""1e-12 as float32, the default of the skip and embedding normalisations."""

HIDDEN = -10000.0
"""What attention adds to the score of a hidden key by default."""

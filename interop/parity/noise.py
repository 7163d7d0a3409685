"""How much of a difference is float arithmetic: measured on the reference itself, for this model on this input.

The reference runs in float64, whose answer is taken for the true one, in its own precision, and a few times in its own
precision with every operand of every arithmetic operator moved by up to one ulp at random (Monte Carlo arithmetic,
Parker 1997). The distances of those runs to the float64 answer are what rounding does to this function. A candidate
passes while its own distance stays within a factor of the largest of them, in the maximum and in the root mean square.
The noise of an output is never taken below ``FLOOR_ULP`` units in the last place of the output's scale, and an output of
few elements, whose noise three runs measure badly, gets a larger factor.

Measured on the example models in ONNX Runtime, seven input families, optimised and not: of 1,680 right outputs none was
further than 1.7 times the noise in the maximum and 1.9 times in the root mean square. Of 457 planted faults, 295 were
visible (more than 20 times the float noise on some input); all of them failed.

A model that only runs in its own precision is measured by moving its inputs by one ulp, with a higher floor; a quantised ONNX
model, in which rounding becomes whole steps, by moving its constants too (``interop.parity.quantized``).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from interop.dtypes import dtype_of
from interop.parity.figures import as_numpy, scale_of, ulp_of
from interop.parity.tolerance import Allowance
from interop.parity.variants import Float64, Jitter
from interop.parity.witness import ModuleWitness, RuntimeWitness, Witness
from interop.signature import Signature

__all__ = [
    "FACTOR",
    "FLOOR_ULP",
    "PERTURBED_FLOOR_ULP",
    "RMS_FACTOR",
    "Noise",
    "allowances_of",
    "measure",
    "move",
    "wavering",
]

Array = npt.NDArray[Any]

FACTOR = 4.0
"""Allowed multiple of the noise, in the maximum over an output."""
RMS_FACTOR = 3.0
"""Allowed multiple of the noise, in the root mean square over an output."""
FLOOR_ULP = 1.0
"""Smallest noise in the maximum, in ulp of the output's scale, where the float64 answer is known."""
RMS_FLOOR = 0.3
"""The same in the root mean square, as a part of the floor of the maximum: rounding to nearest is off by 0.29 ulp."""
PERTURBED_FLOOR_ULP = 16.0
"""The same where only the inputs could be moved: rounding inside the model was not seen."""
SMALL = 8.0
"""The factor of n measured differences is multiplied by 1 + SMALL / n: the largest of three is often a small one."""
ILL_CONDITIONED = 1e-3
"""Noise of this part of the output's scale is worth a remark."""
SAMPLES = 2
"""Runs with moved operands or inputs."""
BLOCK = 1 << 20
"""Elements that are moved at a time."""
DIVERGED = 1e4
"""Float64 that is this many times further from the reference than its noise computes another function."""

MODEL_ERRORS = (
    RuntimeError,
    TypeError,
    ValueError,
    LookupError,
    AttributeError,
    AssertionError,
    ArithmeticError,
)
"""What a model raises that cannot run in another precision."""


@dataclass(frozen=True)
class Noise:
    """Runs of the reference that differ by rounding only.

    Attributes:
        method: ``"float64"`` or ``"perturbed inputs"``.
        truths: the outputs that distances are measured from, where better than the reference's own run.
        samples: outputs of the other runs.
    """

    method: str
    truths: dict[str, Array] = field(default_factory=dict)
    samples: tuple[dict[str, Array], ...] = ()


def measure(witness: Witness, tensors: Mapping[str, Any], naming: Signature | None, seed: int = 0) -> Noise:
    """Run the reference in its variants.

    Args:
        witness: the reference.
        tensors: one case's inputs.
        naming: the signature whose output names are used.
        seed: of the random roundings.
    """
    if isinstance(witness, ModuleWitness):
        with contextlib.suppress(*MODEL_ERRORS):
            truths = witness.run(tensors, naming, Float64())
            samples = [witness.run(tensors, naming, Jitter(seed + number)) for number in range(SAMPLES)]
            return Noise("float64", truths, tuple(samples))
    rng = np.random.default_rng([seed, 1])
    moved = [{name: move(as_numpy(value), rng) for name, value in tensors.items()} for _ in range(SAMPLES)]
    with contextlib.suppress(*MODEL_ERRORS):
        samples = [witness.run(inputs, naming) for inputs in moved]
        versions = witness.moved(seed) if isinstance(witness, RuntimeWitness) else []
        return Noise("perturbed inputs", {}, (*samples, *(version.run(tensors, naming) for version in versions)))
    return Noise("perturbed inputs")


def move(values: Array, rng: np.random.Generator) -> Array:
    """Floats moved by one ulp up, down or not at all; zeros stay."""
    dtype = dtype_of(values.dtype)
    if not dtype.is_floating:
        return values
    if values.size > BLOCK:
        flat, moved = values.reshape(-1), np.empty(values.size, values.dtype)
        for start in range(0, values.size, BLOCK):  # float64 of a large weight would be a multiple of the model
            moved[start : start + BLOCK] = move(flat[start : start + BLOCK], rng)
        return moved.reshape(values.shape)
    wide = values.astype(np.float64)
    steps = rng.integers(-1, 2, values.shape) * (wide != 0)
    with np.errstate(invalid="ignore"):
        shifted = wide + steps * ulp_of(np.where(np.isfinite(wide), np.abs(wide), 0), dtype.name)
    rounded: Array = shifted.astype(values.dtype)
    return rounded


def allowances_of(noise: Noise, reference: Mapping[str, Array]) -> tuple[dict[str, Allowance], dict[str, Array]]:
    """What each float output may be off by, and the values to measure from.

    Args:
        noise: the runs.
        reference: the reference's own outputs.

    Returns:
        Allowances by output name, and truths for the outputs where float64 is one.
    """
    allowances, truths = {}, {}
    for name, own in reference.items():
        if dtype_of(own.dtype).kind not in ("float", "complex"):
            continue
        samples = [sample[name] for sample in noise.samples if sample.get(name, np.empty(0)).shape == own.shape]
        truth = noise.truths.get(name)
        if truth is not None and not _diverged(own, truth, samples):
            truths[name] = truth
        allowances[name] = _allowance(own, truths.get(name), samples)
    return allowances, truths


def wavering(noise: Noise, name: str, reference: Array, candidate: Array) -> bool:
    """True where an integer or bool output differs only in elements that the reference's own noise changes likewise."""
    if reference.dtype != candidate.dtype or reference.shape != candidate.shape:
        return False
    runs = [run[name] for run in (noise.truths, *noise.samples) if run.get(name, np.empty(0)).shape == reference.shape]
    explained = np.logical_or.reduce([reference == candidate, *(run == candidate for run in runs)])
    return bool(np.all(explained))


def _diverged(own: Array, truth: Array, samples: list[Array]) -> bool:
    """True where float64 took another path (another shape, other masks, ``finfo`` of the dtype) and is no witness."""
    if truth.shape != own.shape or not np.array_equal(np.isfinite(truth), np.isfinite(own)):
        return True
    expected = max([_distance(sample, own)[0] for sample in samples], default=0.0)
    floor = FLOOR_ULP * _unit(own)
    return _distance(own, truth)[0] > DIVERGED * max(expected, floor)


def _allowance(own: Array, truth: Array | None, samples: list[Array]) -> Allowance:
    center = own if truth is None else truth
    runs = samples if truth is None else [own, *samples]
    distances = [_distance(run, center) for run in runs]
    floor = (PERTURBED_FLOOR_ULP if truth is None else FLOOR_ULP) * _unit(own)
    largest = max([distance for distance, _ in distances], default=0.0)
    rms = max([distance for _, distance in distances], default=0.0)
    factor = 1 + SMALL / max(own.size * len(runs), 1)
    note = _note("perturbation" if truth is None else "float64", largest, floor, factor, scale_of(own))
    return Allowance(
        factor * FACTOR * max(largest, floor),
        rms=factor * RMS_FACTOR * max(rms, RMS_FLOOR * floor),
        rule="noise",
        note=note,
    )


def _note(source: str, noise: float, floor: float, factor: float, scale: float) -> str:
    note = f"{source}: noise {noise:.3g}, floor {floor:.3g}, {FACTOR * factor:.3g} x allowed"
    if noise > ILL_CONDITIONED * scale:
        note += f"; ill-conditioned: rounding alone moves this output by {noise / (scale or 1.0):.1g} of its scale"
    return note


def _unit(own: Array) -> float:
    """One ulp of the output's scale."""
    return float(ulp_of(np.asarray(scale_of(own)), dtype_of(own.dtype).name))


def _distance(run: Array, center: Array) -> tuple[float, float]:
    """Maximum and root mean square of the difference over the elements that are finite in both."""
    wide = np.complex128 if np.iscomplexobj(run) or np.iscomplexobj(center) else np.float64
    run, center = run.astype(wide), center.astype(wide)
    finite = np.isfinite(run) & np.isfinite(center)
    if not finite.any():
        return 0.0, 0.0
    with np.errstate(over="ignore"):
        difference = np.abs(run[finite] - center[finite])
    largest = float(difference.max())
    unit = largest or 1.0
    return largest, unit * math.sqrt(float(np.mean(np.square(difference / unit))))

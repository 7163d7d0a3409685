"""How many planted faults ``interop.check`` finds, how exactly it locates them, and whether it ever fails a right export.

Every model of ``models/`` is exported to ONNX; the faults of ``benchmarks/faults.py`` are planted into the file one at a
time, seeded. A fault is visible where its effect on some output, on some inputs of the suites, is more than 20 times the
float noise of the model there, or is none of size (a dtype, a shape, a NaN, an exception). The others are counted apart;
a float64 run of the faulty file, which has no noise of its own, confirms the ones that the check passes.

The right exports, in every format that takes the model, are checked at three shapes with many seeds; none may fail.

    python -m benchmarks.parity [--quick] [--page] [--models NAME ...] [--seed N] [--seeds N]

``--page`` writes the figures and the histograms of right and faulty runs to docs/parity.md.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import json
import multiprocessing
import os
import sys
import tempfile
import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
import onnx.reference
import onnxruntime
import torch
from onnx import TensorProto, numpy_helper

import interop
import models
from benchmarks._histograms import Spread
from benchmarks.faults import FAULTS, VISIBLE
from benchmarks.parity_page import write_page
from exporters import export_model
from interop.errors import InteropError
from interop.parity.cases import Suite, made_cases
from interop.parity.figures import as_numpy, scale_of
from interop.parity.graph import execute, open_graph
from interop.parity.inputs import FULL
from interop.parity.locate import Search, find_difference
from interop.parity.noise import MODEL_ERRORS, measure
from interop.parity.witness import keep_rng, naming_of, witness_of

SLOW = {"Resize", "GRU", "LSTM", "MaxPool"}  # minutes in onnx's evaluator; there the float32 effect stands
QUICK_MODELS = ("mlp", "dict_model", "two_inputs", "conv_transpose_autoencoder")


@dataclass
class Planted:
    model: str
    kind: str
    number: int
    proto: onnx.ModelProto | None
    nodes: set[str]
    seen: bool = False
    found: bool = False
    case: int | None = None
    exact: bool = False
    place: str = ""
    effect: float = 0.0
    wide: float | None = None
    spread: Spread = field(default_factory=Spread)


@dataclass
class Subject:
    """A model, its right export, the inputs, and what float noise does to its outputs there."""

    name: str
    module: object
    proto: onnx.ModelProto
    graph: object
    witness: object
    naming: object
    seed: int
    cases: list = field(default_factory=list)
    outputs: list = field(default_factory=list)
    noise: list = field(default_factory=list)


@dataclass
class RightRuns:
    """How the right exports of one model, or of all, fared.

    Attributes:
        runs: checks by format.
        failed: checks that failed, by format.
        refused: ``model, format: why`` for the exports that a format does not take.
        spread: how far the outputs were from the truth.
    """

    runs: collections.Counter = field(default_factory=collections.Counter)
    failed: collections.Counter = field(default_factory=collections.Counter)
    refused: list = field(default_factory=list)
    spread: Spread = field(default_factory=Spread)

    def add(self, other):
        self.runs.update(other.runs)
        self.failed.update(other.failed)
        self.refused += other.refused
        self.spread.add(other.spread)


def main(argv=None):
    options = parse(argv)
    start = time.monotonic()
    names = options.models or (QUICK_MODELS if options.quick else models.available())
    jobs = [(name, number, options) for number, name in enumerate(names)]
    planted, rights = [], RightRuns()
    for mine, right in run_jobs(jobs, options.workers):
        planted += mine
        rights.add(right)
        say(
            f"{mine[0].model}: {summarize(mine)}, {right.failed.total()} of {right.runs.total()} right runs failed, "
            f"{time.monotonic() - start:.0f} s"
        )
    result = summarize(planted) | {
        "false_alarms": rights.failed.total(),
        "right_runs": rights.runs.total(),
        "seconds": time.monotonic() - start,
    }
    report(planted, result, rights)
    if options.json:
        Path(options.json).write_text(json.dumps(result, indent=1), encoding="utf-8")
    if options.page:
        write_page(planted, result, rights, options.seeds)
    good = rights.failed.total() == 0 and result["detection"] >= 0.99 and result["exact"] >= 0.95
    return 0 if good else 1


def run_jobs(jobs, workers):
    if workers < 2:
        yield from map(measure_model, jobs)
        return
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(workers, context) as pool:
        for future in concurrent.futures.as_completed([pool.submit(measure_model, job) for job in jobs]):
            yield future.result()


def measure_model(job):
    """The faults of one model, and how its right exports fared."""
    name, number, options = job
    torch.set_num_threads(1)  # these models are small, and the workers share the cores
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        subject = prepare(name, Path(folder), options.seed)
        planted = plant_all(subject, number, options)
        judge_all(subject, planted, Path(folder))
        right = right_runs(subject, Path(folder), options.seeds)
    for one in planted:
        one.proto = None
    return planted, right


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="60 faults in four models")
    parser.add_argument("--json", help="write the figures to this file")
    parser.add_argument("--page", action="store_true", help="write docs/parity.md")
    parser.add_argument("--models", nargs="+", choices=models.available(), help="only these")
    parser.add_argument("--seed", type=int, default=0, help="of the faults and inputs")
    parser.add_argument("--seeds", type=int, default=None, help="seeds of the part without faults (20, quick: 1)")
    parser.add_argument("--workers", type=int, default=2, help="processes, each at one model")
    options = parser.parse_args(argv)
    options.seeds = options.seeds if options.seeds is not None else 1 if options.quick else 20
    return options


def say(text):
    print(text, file=sys.stderr, flush=True)


def prepare(name, folder, seed):
    module = models.load(name)
    path = folder / f"{name}.onnx"
    export_model(module, "onnx", path=path, verify=False)
    witness, other = witness_of(module), witness_of(path)
    subject = Subject(name, module, onnx.load(path), open_graph(path), witness, naming_of(witness, other), seed)
    with keep_rng(seed):
        for case in made_cases(module, witness, [other], Suite(FULL), seed):
            try:
                own = witness.run(case.tensors, naming_of(witness, other))
            except MODEL_ERRORS:
                continue
            subject.naming = naming_of(witness, other)
            subject.cases.append(case)
            subject.outputs.append(run_graph(subject.graph, case.tensors))
            subject.noise.append(noise_of(witness, case, subject.naming, own))
    return subject


def noise_of(witness, case, naming, own):
    """The largest distance of a rounding variant from the float64 answer, at least one ulp of the scale."""
    noise = measure(witness, case.tensors, naming)
    found = {}
    for name, values in own.items():
        runs = [values, *(sample[name] for sample in noise.samples)]
        truth = noise.truths.get(name, values)
        floor = np.spacing(np.float32(scale_of(values))) if values.dtype.kind == "f" else 0.0
        fits = [run for run in runs if run.shape == truth.shape]
        found[name] = max([float(floor), *(distance(run, truth) for run in fits)])
    return found


def distance(left, right):
    with np.errstate(all="ignore"):
        apart = np.abs(left.astype(np.float64) - right.astype(np.float64))
    return float(np.max(apart, initial=0.0, where=np.isfinite(apart)))


def run_graph(graph, tensors):
    done = execute(graph, {name: np.ascontiguousarray(as_numpy(tensors[name])) for name in graph.inputs})
    return {name: done.values.get(name) for name in graph.outputs}


def plant_all(subject, number, options):
    wanted = 15 if options.quick else 26
    found, seen = [], set()
    for turn in range(4):
        for position, kind in enumerate(FAULTS):
            if turn and len(found) >= wanted:
                break
            proto = onnx.ModelProto()
            proto.CopyFrom(subject.proto)
            nodes = FAULTS[kind](proto, np.random.default_rng([options.seed, number, position, turn]))
            key = proto.SerializeToString(deterministic=True)
            if nodes and key not in seen:
                seen.add(key)
                found.append(Planted(subject.name, kind, turn, proto, nodes))
    if not options.quick:
        return found
    rng = np.random.default_rng([options.seed, number])
    return [found[index] for index in sorted(rng.permutation(len(found))[:wanted])]


def judge_all(subject, planted, folder):
    """Check every faulty model, on all inputs at once, then look for the place of each fault."""
    loadable = {}
    for number, one in enumerate(planted):
        path = folder / f"{subject.name}_{number}.onnx"
        path.write_bytes(one.proto.SerializeToString())
        try:
            loadable[f"fault {number}"] = interop.load(path)
        except InteropError:
            one.found, one.seen, one.case, one.effect = True, True, 0, np.inf
    names = [case.name for case in subject.cases]
    report = interop.check(
        subject.module,
        interop.load(folder / f"{subject.name}.onnx"),  # first: the inputs are made from its signature
        *loadable.values(),
        names=["right", *loadable],
        families=FULL,
        seed=subject.seed,
        locate=False,
        witnesses=False,
    )
    for result in report.failures:
        if result.candidate == "right":
            say(f"FALSE ALARM {subject.name}: {result.case}: {result.reason}")
            continue
        one = planted[int(result.candidate.split()[1])]
        one.found = True
        if one.case is None and result.case in names:
            one.case = names.index(result.case)
    for result in report.cases:
        if result.candidate != "right":
            planted[int(result.candidate.split()[1])].spread.extend(result.outputs.values())
    for one in planted:
        graph = open_graph(one.proto)
        weigh(subject, one, graph)
        if one.found:
            place(subject, one, graph)


def weigh(subject, one, graph):
    """Is the fault visible? The faulty graph next to the right one, both in ONNX Runtime as written."""
    for case, right, noise in zip(subject.cases, subject.outputs, subject.noise):
        wrong = run_graph(graph, case.tensors)
        one.effect = max([one.effect, *(effect(right[name], wrong[name], noise[name]) for name in right)])
        if one.effect > VISIBLE:
            one.seen = True
            return
    if one.effect > 0 and not one.found:
        one.wide = wide_effect(subject, one)
        one.seen = one.wide > VISIBLE


def effect(right, wrong, noise):
    if wrong is None or right.dtype != wrong.dtype or right.shape != wrong.shape:
        return np.inf
    if right.dtype.kind != "f":
        return 0.0 if np.array_equal(right, wrong) else np.inf
    if not np.array_equal(np.isnan(right), np.isnan(wrong)):
        return np.inf
    return distance(right, wrong) / (noise or 1e-300)


def wide_effect(subject, one):
    """The effect in float64, in onnx's own evaluator, on the example and the first made inputs."""
    if {node.op_type for node in subject.proto.graph.node} & SLOW:
        return one.effect
    pair = [onnx.reference.ReferenceEvaluator(widen(proto)) for proto in (subject.proto, one.proto)]
    largest = 0.0
    for case, noise in list(zip(subject.cases, subject.noise))[:3]:
        feeds = {name: as_numpy(value) for name, value in case.tensors.items()}
        feeds = {
            name: value.astype(np.float64) if value.dtype == np.float32 else value for name, value in feeds.items()
        }
        names = [value.name for value in subject.proto.graph.output]
        try:
            right, wrong = (dict(zip(names, evaluator.run(names, feeds))) for evaluator in pair)
        except (RuntimeError, TypeError, ValueError, NotImplementedError, IndexError):
            return one.effect
        largest = max([largest, *(effect(right[name], wrong[name], noise[name]) for name in names)])
    return largest


def widen(proto):
    """The same model in float64."""
    wide = onnx.ModelProto()
    wide.CopyFrom(proto)
    widen_graph(wide.graph)
    return wide


def widen_graph(graph):
    for tensor in graph.initializer:
        if tensor.data_type == TensorProto.FLOAT:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name))
    for value in [*graph.input, *graph.output, *graph.value_info]:
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = TensorProto.DOUBLE
    for node in graph.node:
        for item in node.attribute:
            if item.name in ("to", "dtype") and item.i == TensorProto.FLOAT:
                item.i = TensorProto.DOUBLE
            if item.HasField("g"):
                widen_graph(item.g)


def place(subject, one, graph):
    case = subject.cases[one.case or 0]
    search = Search(
        subject.module, subject.witness, graph, subject.naming, case.tensors, one.kind, case.name, twin=subject.proto
    )
    with keep_rng(0):
        difference = find_difference(search)
    one.place = "" if difference is None else difference.node
    one.exact = one.place in one.nodes


def right_runs(subject, folder, seeds):
    """The right exports, ONNX optimised and as written, at three shapes, with other values each time."""
    right = RightRuns()
    candidates = dict(right_candidates(subject, folder, right))
    for seed in range(seeds):
        checked = interop.check(
            subject.module, *candidates.values(), names=list(candidates), seed=seed, locate=False, witnesses=False
        )
        for result in checked.cases:
            right.runs[result.candidate] += 1
            right.failed[result.candidate] += not result.passed
            right.spread.extend(result.outputs.values())
        for result in checked.failures:
            say(f"FALSE ALARM {subject.name} seed {seed}: {result.candidate} on {result.case}: {result.reason}")
    return right


def right_candidates(subject, folder, right):
    """Label and runtime of every right export; the formats that do not take the model are noted in ``right``."""
    plain = onnxruntime.SessionOptions()
    plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    plain.log_severity_level = 4
    path = folder / f"{subject.name}.onnx"
    yield "onnx", interop.load(path)
    yield "onnx, not optimised", interop.load(path, session_options=plain)
    for target, suffix in (("tensorflow", ""), ("litert", ".tflite")):
        other = folder / f"{subject.name}_{target}{suffix}"
        try:
            export_model(subject.module, target, path=other, verify=False)
        except InteropError as error:
            right.refused.append(f"{subject.name}, {target}: {str(error).splitlines()[0]}")
        else:
            yield target, interop.load(other)


def summarize(planted):
    seen = [one for one in planted if one.seen]
    found = [one for one in seen if one.found]
    return {
        "planted": len(planted),
        "kinds": len({one.kind for one in planted}),
        "visible": len(seen),
        "found": len(found),
        "exactly_located": sum(one.exact for one in found),
        "invisible_but_found": sum(one.found for one in planted if not one.seen),
        "detection": len(found) / max(len(seen), 1),
        "exact": sum(one.exact for one in found) / max(len(seen), 1),
    }


def report(planted, result, rights):
    rows = collections.defaultdict(list)
    for one in planted:
        rows[one.kind].append(one)
    print(
        f"{'fault':30} {'planted':>8} {'visible':>8} {'found':>6} {'exact node':>11} {'below noise':>12} {'of these found':>15}"
    )
    for kind in FAULTS:
        if kind in rows:
            print_row(kind, rows[kind])
    print_row("all", planted)
    for one in planted:
        if one.seen and not (one.found and one.exact):
            what = "MISSED" if not one.found else f"located at {one.place!r}, planted at {sorted(one.nodes)}"
            print(f"  {one.model} {one.kind} #{one.number}: {what} (effect {one.effect:.3g} x noise)")
    for line in rights.refused:
        print(f"  not exported: {line}")
    for target, runs in rights.runs.items():
        print(f"  right exports, {target}: {rights.failed[target]} of {runs} runs failed")
    print(
        f"found {result['detection']:.2%} of the visible faults, located {result['exact']:.2%} at the exact node; "
        f"{rights.failed.total()} of {rights.runs.total()} runs of right exports failed; {result['seconds']:.0f} s"
    )


def print_row(kind, ones):
    seen, unseen = [one for one in ones if one.seen], [one for one in ones if not one.seen]
    numbers = (len(ones), len(seen), sum(one.found for one in seen), sum(one.exact and one.found for one in seen))
    print(
        f"{kind:30} {numbers[0]:8} {numbers[1]:8} {numbers[2]:6} {numbers[3]:11} {len(unseen):12} {sum(o.found for o in unseen):15}"
    )


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    sys.exit(main())

"""Run the suite: ``python -m tests.node_suite [PATTERN ...] [--to FORMAT] [--live] [--workers N] [--results FILE]``.

Without patterns the whole suite runs, and its failures must be exactly the lines of ``known_failures.txt``, for the format
torch those of ``known_failures_torch.txt``.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import sys
import time
from pathlib import Path

from tests.node_suite.pool import Outcome, run_all

KNOWN = {
    "tensorflow": Path(__file__).with_name("known_failures.txt"),
    "torch": Path(__file__).with_name("known_failures_torch.txt"),
}


def known_failures(target: str = "tensorflow") -> dict[str, str]:
    """Case name -> cause, from the strict file of a format."""
    text = KNOWN[target].read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return dict(line.split(": ", 1) for line in lines)


def main() -> int:
    """Run, print, compare with the strict file."""
    parser = argparse.ArgumentParser(prog="python -m tests.node_suite", description=__doc__)
    parser.add_argument("patterns", nargs="*", help="case names, * allowed: 'node/test_softmax*' or 'softmax'")
    parser.add_argument("--to", choices=sorted(KNOWN), default="tensorflow", help="the format")
    parser.add_argument("--live", action="store_true", help="run the live module, without saving and reloading")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds a case")
    parser.add_argument("--results", type=Path, help="write {case: reason} here, an empty reason where it passed")
    options = parser.parse_args()
    from tests.node_suite.cases import all_cases

    names = [name for name in all_cases() if _wanted(name, options.patterns)]
    start = time.monotonic()
    outcomes = run_all(
        names, target=options.to, saved=not options.live, workers=options.workers, timeout=options.timeout
    )
    if options.results is not None:
        reasons = {outcome.name: outcome.reason for outcome in outcomes}
        options.results.write_text(json.dumps(reasons, indent=1) + "\n", encoding="utf-8")
    failed = {outcome.name: outcome for outcome in outcomes if not outcome.passed}
    for outcome in failed.values():
        print(f"FAIL {outcome.name}: {outcome.reason}")
    print(
        f"{len(outcomes) - len(failed)} passed, {len(failed)} failed of {len(outcomes)} in {time.monotonic() - start:.0f} s"
    )
    return _compare(failed, options.to) if not options.patterns else int(bool(failed))


def _wanted(name: str, patterns: list[str]) -> bool:
    return not patterns or any(fnmatch.fnmatch(name, p if "*" in p else f"*{p}*") for p in patterns)


def _compare(failed: dict[str, Outcome], target: str) -> int:
    known = known_failures(target)
    new = sorted(set(failed) - set(known))
    fixed = sorted(set(known) - set(failed))
    for name in new:
        print(f"not in {KNOWN[target].name}: {name}")
    for name in fixed:
        print(f"passes now, remove its line from {KNOWN[target].name}: {name}")
    return int(bool(new or fixed))


if __name__ == "__main__":
    sys.exit(main())

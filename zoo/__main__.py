"""``python -m zoo``: measure the families, a child process each, and write the page.

python -m zoo [--columns onnx tensorflow bare transformers unpatched] [--families NAME ...] [--workers 2] [--timeout 120]
python -m zoo --page
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from zoo.families import FAMILIES
from zoo.measure import COLUMNS
from zoo.page import write_page

HERE = Path(__file__).parent
RESULTS = HERE / "results.json"
PAGE = HERE.parent / "docs" / "zoo.md"
Results = dict[str, dict[str, dict[str, Any]]]


def main() -> None:
    """Parse the command line, measure, and write results and page after every family."""
    parser = argparse.ArgumentParser(prog="python -m zoo", description=__doc__.splitlines()[0])
    names = [family.name for family in FAMILIES]
    parser.add_argument("--columns", nargs="+", choices=list(COLUMNS), default=list(COLUMNS))
    parser.add_argument("--families", nargs="+", choices=names, default=names)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds a column")
    parser.add_argument("--missing", action="store_true", help="only what has no result yet")
    parser.add_argument("--page", action="store_true", help="only write the page again")
    arguments = parser.parse_args()
    if not arguments.page:
        _measure_all(arguments)
    write_page(read_results(), PAGE)


def read_results() -> Results:
    """``{family: {column: what was found}}`` of all runs so far."""
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def _measure_all(arguments: argparse.Namespace) -> None:
    with ThreadPoolExecutor(arguments.workers) as pool:
        jobs = [
            pool.submit(_measure, name, columns, arguments.timeout) for name, columns in _planned(arguments) if columns
        ]
        for done in as_completed(jobs):
            name, found = done.result()
            results = read_results()
            results.setdefault(name, {}).update(found)
            RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
            verdicts = {column: "ok" if row["parity"] else row["reason"][:150] for column, row in found.items()}
            sys.stdout.write(f"{time.strftime('%H:%M:%S')} {name} {json.dumps(verdicts)}\n")
            sys.stdout.flush()


def _planned(arguments: argparse.Namespace) -> list[tuple[str, list[str]]]:
    """Families and columns; the kinds take turns, so that a run cut short still shows all of them."""
    known = read_results() if arguments.missing else {}
    turns: dict[str, int] = {}
    ranked = []
    for family in FAMILIES:
        if family.name in arguments.families:
            turns[family.kind] = turns.get(family.kind, -1) + 1
            ranked.append((turns[family.kind], family.name))
    return [
        (name, [column for column in arguments.columns if column not in known.get(name, {})])
        for _, name in sorted(ranked, key=lambda row: row[0])
    ]


def _measure(name: str, columns: list[str], timeout: float) -> tuple[str, dict[str, dict[str, Any]]]:
    """Run the family's child for the columns; a column that dies or hangs fails and the next one gets a new child."""
    found: dict[str, dict[str, Any]] = {}
    left = list(columns)
    while left:
        lines, ended = _child(name, left, timeout)
        found |= {line["column"]: _without_names(line) for line in lines if "parity" in line}
        left = [column for column in left if column not in found]
        if left and ended:
            found[left[0]] = {"exported": False, "parity": False, "reason": ended, "seconds": timeout}
            left = left[1:]
    return name, found


def _child(name: str, columns: list[str], timeout: float) -> tuple[list[dict[str, Any]], str]:
    """The child's lines, and how it ended where it did not end well."""
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", "-m", "zoo.measure", name, *columns]
    lines: list[dict[str, Any]] = []
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment, start_new_session=True
    )
    with ThreadPoolExecutor(1) as reader:
        assert process.stdout is not None
        while True:
            line = reader.submit(process.stdout.readline)
            try:
                text = line.result(timeout)
            except TimeoutError:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                return lines, f"no end after {timeout:.0f} s"
            if not text:
                break
            if text.startswith('{"family"'):
                lines.append(json.loads(text))
    code = process.wait()
    return lines, "" if code == 0 else f"the process died ({code})"


def _without_names(line: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in line.items() if key not in ("family", "column")}


if __name__ == "__main__":
    main()

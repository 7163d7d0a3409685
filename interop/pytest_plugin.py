"""A pytest plugin: ``assert_parity`` in tests, one test over several formats, and a folder of reports.

pytest loads this at start, so it imports the standard library and pytest only; the rest comes with the first assertion.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from interop.parity import ParityReport

__all__ = ["AssertParity"]

MARKER = "interop_formats"
FORMAT = "exported_format"
ENDING = ".parity"
"""Before the suffix of what a run writes per assertion, and what the next run in the same folder removes."""

QUICK, FULL = "quick", "full"

_OPTION = "--interop-report"
_INPUTS, _INPUTS_INI = "--interop-inputs", "interop_inputs"
_UNUSABLE = re.compile(r"[^A-Za-z0-9.=-]+")
_LONGEST = 100


class AssertParity:
    """What the fixture ``assert_parity`` gives: ``interop.check`` that raises, and that leaves its report in a folder.

    Args:
        test: the node id of the test.
        folder: where reports go, or None.
        inputs: ``"quick"`` or ``"full"``: the families of inputs that are made where a call gives neither ``inputs`` nor
            ``families``.

    Example:
        >>> def test_export(assert_parity, tmp_path):
        ...     export_model(model, "onnx", path=tmp_path / "m.onnx")
        ...     assert_parity(model, tmp_path / "m.onnx", inputs=(torch.rand(2, 3),))
    """

    def __init__(self, test: str, folder: Path | None, inputs: str = QUICK) -> None:
        self.test = test
        self.folder = folder
        self.inputs = inputs
        self.reports: list[ParityReport] = []

    def __call__(self, reference: Any, *candidates: Any, **options: Any) -> ParityReport:
        """Raise unless every candidate is the same function as the reference.

        Args:
            reference: see ``interop.check``.
            *candidates: likewise.
            **options: likewise.

        Returns:
            The report.

        Raises:
            ParityError: with the report's table as its message. It is an ``AssertionError``.
        """
        __tracebackhide__ = True
        from interop.errors import ParityError
        from interop.parity import check
        from interop.parity.inputs import FULL as EVERY_FAMILY

        if self.inputs == FULL and options.get("inputs") is None:
            options.setdefault("families", EVERY_FAMILY)
        report = check(reference, *candidates, **options)
        self.reports.append(report)
        if self.folder is not None:
            _save(report, self.folder, self.test, len(self.reports))
        if not report.passed:
            raise ParityError(f"not the same function\n{report}", report)
        return report


@pytest.fixture
def assert_parity(request: pytest.FixtureRequest) -> AssertParity:
    """Compare models: ``assert_parity(reference, *candidates, **options)``, with the options of ``interop.check``."""
    return AssertParity(request.node.nodeid, _folder(request.config), _inputs(request.config))


@pytest.fixture
def exported_format(request: pytest.FixtureRequest) -> str:
    """The format that this run of the test is for, out of ``@pytest.mark.interop_formats("onnx", "tensorflow")``."""
    if not hasattr(request, "param"):
        pytest.fail(f'{FORMAT} needs @pytest.mark.{MARKER}("onnx", ...) on the test', pytrace=False)
    return str(request.param)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--interop-report`` and ``--interop-inputs``, and the ini option ``interop_inputs``."""
    group = parser.getgroup("interop", "parity of models")
    group.addoption(
        _OPTION, metavar="DIR", help="write a page for each assert_parity, index.html and junit.xml to this folder"
    )
    how = "made inputs of assert_parity: quick (normal values) or full (every family: ties, zeros, large, ...)"
    group.addoption(_INPUTS, choices=(QUICK, FULL), help=how)
    parser.addini(_INPUTS_INI, how, default=QUICK)


def pytest_configure(config: pytest.Config) -> None:
    """Name the marker, and clear an earlier run's reports away."""
    config.addinivalue_line("markers", f"{MARKER}(*formats): run the test once for each format, in {FORMAT}.")
    _inputs(config)  # a wrong word is told before the tests
    folder = _folder(config)
    if folder is None or _is_worker(config):
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob(f"*{ENDING}.*"):
            old.unlink()
    except OSError as error:
        raise pytest.UsageError(f"{_OPTION} {folder}: reports cannot be written there: {error.strerror}") from error


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a marked test once for each of its formats."""
    marker = metafunc.definition.get_closest_marker(MARKER)
    if marker is None:
        return
    if not marker.args or marker.kwargs or not all(isinstance(name, str) for name in marker.args):
        pytest.fail(f'{MARKER} takes names of formats, as in {MARKER}("onnx", "tensorflow")', pytrace=False)
    if FORMAT not in metafunc.fixturenames:
        where = metafunc.definition.nodeid
        pytest.fail(f"{where} has the marker {MARKER} and does not use the fixture {FORMAT}", pytrace=False)
    metafunc.parametrize(FORMAT, marker.args, indirect=True)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the index over the reports of all tests, those of other processes too."""
    folder = _folder(session.config)
    if folder is not None and not _is_worker(session.config):
        _write_index(folder)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say where the reports are."""
    folder = _folder(config)
    if folder is not None:
        terminalreporter.write_line(f"parity reports: {folder / 'index.html'}")


def _folder(config: pytest.Config) -> Path | None:
    given = config.getoption(_OPTION)
    return Path(config.invocation_params.dir, given) if given else None


def _inputs(config: pytest.Config) -> str:
    """Which inputs are made: the option, else the ini file."""
    found = str(config.getoption(_INPUTS) or config.getini(_INPUTS_INI))
    if found not in (QUICK, FULL):
        raise pytest.UsageError(f"{_INPUTS_INI} is {QUICK} or {FULL}, got {found!r}")
    return found


def _is_worker(config: pytest.Config) -> bool:
    """True inside a process that pytest-xdist started."""
    return hasattr(config, "workerinput")


def _save(report: ParityReport, folder: Path, test: str, number: int) -> None:
    """Write one assertion's JSON and page, with the test's name in both."""
    stem = folder / f"{_file_name(test)}-{number}{ENDING}"
    data = {"test": test, "assertion": number} | json.loads(report.to_json())
    Path(f"{stem}.json").write_text(json.dumps(data, indent=1), encoding="utf-8")
    title = f'<p style="font: 14px system-ui, sans-serif; max-width: 76rem; margin: 1rem auto">{escape(test)}</p>'
    page = re.sub(r"<body[^>]*>", lambda body: body[0] + title, report.to_html(), count=1)
    Path(f"{stem}.html").write_text(page, encoding="utf-8")


def _file_name(test: str) -> str:
    """A short name that is a file's everywhere, and that no other test has."""
    import zlib

    return f"{_UNUSABLE.sub('-', test)[-_LONGEST:].strip('-.')}-{zlib.crc32(test.encode()):08x}"


def _write_index(folder: Path) -> None:
    """``index.html`` and ``junit.xml`` over all that was saved."""
    from interop.parity import ParityReport

    found = []
    for path in sorted(folder.glob(f"*{ENDING}.json")):
        text = path.read_text(encoding="utf-8")
        data = json.loads(text)
        found.append(
            (str(data["test"]), int(data["assertion"]), path.with_suffix(".html").name, ParityReport.from_json(text))
        )
    found.sort(key=lambda entry: entry[:2])
    (folder / "index.html").write_text(_index_page(found), encoding="utf-8")
    (folder / "junit.xml").write_text(_merge_junit(found), encoding="utf-8")


Entry = tuple[str, int, str, "ParityReport"]
_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Parity of {count} assertions</title><style>
:root {{ color-scheme: light dark; }} body {{ font: 14px/1.45 system-ui, sans-serif; max-width: 76rem; margin: 1rem auto; }}
td, th {{ text-align: left; padding: .2rem .6rem; vertical-align: top; overflow-wrap: anywhere; }}
.pass {{ color: #2a8f4f; }} .fail {{ color: #d9453a; font-weight: 600; }}
</style></head><body><h1>{failed} of {count} assertions failed</h1>
<table><tr><th>verdict</th><th>test</th><th>summary</th></tr>
{rows}
</table></body></html>
"""


def _index_page(found: Sequence[Entry]) -> str:
    rows = []
    for test, number, page, report in sorted(found, key=lambda entry: entry[3].passed):
        state, word = ("pass", "pass") if report.passed else ("fail", "FAIL")
        title = escape(test if number == 1 else f"{test} ({number})")
        cells = f'<td class="{state}">{word}</td><td><a href="{escape(page)}">{title}</a></td>'
        rows.append(f"<tr>{cells}<td>{escape(report.summary).replace(chr(10), '<br>')}</td></tr>")
    failed = sum(not report.passed for *_, report in found)
    return _PAGE.format(count=len(found), failed=failed, rows="\n".join(rows))


def _merge_junit(found: Sequence[Entry]) -> str:
    from xml.etree import ElementTree

    root = ElementTree.Element("testsuites")
    for test, number, _, report in found:
        root.append(ElementTree.fromstring(report.to_junit(test if number == 1 else f"{test} ({number})")))
    for count in ("tests", "failures", "errors", "skipped"):
        root.set(count, str(sum(int(suite.get(count, 0)) for suite in root)))
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"

"""The ways to show a report, on reports that were made by hand."""

import json
import math
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest

from interop.errors import ParityError
from interop.parity import CaseResult, ParityReport, compare
from interop.parity.figures import DECADES

NASTY = 'logits|<b>"&\x07é'


def case(candidate, inputs, reference, given, error=""):
    if error:
        return CaseResult(candidate, inputs, False, f"it raised {error}", error=error)
    result = compare({NASTY: reference}, {NASTY: given})
    return CaseResult(candidate, inputs, result.passed, result.reason, result.outputs)


ONE = np.ones((2, 3), np.float32)
GOOD = ParityReport("Net", ("a.onnx",), (case("a.onnx", "normal", ONE, ONE),), versions={"numpy": "2.0"})
BAD = ParityReport(
    "Net",
    ("a.onnx", "b"),
    (
        case("a.onnx", "normal", ONE, ONE),
        case("b", "normal", ONE, ONE * 2),
        case("b", "large", ONE, ONE * np.float32("nan")),
        case("b", "zeros", ONE, ONE, "RuntimeError: 100% <out> of memory"),
    ),
    {"batch=0": "the reference fails: x | y"},
    seed=3,
)
EMPTY = ParityReport("Net", ("a.onnx",), ())
ALL = {"good": GOOD, "bad": BAD, "empty": EMPTY}


def test_report_needs_every_candidate_to_have_run():
    assert GOOD.passed
    assert not BAD.passed and not EMPTY.passed
    assert not ParityReport("Net", ("a.onnx", "b"), GOOD.cases).passed


@pytest.mark.parametrize("report", [BAD, EMPTY], ids=["bad", "empty"])
def test_raise_for_failure_says_why_in_two_lines(report):
    with pytest.raises(ParityError) as caught:
        report.raise_for_failure()
    assert caught.value.report is report
    assert 1 <= len(str(caught.value).splitlines()) <= 2


def test_raise_for_failure_gives_a_passed_report_back():
    assert GOOD.raise_for_failure() is GOOD


def test_outputs_are_the_worst_of_all_cases():
    worst = BAD.outputs[NASTY]
    assert not worst.passed
    assert GOOD.outputs[NASTY].passed


@pytest.mark.parametrize("name", ALL)
def test_json_is_strict_and_round_trips(name):
    text = ALL[name].to_json()
    json.loads(text, parse_constant=lambda constant: pytest.fail(constant))
    again = ParityReport.from_json(text)
    assert again == ALL[name] and again.to_json() == text
    if name == "good":
        assert again.outputs[NASTY].snr_db == math.inf


@pytest.mark.parametrize("name", ALL)
def test_junit_counts_what_it_holds(name):
    report = ALL[name]
    root = ElementTree.fromstring(report.to_junit())
    assert root.tag == "testsuite" and len(root.findall("testcase")) == int(root.get("tests"))
    for kind in ("failure", "error", "skipped"):
        total = root.get({"failure": "failures", "error": "errors"}.get(kind, kind))
        assert len(root.findall(f"testcase/{kind}")) == int(total), kind
    assert report.passed == (root.get("failures") == "0" and root.get("errors") == "0")


def test_junit_says_what_failed():
    root = ElementTree.fromstring(BAD.to_junit("mine"))
    assert root.get("name") == "mine"
    assert root.find("testcase[@name='zeros']/error").get("message") == "it raised RuntimeError: 100% <out> of memory"
    assert "2.0" in root.find("testcase[@name='normal']/failure").text
    assert root.find("testcase[@name='batch=0']/skipped") is not None


def test_github_annotations_stay_on_their_lines():
    lines = BAD.to_github().splitlines()
    assert len(lines) == 3 and all(line.startswith("::error title=parity b::") for line in lines)
    assert "100%25 <out>" in lines[2]
    assert GOOD.to_github().startswith("::notice") and EMPTY.to_github().startswith("::error")


def test_markdown_table_has_equal_rows():
    text = BAD.to_markdown()
    table = [line for line in text.splitlines() if line.startswith("|")]
    widths = {len(re.findall(r"(?<!\\)\|", line)) for line in table}
    assert len(table) == 2 + 4 and len(widths) == 1
    assert "FAILED" in text and "passed" in GOOD.to_markdown() and "<b>" not in text.replace("\\<b\\>", "")
    assert "x \\| y" in text


class Strict(HTMLParser):
    """Every element that is opened is closed, in order, and nothing is fetched."""

    def __init__(self):
        super().__init__()
        self.open, self.seen, self.text = [], [], []

    def handle_starttag(self, tag, attrs):
        assert not {"src", "href"} & {name for name, _ in attrs}
        self.seen.append(tag)
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


@pytest.mark.parametrize("name", ALL)
def test_html_is_well_formed_and_self_contained(name):
    parser = Strict()
    page = ALL[name].to_html()
    parser.feed(page)
    parser.close()
    assert parser.open == []
    assert "script" not in parser.seen and "link" not in parser.seen
    assert "http" not in page and "@import" not in page and "url(" not in page
    text = "".join(parser.text)
    assert ("Not the same function" in text) is not ALL[name].passed
    assert "logits|<b>" in text or name == "empty"


def test_html_draws_a_histogram_of_every_output():
    page = BAD.to_html()
    assert page.count("<svg") == len(BAD.outputs)
    assert f"<title>{DECADES[0]}:" in page


def test_notebook_shows_the_page_without_its_frame():
    fragment = BAD._repr_html_()
    assert "<html" not in fragment and fragment in BAD.to_html()


def test_histogram_counts_each_element_once():
    reference = np.array([1.0, 1, 1, 1, 1, 1], np.float64)
    candidate = reference + np.array([0, 1e-13, 5e-10, 5e-3, 0.5, 70])
    histogram = compare({"y": reference}, {"y": candidate}).outputs["y"].histogram
    assert len(histogram) == len(DECADES) and sum(histogram) == 6
    assert {DECADES[position]: count for position, count in enumerate(histogram) if count} == {
        "equal": 1,
        "1e-12": 1,
        "1e-9": 1,
        "1e-2": 1,
        "1e0": 2,
    }


def test_text_table_is_aligned_and_names_the_reasons():
    lines = str(BAD).splitlines()
    assert lines[1].startswith("---")
    starts = {line.index("float32") for line in lines[2:5]}
    assert len(starts) == 1
    assert sum(line.startswith("FAIL b on") for line in lines) == 3
    assert any(line.startswith("skipped inputs batch=0") for line in lines)

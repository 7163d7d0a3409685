"""Operators on strings."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from tests.exporters.tensorflow._nodes import check_node


def words(*values):
    return np.array(values, object)


def test_string_concat_broadcasts():
    check_node("StringConcat", [words(["a"], ["ä"]), words("x", "y")], [words(["ax", "ay"], ["äx", "äy"])])


TEXTS = ["a b c d", "  a  b ", "", "   ", "a,b", ",a,,b,c,", "ab", " a b", "a b "]


@pytest.mark.parametrize("delimiter", [None, "", " ", ",", "b,"])
@pytest.mark.parametrize("maxsplit", [None, 1, 3])
def test_string_split_follows_python(delimiter, maxsplit):
    parts = [text.split(delimiter or None, -1 if maxsplit is None else maxsplit) for text in TEXTS]
    counts = np.array([len(part) for part in parts], np.int64)
    padded = words(*[part + [""] * (counts.max() - len(part)) for part in parts])
    attributes = {"delimiter": delimiter, "maxsplit": maxsplit}
    attributes = {name: value for name, value in attributes.items() if value is not None}
    check_node(
        "StringSplit", [words(*TEXTS).reshape(3, 3)], [padded.reshape(3, 3, -1), counts.reshape(3, 3)], attributes
    )


def test_regex_matches_the_whole_text():
    expected = np.array([[True, False], [False, True]])
    check_node("RegexFullMatch", [words(["ab12", "ab12x"], ["", "c9"])], [expected], {"pattern": r"[a-c]+\d+"})


@pytest.mark.parametrize(
    ("action", "sensitive", "expected"),
    [
        ("NONE", 1, ["Monday", "STRASSE", "été"]),
        ("NONE", 0, ["STRASSE", "été"]),
        ("LOWER", 0, ["strasse", "été"]),
        ("UPPER", 1, ["MONDAY", "STRASSE", "ÉTÉ"]),
    ],
)
def test_string_normalizer_drops_stop_words(action, sensitive, expected):
    attributes = {"case_change_action": action, "is_case_sensitive": sensitive, "stopwords": ["monday", "Und"]}
    text = words("Monday", "Und", "STRASSE", "été", "monday")
    check_node("StringNormalizer", [text], [words(*expected)], attributes)
    check_node("StringNormalizer", [text[np.newaxis]], [words(expected)], attributes)


def test_string_normalizer_of_nothing_is_one_empty_string():
    check_node("StringNormalizer", [words("a")], [words("")], {"stopwords": ["A"]})


POOL = {"ngram_counts": [0, 3], "ngram_indexes": [3, 0, 1, 2, 4], "pool_int64s": [2, 3, 5, 5, 4, 5, 6]}


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize(("least", "most", "skip"), [(1, 1, 0), (1, 2, 1), (2, 2, 5), (1, 2, 0)])
def test_tf_idf_is_that_of_onnxruntime(mode, least, most, skip):
    attributes = {"mode": mode, "min_gram_length": least, "max_gram_length": most, "max_skip_count": skip, **POOL}
    attributes["weights"] = [0.5, 2.0, 3.0, 4.0, 5.0]
    data = np.array([[2, 3, 5, 4, 5, 6], [5, 5, 4, 4, 5, 2]], np.int64)
    node = helper.make_node("TfIdfVectorizer", ["x"], ["y"], **attributes)
    graph = helper.make_graph(
        [node],
        "n-grams",
        [helper.make_tensor_value_info("x", TensorProto.INT64, ["rows", "columns"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {"x": data})
    check_node("TfIdfVectorizer", [data], [expected], attributes)
    check_node("TfIdfVectorizer", [data[0]], [expected[0]], attributes)


def test_tf_idf_counts_strings():
    attributes = {"mode": "TF", "min_gram_length": 2, "max_gram_length": 2, "max_skip_count": 0}
    attributes |= {"ngram_counts": [0, 0], "ngram_indexes": [0, 1], "pool_strings": ["a", "b", "b", "a"]}
    check_node("TfIdfVectorizer", [words("a", "b", "a", "b")], [np.float32([2, 1])], attributes)

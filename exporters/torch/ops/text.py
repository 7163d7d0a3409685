"""Operators on strings, which are host arrays, and counts of n-grams."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import torch

from exporters.torch._table import lower
from exporters.torch._values import tensor_to_array


def _each(function, array, dtype=object):
    found = np.empty(array.shape, dtype)
    found.flat[:] = [function(str(item)) for item in array.flat]
    return found


@lower("StringConcat")
def string_concat(X, Y):
    one, other = np.broadcast_arrays(X, Y)
    found = np.empty(one.shape, object)
    found.flat[:] = [str(a) + str(b) for a, b in zip(one.flat, other.flat)]
    return found


@lower("StringSplit")
def string_split(X, *, delimiter=None, maxsplit=None):
    most = -1 if maxsplit is None else maxsplit
    parts = [str(item).split(delimiter or None, most) for item in X.flat]
    width = max((len(part) for part in parts), default=0)
    table = np.empty([len(parts), width], object)
    for row, part in zip(table, parts):
        row[:] = [*part, *[""] * (width - len(part))]
    counts = np.array([len(part) for part in parts], np.int64)
    return table.reshape(*X.shape, width), torch.from_numpy(counts.reshape(X.shape))


@lower("RegexFullMatch")
def regex_full_match(X, *, pattern=""):
    expression = re.compile(pattern)
    return torch.from_numpy(_each(lambda text: expression.fullmatch(text) is not None, X, bool))


_CASES: dict[str, Callable[[str], str]] = {"NONE": str, "LOWER": str.lower, "UPPER": str.upper}


@lower("StringNormalizer")
def string_normalizer(X, *, case_change_action="NONE", is_case_sensitive=0, locale="en_US", stopwords=None):
    fold = str if is_case_sensitive else str.lower
    stopped = {fold(word) for word in stopwords or ()}
    change = _CASES[case_change_action]
    words = [change(str(word)) for word in X.reshape(-1) if fold(str(word)) not in stopped]
    found = np.array(words or [""], object)  # nothing left is one empty string
    return found if X.ndim == 1 else found[None]


@lower("TfIdfVectorizer")
def tf_idf_vectorizer(
    X,
    *,
    max_gram_length,
    max_skip_count,
    min_gram_length,
    mode,
    ngram_counts,
    ngram_indexes,
    pool_int64s=None,
    pool_strings=None,
    weights=None,
):
    rows = tensor_to_array(X) if isinstance(X, torch.Tensor) else X
    pool = {}
    for gram, place in _grams(pool_int64s or pool_strings, ngram_counts, ngram_indexes):
        if min_gram_length <= len(gram) <= max_gram_length:
            pool[gram] = place
    size = max(ngram_indexes) + 1
    table = np.zeros([len(rows) if rows.ndim == 2 else 1, size], np.float32)
    for row, counts in zip(rows if rows.ndim == 2 else rows[None], table):
        _count(row.tolist(), pool, counts, max_skip_count)
    if mode == "IDF":
        table = (table > 0).astype(np.float32)
    if mode != "TF" and weights is not None:
        ordered = np.zeros(size, np.float32)
        ordered[list(ngram_indexes)] = weights
        table = table * ordered
    return torch.from_numpy(table if rows.ndim == 2 else table[0])


def _grams(pool, starts, places):
    """Each n-gram and where its count goes."""
    first = 0
    for i, start in enumerate(starts):
        end = starts[i + 1] if i + 1 < len(starts) else len(pool)
        for at in range(start, end, i + 1):
            yield tuple(pool[at : at + i + 1]), places[first]
            first += 1


def _count(words, pool, counts, most):
    """Add up the n-grams of one row with every skip; a single word is counted once."""
    for length in {len(gram) for gram in pool}:
        for step in range(1, 2 if length == 1 else most + 2):
            for start in range(len(words) - (length - 1) * step):
                place = pool.get(tuple(words[start : start + (length - 1) * step + 1 : step]))
                if place is not None:
                    counts[place] += 1

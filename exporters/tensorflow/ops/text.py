"""Operators on strings, and counts of n-grams."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from exporters.tensorflow._movement import dims_tensor
from exporters.tensorflow._table import lower, lower_all
from exporters.tensorflow._tensors import RefusedError, rank_of, shape_of

lower_all({"StringConcat": tf.add})


@lower("StringSplit")
def string_split(X, *, delimiter=None, maxsplit=None):
    words = tf.reshape(X, [-1])
    if maxsplit is None:
        parts = tf.strings.split(words, sep=delimiter or None)
    elif delimiter:
        parts = tf.strings.split(words, sep=delimiter, maxsplit=maxsplit)
    else:
        # After the last space TensorFlow counts an empty word once maxsplit is reached.
        parts = tf.strings.split(tf.strings.regex_replace(words, r"^\s+", ""), maxsplit=maxsplit)
        parts = tf.ragged.boolean_mask(parts, tf.not_equal(parts, ""))
    dims, padded = shape_of(X), parts.to_tensor("")
    counts = tf.reshape(parts.row_lengths(), dims_tensor(dims))
    return tf.reshape(padded, dims_tensor([*dims, tf.shape(padded, out_type=tf.int64)[1]])), counts


@lower("RegexFullMatch")
def regex_full_match(X, *, pattern=""):
    return tf.strings.regex_full_match(X, pattern)


_CASES = {
    "NONE": lambda text: text,
    "LOWER": lambda text: tf.strings.lower(text, encoding="utf-8"),
    "UPPER": lambda text: tf.strings.upper(text, encoding="utf-8"),
}


@lower("StringNormalizer")
def string_normalizer(X, *, case_change_action="NONE", is_case_sensitive=0, locale="en_US", stopwords=None):
    if locale[:2] in ("tr", "az", "lt"):
        raise RefusedError(f"TensorFlow changes case by the rules of all languages, not by those of {locale}")
    words = X if rank_of(X) == 1 else X[0]
    if stopwords:
        words = tf.boolean_mask(words, tf.logical_not(_is_stopword(words, stopwords, is_case_sensitive)))
    words = _CASES[case_change_action](words)
    # Nothing left is one empty string.
    words = tf.pad(words, [[0, tf.cast(tf.equal(tf.size(words), 0), tf.int32)]])
    return words if rank_of(X) == 1 else words[tf.newaxis]


def _is_stopword(words, stopwords, is_case_sensitive):
    """A mask of the words that are stop words."""
    fold = _CASES["NONE" if is_case_sensitive else "LOWER"]
    return tf.reduce_any(tf.equal(fold(words)[:, tf.newaxis], fold(tf.constant(stopwords))), axis=1)


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
    rows = X if rank_of(X) == 2 else tf.reshape(X, [1, -1])
    rows = rows if rows.dtype == tf.string else tf.cast(rows, tf.int64)
    size = max(ngram_indexes) + 1
    totals = tf.zeros([size, tf.shape(rows)[0]], tf.float32)
    for grams, places in _pools(pool_int64s or pool_strings, ngram_counts, ngram_indexes):
        length = grams.shape[1]
        if min_gram_length <= length <= max_gram_length and len(grams):
            # A single word is counted once: a skip between words makes no difference to it.
            for step in range(1, 2 if length == 1 else max_skip_count + 2):
                found = _count(rows, grams, step)
                totals = tf.tensor_scatter_nd_add(totals, places[:, np.newaxis], tf.transpose(found))
    result = tf.transpose(totals)
    if mode == "IDF":
        result = tf.cast(result > 0, tf.float32)
    if mode != "TF" and weights is not None:
        result *= _weights_of_places(weights, ngram_indexes, size)
    return result if rank_of(X) == 2 else result[0]


def _pools(pool, starts, places):
    """The n-grams of each length, shape [number, length], and where their counts go."""
    first = 0
    for i, start in enumerate(starts):
        end = starts[i + 1] if i + 1 < len(starts) else len(pool)
        grams = np.array(pool[start:end]).reshape(-1, i + 1)
        yield grams, np.array(places[first : first + len(grams)], np.int64)
        first += len(grams)


def _count(rows, grams, step):
    """How often each row has each n-gram with ``step`` from word to word, shape [rows, n-grams]."""
    length = grams.shape[1]
    starts = tf.maximum(tf.shape(rows)[1] - (length - 1) * step, 0)
    hits = tf.ones([1, 1, 1], tf.bool)
    for i in range(length):
        words = rows[:, i * step : i * step + starts]
        hits &= tf.equal(words[:, :, tf.newaxis], tf.constant(grams[:, i]))
    return tf.reduce_sum(tf.cast(hits, tf.float32), axis=1)


def _weights_of_places(weights, places, size):
    """The weights, which are in the order of the pool, in the order of the output."""
    ordered = np.zeros(size, np.float32)
    ordered[places] = weights
    return tf.constant(ordered)

"""Containers of arguments and results as data: objects with fixed attributes, classes, and lengths that follow a tensor."""

from __future__ import annotations

import collections
import json

import numpy as np
import pytest

from interop.errors import InputError
from interop.runtimes._rebuild import rebuild
from interop.structure import Constant, Leaf, Node, fill, pick, structure_from_json, structure_to_json

LAYER = Node(
    "object",
    (Leaf("k"), Constant(True), Node("length", (), ("keys",)), Node("class", (), (), "collections:OrderedDict")),
    ("keys", "ready", "count", "kind"),
    "nowhere:Layer",
)
KEYS = np.zeros((2, 1, 5, 3), np.float32)


class Layer:
    def __init__(self, keys, ready=True, count=5):
        self.keys, self.ready, self.count, self.kind = keys, ready, count, collections.OrderedDict


def test_an_object_gives_its_tensor_and_what_was_fixed_is_compared():
    found = pick(LAYER, Layer(KEYS))
    assert set(found) == {"k"} and found["k"] is KEYS
    with pytest.raises(InputError, match=r"\['ready'\] is False; the model was exported with True"):
        pick(LAYER, Layer(KEYS, ready=False))


def test_a_length_has_to_be_that_of_its_tensor_and_is_made_from_it():
    with pytest.raises(InputError, match=r"\['count'\] is 9, and keys hold 5 tokens"):
        pick(LAYER, Layer(KEYS, count=9))
    made = fill(LAYER, {"k": KEYS[:, :, :2]})
    assert made["count"] == 2 and made["ready"] is True


def test_a_dict_in_the_place_of_an_object_may_leave_out_what_is_fixed():
    assert pick(LAYER, {"keys": KEYS})["k"] is KEYS
    assert pick(LAYER, fill(LAYER, {"k": KEYS}))["k"] is KEYS
    with pytest.raises(InputError, match="must have the keys"):
        pick(LAYER, {"ready": True})
    with pytest.raises(InputError, match="must have the keys"):
        pick(LAYER, {"keys": KEYS, "more": 1})
    fixed = Node("dict", (Leaf("k"), Constant(True)), ("keys", "flag"))  # a call's keywords are no object
    with pytest.raises(InputError, match="must have the keys"):
        pick(fixed, {"keys": KEYS})


@pytest.mark.parametrize(
    ("kind", "empty", "full"), [("list", [], [KEYS]), ("tuple", (), (KEYS,)), ("dict", {}, {"a": KEYS})]
)
def test_an_empty_container_takes_nothing_else(kind, empty, full):
    assert pick(Node(kind, ()), empty) == {}
    with pytest.raises(InputError, match="must be empty"):
        pick(Node(kind, ()), full)


def test_everything_survives_json():
    assert structure_from_json(json.loads(json.dumps(structure_to_json(LAYER)))) == LAYER


def test_a_class_out_of_a_file_counts_only_where_it_is_part_of_a_cache():
    assert rebuild(Node("class", (), (), "collections:OrderedDict"), []) is None
    assert rebuild(Node("class", (), (), "subprocess:Popen"), []) is None
    assert rebuild(Node("object", (Leaf("a"),), ("args",), "subprocess:Popen"), ["ls"]) == {"args": "ls"}
    caches = pytest.importorskip("transformers.cache_utils", reason="transformers is not installed")
    assert rebuild(Node("class", (), (), "transformers.cache_utils:DynamicLayer"), []) is caches.DynamicLayer
    made = rebuild(Node("object", (), ("keys", "values"), "transformers.cache_utils:DynamicLayer"), [KEYS, KEYS])
    assert type(made) is caches.DynamicLayer and made.keys is KEYS and made.dtype == np.float32

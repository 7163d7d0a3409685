"""The user's own line in a stack trace."""

from __future__ import annotations

import pytest

import exporters
from exporters._provenance import user_frame, user_place

USER = 'File "/home/me/net.py", line 8, in forward'
TORCH = 'File "/env/lib/python3.11/site-packages/torch/nn/modules/module.py", line 1778, in _call_impl'
TORCHVISION = 'File "/env/lib/python3.11/site-packages/torchvision/models/resnet.py", line 92, in forward'
MODEL = 'File "/env/lib/python3.11/site-packages/transformers/models/t5/modeling_t5.py", line 306, in forward'
PATCH = 'File "/env/lib/python3.11/site-packages/transformers/exporters/exporter_dynamo.py", line 262, in patch'
OURS = f'File "{exporters.__file__}", line 3, in call'
PYTHON = 'File "/usr/lib/python3.11/contextlib.py", line 81, in inner'
GENERATED = 'File "<eval_with_key>.12", line 4, in forward'
WINDOWS = 'File "C:\\env\\Lib\\site-packages\\torch\\_ops.py", line 3, in call'


@pytest.mark.parametrize(
    ("frames", "found"),
    [
        ([USER, TORCH], "net.py:8"),
        ([TORCH, USER, TORCHVISION, PYTHON, TORCH], "net.py:8"),
        ([TORCH, TORCHVISION, PYTHON, TORCH, GENERATED], "resnet.py:92"),
        ([TORCH, MODEL, PATCH, TORCH], "modeling_t5.py:306"),
        ([TORCH, MODEL, OURS, TORCH], "modeling_t5.py:306"),
        ([TORCH, PYTHON], "contextlib.py:81"),
        ([USER, WINDOWS], "net.py:8"),
        ([GENERATED], ""),
        ([], ""),
    ],
)
def test_innermost_frame_that_is_the_users_own(frames, found):
    assert user_frame("\n".join(frames)) == found


def test_place_keeps_the_whole_path():
    assert user_place([("/home/me/net.py", 8), ("/x/site-packages/torch/_ops.py", 1)]) == ("/home/me/net.py", 8)
    assert user_place([]) is None

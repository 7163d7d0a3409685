"""Where a node comes from, read off the stack trace that torch.onnx leaves on it."""

from __future__ import annotations

import re
from pathlib import PurePath

__all__ = ["user_frame"]

_FRAME = re.compile(r'File "(?P<file>[^"<]+)", line (?P<line>\d+)')  # not "<eval_with_key>", code that torch made
_LIBRARY = re.compile(r"[/\\](site-packages|dist-packages)[/\\](torch|transformers|lightning)[/\\]")


def user_frame(trace: str) -> str:
    """The innermost frame of a stack trace that is not a library's, as ``file.py:line``.

    Args:
        trace: a formatted Python stack trace, outermost frame first.

    Returns:
        The file's name without its folder, and the line; the innermost frame of all where only libraries are in it; an
        empty string where there is no frame.

    Example:
        >>> user_frame('File "/home/me/net.py", line 8, in forward')
        'net.py:8'
    """
    frames = [(match["file"], match["line"]) for match in _FRAME.finditer(trace)]
    own = [frame for frame in frames if not _LIBRARY.search(frame[0])]
    if not frames:
        return ""
    file, line = (own or frames)[-1]
    return f"{PurePath(file).name}:{line}"

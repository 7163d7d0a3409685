"""Where something comes from in the user's own code, read off a stack trace."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path, PurePath

__all__ = ["user_frame", "user_place"]

_HERE = str(Path(__file__).parent)
_FRAME = re.compile(r'File "(?P<file>[^"<]+)", line (?P<line>\d+)')  # not "<eval_with_key>", code that torch made
_TORCH = re.compile(r"[/\\](site|dist)-packages[/\\](torch|transformers[/\\]exporters)[/\\]")
_PACKAGE = re.compile(r"[/\\](site|dist)-packages[/\\]")
_LIBRARY = re.compile(r"[/\\]((site|dist)-packages|python3\.\d+)[/\\]")


def user_frame(trace: str) -> str:
    """The innermost frame of a stack trace that is the user's own, as ``file.py:line``.

    Args:
        trace: a formatted Python stack trace, outermost frame first.

    Returns:
        The file's name without its folder, and the line; an empty string where there is no frame. See ``user_place``.

    Example:
        >>> user_frame('File "/home/me/net.py", line 8, in forward')
        'net.py:8'
    """
    place = user_place([(match["file"], int(match["line"])) for match in _FRAME.finditer(trace)])
    return f"{PurePath(place[0]).name}:{place[1]}" if place else ""


def user_place(frames: Sequence[tuple[str, int]]) -> tuple[str, int] | None:
    """The innermost of ``(file, line)`` frames, given outermost first, that is the user's own.

    Where only libraries are in them it is the innermost outside torch and Python itself (Transformers without what it puts in
    the place of its own code for an export, torchvision), then the innermost of all.
    """
    frames = [
        frame for frame in frames if not frame[0].startswith(_HERE)
    ] or frames  # what we put around torch's functions
    own = [frame for frame in frames if not _LIBRARY.search(frame[0])]
    others = [frame for frame in frames if _PACKAGE.search(frame[0]) and not _TORCH.search(frame[0])]
    found = own or others or frames
    return found[-1] if found else None

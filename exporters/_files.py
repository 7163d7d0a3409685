"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from exporters.errors import WriteError

__all__ = ["publish", "staging_folder"]

_RENAME_EXCHANGE = 2
_AT_FDCWD = -100


@contextlib.contextmanager
def staging_folder(target: Path) -> Iterator[Path]:
    """A private folder beside the target, on the same file system; it is gone afterwards, whatever happens.

    Args:
        target: the path that will be published; its folder is made if it is missing.

    Raises:
        WriteError: the folder cannot be made or written.
    """
    parent = target.parent
    try:
        parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".partial", dir=parent))
    except OSError as error:
        raise WriteError(
            f"cannot write to {parent}: {error.strerror or error}; choose a folder that you may write"
        ) from error
    try:
        yield folder
    except OSError as error:
        if isinstance(error, WriteError) or error.errno not in _WRITE_ERRNOS:
            raise
        raise WriteError(
            f"cannot write {target}: {error.strerror or error}; what stood there before is untouched"
        ) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


_WRITE_ERRNOS = {
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.EFBIG,
    errno.EIO,
    errno.ENOTDIR,
}


def publish(staged: Path, target: Path) -> None:
    """Move a finished file or folder into its place in one step, over whatever stands there.

    Everything is on the disk before the move, so that a kill or a power cut leaves the old or the new, never a half.

    Args:
        staged: the finished file or folder, inside the target's ``staging_folder``.
        target: where it goes.

    Raises:
        WriteError: the target cannot be replaced.
    """
    try:
        _sync_tree(staged)
        if target.is_dir() and not target.is_symlink():
            _replace_folder(staged, target)
        elif staged.is_dir() and target.exists():
            raise WriteError(
                f"{target} is a file and a folder is to be written there; remove it or choose another path"
            )
        else:
            staged.replace(target)
        _sync(target.parent)
    except OSError as error:
        if isinstance(error, WriteError):
            raise
        raise WriteError(f"cannot write {target}: {error.strerror or error}") from error


def _replace_folder(staged: Path, target: Path) -> None:
    if not staged.is_dir():
        raise WriteError(f"{target} is a folder and a file is to be written there; give a file name inside it")
    if not _is_ours(target):
        raise WriteError(f"{target} is a folder that holds no exported model; it is not replaced. Choose another path")
    if not _exchange(staged, target):
        old = staged.with_name(f"{staged.name}.old")
        target.rename(old)
        staged.rename(target)


def _is_ours(folder: Path) -> bool:
    """An empty folder, or one that looks like a SavedModel or a LibTorch project: nothing else of the user's is ever replaced."""
    names = {entry.name for entry in folder.iterdir()}
    return (
        not names
        or "saved_model.pb" in names
        or {"model.pt2", "tensor_interop.json"} <= names
        or all(name.isdigit() for name in names)
    )


def _exchange(one: Path, other: Path) -> bool:
    """Swap two paths atomically, where the system can (Linux)."""
    if not sys.platform.startswith("linux"):
        return False
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    return bool(rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0)


def _sync_tree(path: Path) -> None:
    for folder, _, files in os.walk(path):
        for name in files:
            _sync(Path(folder) / name)
        _sync(Path(folder))
    if path.is_file():
        _sync(path)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

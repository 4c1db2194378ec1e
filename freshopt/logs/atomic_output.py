"""Atomic files and folders.

Either all of the output appears or none of it: a whole folder, or one file.

Work goes into a hidden sibling of the target, on the same file system, and is put in place by one rename
when all of it is written. Whatever ends the work early (an error, Ctrl-C) removes the sibling and leaves the
target as it was. Whether the target may be written at all is checked on entering, before any work is done.

What cannot be caught (SIGKILL, a power cut) leaves the hidden sibling behind. Whoever works on one holds a
lock on it, which ends with its process; the next run for the same target removes those that nobody holds.

Where the system can exchange two folders in one step (Linux, renameat2), a reader of a folder that is
overwritten sees the old or the new one at every moment; elsewhere there is a moment with neither.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import secrets
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from freshopt.errors import SourceDataError, list_offenders

try:
    import fcntl
except ImportError:  # Windows: nothing is locked, and nothing swept
    fcntl = None  # type: ignore[assignment]

# From Linux' fcntl.h.
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# Errors of a kernel or a file system that cannot exchange.
_CANNOT_EXCHANGE = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)


@contextmanager
def complete_folder(
    path: str | os.PathLike[str],
    overwrite: bool = False,
    *,
    marker: str = "summary.json",
    files: Collection[str],
) -> Iterator[Path]:
    """Yield an empty folder that atomically replaces `path`.

    It takes the place of `path` at the end.

    - `path`: The folder to make, its parents too where they are missing. It may be there and be empty. If it
      holds an earlier result it is replaced as a whole, given `overwrite`.
    - `overwrite`: Whether an earlier result may be replaced.
    - `marker`: The file by which an earlier result is known.
    - `files`: The names of all files that a result may consist of, such as ``rates.csv`` or
      ``rates/part-00000.parquet``. A folder with anything else in it is never replaced.

    Examples
    --------
    >>> import tempfile
    >>> target = Path(tempfile.mkdtemp()) / "plan"
    >>> with complete_folder(target, files=["summary.json"]) as folder:
    ...     _ = (folder / "summary.json").write_text("{}")
    ...     target.exists()
    False
    >>> [entry.name for entry in target.iterdir()]
    ['summary.json']
    """
    target, known = Path(path).resolve(), {marker, *files}
    check = partial(_check_folder, target, overwrite, marker, known)
    # After an exchange this is what was replaced.
    remove = partial(shutil.rmtree, ignore_errors=True)
    with _complete(target, check, make=Path.mkdir, put=_put_folder, remove=remove) as part:
        yield part


@contextmanager
def complete_file(path: str | os.PathLike[str], overwrite: bool = False) -> Iterator[Path]:
    """Yield a file's path that atomically replaces `path`.

    It has the same ending, and takes the place of `path` at the end.

    Examples
    --------
    >>> import tempfile
    >>> target = Path(tempfile.mkdtemp()) / "rates.csv"
    >>> with complete_file(target) as part:
    ...     _ = part.write_text("source,rate")
    ...     target.exists()
    False
    >>> target.read_text()
    'source,rate'
    """
    target = Path(path).resolve()
    check = partial(_check_file, target, overwrite)
    make, remove = partial(Path.touch, exist_ok=False), partial(Path.unlink, missing_ok=True)
    with _complete(target, check, make=make, put=_put_file, remove=remove) as part:
        yield part


@contextmanager
def _complete(
    target: Path,
    check: Callable[[], None],
    *,
    make: Callable[[Path], None],
    put: Callable[[Path, Path], None],
    remove: Callable[[Path], object],
) -> Iterator[Path]:
    """Yield what is made beside the target, then put it there."""
    check()
    made: list[Path] = []
    lock = None
    try:
        with _naming(target):
            _sweep(target)
            # If it cannot be made, that shows now and not after the work.
            part, lock = _begin(target, make, made)
        with _room(target):
            yield part
        check()  # again: it may have been filled meanwhile
        with _naming(target):
            put(part, target)
    finally:
        for each in made:
            remove(each)
        if lock is not None:
            os.close(lock)


def _check_folder(target: Path, overwrite: bool, marker: str, known: Collection[str]) -> None:
    """Raise unless a folder is free, empty, or to be overwritten."""
    _check_place(target)
    if not target.exists():
        return
    if not target.is_dir():
        raise SourceDataError(f"{target} is a file, not a folder. Choose another folder.")
    if any(_same(target, folder) for folder in (Path.cwd(), *Path.cwd().parents)):
        raise SourceDataError(
            f"{target} is the working folder or above it, and cannot be replaced. Name a folder inside it."
        )
    with _naming(target):
        entries = sorted(target.iterdir())
        foreign = list(_foreign(target, known))
    if foreign or (entries and not (target / marker).exists()):
        names = foreign or [entry.name for entry in entries]
        raise SourceDataError(
            f"{target} holds files that are not of an earlier result: {list_offenders(names)}. "
            "They would be lost. Choose an empty or a new folder."
        )
    if entries and not overwrite:
        raise SourceDataError(
            f"{target} already holds a result ({marker}). It would be replaced. "
            "Choose another folder, or overwrite it (--overwrite, overwrite=True)."
        )


def _same(one: Path, other: Path) -> bool:
    """Return whether two paths are one folder, in either case."""
    return str(one).casefold() == str(other).casefold() and one.samefile(other)


def _foreign(folder: Path, known: Collection[str]) -> Iterator[str]:
    """Yield what a folder holds beside the known files.

    No other folder than theirs is opened.
    """
    for entry in sorted(folder.iterdir()):
        inner: set[str] = set()
        if entry.is_dir() and not entry.is_symlink():
            inner = {name.partition("/")[2] for name in known if name.startswith(f"{entry.name}/")}
        if inner:
            yield from (f"{entry.name}/{name}" for name in _foreign(entry, inner))
        elif entry.name not in known or not entry.is_file():
            yield entry.name


def _check_file(target: Path, overwrite: bool) -> None:
    _check_place(target)
    if target.exists() and not target.is_file():
        raise SourceDataError(f"{target} is not a regular file. Choose the path of a file.")
    if target.exists() and not overwrite:
        raise SourceDataError(
            f"{target} already exists. It would be replaced. "
            "Choose another name, or overwrite it (--overwrite, overwrite=True)."
        )


def _check_place(target: Path) -> None:
    """Raise if a target lies below a file."""
    anchor = _anchor(target)
    if not anchor.is_dir():
        raise SourceDataError(f"{anchor} is a file, so {target} cannot be made. Choose another place.")


def _anchor(target: Path) -> Path:
    """Return the nearest parent that exists."""
    return next((parent for parent in target.parents if parent.exists()), target)


def _beside(target: Path) -> Path:
    """Return a free hidden name beside the target, with its ending."""
    return _anchor(target) / f".{secrets.token_hex(4)}.partial.{target.name}"


def _begin(target: Path, make: Callable[[Path], None], made: list[Path]) -> tuple[Path, int | None]:
    """Create and lock a hidden sibling of the target.

    Returns its path and the descriptor that holds the lock. The path is in `made` before there is anything at
    it, so that the caller can remove it whenever an interrupt comes.
    """
    while True:
        part = _beside(target)
        made.append(part)
        try:
            make(part)
        except OSError:  # it is not ours
            made.pop()
            raise
        if fcntl is None:
            return part, None
        try:
            lock = os.open(part, os.O_RDONLY)
        except FileNotFoundError:  # swept before it could be locked
            continue
        if _lock(lock) and part.exists():
            return part, lock
        os.close(lock)


def _sweep(target: Path) -> None:
    """Remove leftovers of killed runs of this target."""
    if fcntl is None:
        return
    name = re.compile(rf"\.[0-9a-f]{{8}}\.partial\.{re.escape(target.name)}")
    for entry in os.listdir(_anchor(target)):
        if not name.fullmatch(entry):
            continue
        part = _anchor(target) / entry
        try:
            lock = os.open(part, os.O_RDONLY | os.O_NOFOLLOW)
        except OSError:  # just now removed, or no business of ours
            continue
        try:
            if _lock(lock, sure=True):
                shutil.rmtree(part, ignore_errors=True) if part.is_dir() else part.unlink(missing_ok=True)
        finally:
            os.close(lock)


def _lock(descriptor: int, *, sure: bool = False) -> bool:
    """Lock a descriptor; False if another process holds it.

    Where a file system knows no locks, nothing is known: it counts as locked by us, unless we must be `sure`.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return not sure
    return True


@contextmanager
def _room(target: Path) -> Iterator[None]:
    """Name the target in an error of a full disk.

    The system then names no file, or the hidden one.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        raise SourceDataError(
            f"{target} cannot be written: {error.strerror or error}. Make room, or choose another place."
        ) from error


@contextmanager
def _naming(target: Path) -> Iterator[None]:
    """Raise an error of the file system in one line, with target."""
    try:
        yield
    except OSError as error:
        raise SourceDataError(
            f"{target} cannot be written: {error.strerror} ({error.filename}). "
            "Choose another place, or mend its permissions."
        ) from error


def _put_file(part: Path, target: Path) -> None:
    """Rename `part` to `target`, in place of an earlier file."""
    if target.exists():
        shutil.copymode(target, part)
    target.parent.mkdir(parents=True, exist_ok=True)
    part.replace(target)


def _put_folder(part: Path, target: Path) -> None:
    """Rename `part` to `target`, and the earlier folder to `part`."""
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        part.rename(target)
        return
    shutil.copymode(target, part)
    if _exchange(part, target):
        return
    aside = _beside(target)
    try:
        target.rename(aside)
        part.rename(target)
    except BaseException:
        if aside.exists():
            aside.rename(target)
        raise
    aside.rename(part)


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two folders atomically; False where the system cannot."""
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):  # another C library, or Windows
        return False
    if renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in _CANNOT_EXCHANGE:
        return False
    raise OSError(code, os.strerror(code), str(other))

"""What Python lacks on Windows and macOS, taken away from one package while all others keep it.

The names are those that typeshed's stubs of `os`, `signal`, `time` and `select` declare for Linux alone
(Python 3.11), but for constants that nobody would miss. A name is hidden from whoever runs in the package, so
that the standard library, which has other code for each system, still works. Windows' rules for files are
kept everywhere: no name has a sign that it reserves, and what is open is neither renamed nor removed.

This module imports nothing of the package. `pretend` must run before it is imported: from a `sitecustomize`.
"""

import builtins
import ctypes
import errno
import importlib
import io
import os
import re
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

MACOS = {
    "os": "copy_file_range eventfd fdatasync getrandom getresgid getresuid getxattr listxattr memfd_create "
    "O_DIRECT O_NOATIME O_PATH O_TMPFILE pidfd_open pipe2 posix_fadvise posix_fallocate removexattr "
    "sched_getaffinity sched_getparam sched_getscheduler sched_setaffinity setresgid setresuid setxattr "
    "splice waitid",
    "signal": "SIGCLD SIGPOLL SIGPWR SIGRTMAX SIGRTMIN pidfd_send_signal sigtimedwait sigwaitinfo",
    "time": "CLOCK_BOOTTIME CLOCK_TAI pthread_getcpuclockid",
    "select": "epoll",
}
WINDOWS = {
    "os": f"{MACOS['os']} chown chroot confstr ctermid environb fchdir fchmod fchown fork forkpty fpathconf "
    "fstatvfs fwalk get_blocking getegid getenvb geteuid getgid getgroups getloadavg getpgid getpgrp "
    "getpriority getsid getuid initgroups killpg lchown lockf login_tty major makedev minor mkfifo mknod "
    "nice O_CLOEXEC O_DIRECTORY O_DSYNC O_NDELAY O_NOCTTY O_NOFOLLOW O_NONBLOCK O_SYNC openpty pathconf "
    "posix_spawn posix_spawnp pread preadv pwrite pwritev readv register_at_fork sched_yield SEEK_DATA "
    "SEEK_HOLE sendfile set_blocking setegid seteuid setgid setgroups setpgid setpgrp setpriority setregid "
    "setreuid setsid setuid spawnlp spawnlpe spawnvp spawnvpe statvfs sync sysconf sysconf_names tcgetpgrp "
    "tcsetpgrp ttyname uname wait wait3 wait4 WCOREDUMP WEXITSTATUS WIFEXITED WIFSIGNALED WIFSTOPPED WNOHANG "
    "writev WSTOPSIG WTERMSIG WUNTRACED",
    "signal": f"{MACOS['signal']} SIGALRM SIGBUS SIGCHLD SIGCONT SIGHUP SIGIO SIGKILL SIGPIPE SIGPROF "
    "SIGQUIT SIGSTOP SIGSYS SIGTRAP SIGTSTP SIGTTIN SIGTTOU SIGURG SIGUSR1 SIGUSR2 SIGVTALRM SIGWINCH "
    "SIGXCPU SIGXFSZ alarm getitimer pause pthread_kill pthread_sigmask setitimer siginterrupt "
    "sigpending sigwait",
    "time": f"{MACOS['time']} CLOCK_MONOTONIC CLOCK_PROCESS_CPUTIME_ID CLOCK_REALTIME clock_getres "
    "clock_gettime clock_settime tzset",
    "select": "epoll poll",
}
MISSING: dict[str, dict[str, str]] = {"darwin": MACOS, "win32": WINDOWS}
WITHOUT = {
    "darwin": set[str](),
    "win32": {"fcntl", "grp", "posix", "pty", "pwd", "resource", "termios", "tty"},
}
# What a module is there in place of what it is here.
OTHERWISE: dict[str, dict[str, dict[str, object]]] = {
    "darwin": {"sys": {"platform": "darwin"}},
    "win32": {"sys": {"platform": "win32"}, "os": {"name": "nt", "sep": "\\", "linesep": "\r\n"}},
}
RESERVED = re.compile(r'[<>:"|?*\x00-\x1f]|[. ]$|^(con|prn|aux|nul|com\d|lpt\d)(\.|$)', re.IGNORECASE)


def pretend(system: str, package: str = "freshopt") -> None:
    """Take away from a package what Python does not have on a system, "darwin" or "win32"."""

    def inside() -> bool:
        name: str = sys._getframe(2).f_globals.get("__name__", "")
        return name == package or name.startswith(f"{package}.")

    missing, otherwise = MISSING[system], OTHERWISE[system]
    for module in sorted(missing.keys() | otherwise.keys()):
        names = set(missing.get(module, "").split())
        _hide(importlib.import_module(module), names, otherwise.get(module, {}), inside)
    _refuse_imports(WITHOUT[system], package)
    _refuse_folders(("/proc", "/sys", "/dev"))
    _keep_to_one_c_library(system)
    warnings.filterwarnings("error", category=EncodingWarning, module=rf"{package}(\.|$)")
    if system == "win32":
        sys.addaudithook(_keep_rules_of_files)


def _hide(module: ModuleType, names: set[str], values: dict[str, object], inside: Callable[[], bool]) -> None:
    kind = type(module)

    class Hiding(kind):  # type: ignore[misc,valid-type]
        def __getattribute__(self, name: str) -> Any:  # noqa: ANN401 - any attribute
            if (name in names or name in values) and inside():
                if name in names:
                    raise AttributeError(
                        f"module {module.__name__!r} has no attribute {name!r} on this system"
                    )
                return values[name]
            return super().__getattribute__(name)

    module.__class__ = Hiding


def _refuse_imports(modules: set[str], package: str) -> None:
    whole = builtins.__import__

    def import_(name: str, globals: Any = None, *rest: Any, **more: Any) -> Any:  # noqa: ANN401
        if name in modules and (globals or {}).get("__name__", "").partition(".")[0] == package:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return whole(name, globals, *rest, **more)

    builtins.__import__ = import_


def _refuse_folders(folders: tuple[str, ...]) -> None:
    whole = io.open

    def open_(file: Any, *rest: Any, **more: Any) -> Any:  # noqa: ANN401
        if isinstance(file, str | os.PathLike) and str(file).startswith(folders):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(file))
        return whole(file, *rest, **more)

    io.open = builtins.open = open_


def _keep_to_one_c_library(system: str) -> None:
    """Windows has no library of the process itself; that of macOS has no renameat2."""

    class Library(ctypes.CDLL):
        def __init__(self, name: str | None, *rest: Any, **more: Any) -> None:  # noqa: ANN401
            if name is None and system == "win32":
                raise TypeError("bad argument type for built-in operation")
            super().__init__(name, *rest, **more)

        def __getattr__(self, name: str) -> Any:  # noqa: ANN401
            if name == "renameat2":
                raise AttributeError(name)
            return super().__getattr__(name)

    ctypes.CDLL = Library  # type: ignore[misc]


def _keep_rules_of_files(event: str, arguments: tuple[Any, ...]) -> None:
    if event in ("os.rename", "os.remove", "os.rmdir"):
        for path in arguments[: 2 if event == "os.rename" else 1]:
            if isinstance(path, str | os.PathLike):
                _require_closed(os.path.abspath(path))
    made = event in ("os.mkdir", "os.rename") or (event == "open" and re.search("[wxa+]", arguments[1] or ""))
    path = arguments[1 if event == "os.rename" else 0] if made else None
    if isinstance(path, str | os.PathLike) and RESERVED.search(Path(path).name):
        raise OSError(errno.EINVAL, "The filename, directory name, or volume label syntax is incorrect", path)


def _require_closed(path: str) -> None:
    for entry in os.listdir("/proc/self/fd"):
        try:
            held = os.readlink(f"/proc/self/fd/{entry}")
        except OSError:
            continue
        if held == path or held.startswith(f"{path}{os.sep}"):
            raise PermissionError(errno.EACCES, "The process cannot access the file: it is open", path)

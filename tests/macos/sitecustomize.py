"""A Python that offers no more of the system than one on macOS does; every Python with this on PYTHONPATH has it.

No ``/proc``, none of Linux's own calls and constants, ``sys.platform`` is ``darwin``. What macOS has and Linux lacks,
such as kqueue, its own paths and the behaviour of its kernel, is not here: a run on macOS shows more than this.
"""

from __future__ import annotations

import builtins
import io
import os
import select
import signal
import sys
import time
from typing import Any

for _name in [one for one in vars(select) if one.lower().startswith("epoll")]:
    delattr(select, _name)  # before socket, which chooses its selector
import socket  # noqa: E402 - after epoll was taken away

_MISSING: dict[Any, tuple[str, ...]] = {
    os: (
        *("copy_file_range", "eventfd", "eventfd_read", "eventfd_write", "fdatasync", "getrandom", "getresgid"),
        *("getresuid", "getxattr", "listxattr", "memfd_create", "pidfd_open", "pipe2", "posix_fadvise"),
        *("posix_fallocate", "removexattr", "sched_getaffinity", "sched_getparam", "sched_getscheduler"),
        *("sched_rr_get_interval", "sched_setaffinity", "sched_setparam", "sched_setscheduler", "setns", "setresgid"),
        *("setresuid", "setxattr", "splice", "unshare", "O_DIRECT", "O_LARGEFILE", "O_NOATIME", "O_PATH", "O_TMPFILE"),
        *("EFD_CLOEXEC", "EFD_NONBLOCK", "GRND_NONBLOCK", "GRND_RANDOM", "MFD_CLOEXEC", "P_PIDFD"),
    ),
    signal: (
        *("pidfd_send_signal", "sigtimedwait", "sigwaitinfo"),
        *("SIGCLD", "SIGPOLL", "SIGPWR", "SIGRTMAX", "SIGRTMIN", "SIGSTKFLT"),
    ),
    socket: (
        *("AF_NETLINK", "AF_PACKET", "AF_VSOCK", "SOCK_CLOEXEC", "SOCK_NONBLOCK", "SO_BINDTODEVICE", "SO_MARK"),
        *("SO_PEERCRED", "SO_PRIORITY", "TCP_CORK", "TCP_DEFER_ACCEPT", "TCP_KEEPIDLE", "TCP_LINGER2", "TCP_QUICKACK"),
        *("TCP_SYNCNT", "TCP_USER_TIMEOUT", "TCP_WINDOW_CLAMP"),
    ),
    time: ("CLOCK_BOOTTIME", "CLOCK_TAI"),
}
_BY_PATH = ((builtins, "open"), (io, "open"), (os, "open"))
_BY_DIRECTORY = tuple((os, name) for name in ("stat", "lstat", "listdir", "scandir", "readlink", "access"))


def _without_proc(call: Any) -> Any:
    def refusing(path: Any = ".", *arguments: Any, **named: Any) -> Any:
        if not isinstance(path, int):
            text = os.fsdecode(path)
            if text == "/proc" or text.startswith("/proc/"):
                raise FileNotFoundError(2, "No such file or directory", text)
        return call(path, *arguments, **named)

    return refusing


def _take_away() -> None:
    for module, names in _MISSING.items():
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    for module, name in (*_BY_PATH, *_BY_DIRECTORY):
        setattr(module, name, _without_proc(getattr(module, name)))
    sys.platform = "darwin"


_take_away()

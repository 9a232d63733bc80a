"""Which ports a cluster gets, and who holds one that is taken.

Rules:
- At the first ``up`` of a directory broker N gets 9092+N for Kafka clients and 19092+N for gRPC, and ZooKeeper 12181 or
  the controllers 9392 and up, or the next free ones if those are taken.
- A port that was recorded or asked for is never exchanged: if it is busy, its holder is named.

Busy means that a process listens there, or that a connection was opened from there; connections of an earlier server
that linger (TIME_WAIT) do not count, since servers bind over them.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge_lab.local import layout

HOST = "127.0.0.1"
FIRST_BROKER_PORT = 19092
FIRST_KAFKA_PORT = 9092
FIRST_ZOOKEEPER_PORT = 12181
LAST_PORT = 65535
KEPT = "a cluster keeps its ports, so take that one down or use another directory (--dir)"
OTHERS = (
    "take that one down, or give other ports with --base-port, --kafka-port and --zookeeper-port or --controller-port"
)
_LISTEN = "0A"
_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_COMMAND_LENGTH = 100
_RESERVED_SECONDS = 60.0
_CONNECT_SECONDS = 1.0


def is_free(port: int) -> bool:
    """Whether a server could listen on 127.0.0.1:port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
            probe.listen(1)
        except OSError:
            return False
    return True


def takes_connections(port: int) -> bool:
    """Return whether a process listens on 127.0.0.1:port."""
    try:
        with socket.create_connection((HOST, port), _CONNECT_SECONDS):
            return True
    except OSError:
        return False


def choose_ports(
    wanted: Collection[int], *, taken: Collection[int] = (), free: Callable[[int], bool] = is_free
) -> list[int]:
    """For each wanted port that one or the next free one; none twice, and none that is taken by the plan itself.

    Raises:
        TidegaugeError: INVALID_REQUEST, there is no free port above a wanted one.
    """
    chosen: list[int] = []
    for first in wanted:
        start = max([first, *(port + 1 for port in chosen)])
        for port in range(start, LAST_PORT + 1):
            if port not in taken and free(port):
                chosen.append(port)
                break
        else:
            raise TidegaugeError(ErrorCode.INVALID_REQUEST, f"there is no free port from {start} on")
    return chosen


def require_free(port: int, owner: str, *, option: str | None = None, free: Callable[[int], bool] = is_free) -> None:
    """Refuse a busy port.

    Args:
        port: which.
        owner: who would get it, for people.
        option: of ``up``, that moves it; None: it is recorded, and can't be moved.
        free: whether a port is free.

    Raises:
        TidegaugeError: INVALID_REQUEST, with the name of the process that listens there.
    """
    if not 0 < port <= LAST_PORT:
        raise TidegaugeError(ErrorCode.INVALID_REQUEST, f"port {port} of {owner} is not between 1 and {LAST_PORT}")
    if not free(port):
        what_to_do = "a cluster keeps its ports, so end that process or use another directory (--dir)"
        if option is not None:
            what_to_do = f"end that process, or give another port with {option}"
        raise TidegaugeError(
            ErrorCode.INVALID_REQUEST,
            f"port {port} of {owner} is in use by {holder_of(port)}; {what_to_do}",
        )


def listen_on(host: str) -> None:
    """Bind a port that is free on the host, and free it again.

    Raises:
        OSError: no process of this machine can listen there, or the name is unknown.
        UnicodeError: it is no host name.
    """
    [(family, kind, protocol, _, address), *_] = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    with socket.socket(family, kind, protocol) as listener:
        listener.bind(address)


def require_host(host: str, *, option: str, listen: Callable[[str], None] = listen_on) -> None:
    """Refuse a host on which no process of this machine can listen.

    Args:
        host: a name, or an address.
        option: of ``up``, that gives it.
        listen: listens there once.

    Raises:
        TidegaugeError: INVALID_REQUEST.
    """
    try:
        listen(host)
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise TidegaugeError(
            ErrorCode.INVALID_REQUEST,
            f"brokers can't listen on {option} {host!r}: {why}; give an address of this machine, or 0.0.0.0 for all of "
            "them",
        ) from None


def holder_of(port: int, tables: Sequence[Path] = _TABLES) -> str:
    """Return the holder of a busy port, for people.

    Args:
        port: the port.
        tables: where the system shows its sockets, in the form of ``/proc/net/tcp``.
    """
    inodes = _listening_inodes(port, tables)
    if inodes is not None and not inodes:
        return "a socket that does not listen, such as the end of a connection that a process has opened"
    pid = _listening_pid_with_lsof(port) if inodes is None else _pid_with(inodes)
    if pid is None:
        return "a process that this user may not look at"
    return f"{_command_of(pid)} (process {pid})"


def listening_inodes(table: str, port: int) -> set[str]:
    """Inodes of the sockets that listen on a port, in a text of the form of ``/proc/net/tcp``."""
    found = set()
    for line in table.splitlines()[1:]:
        fields = line.split()
        if len(fields) > 9 and fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
            found.add(fields[9])
    return found


def _listening_inodes(port: int, tables: Sequence[Path]) -> set[str] | None:
    """Return the inodes of a port's listening sockets; None if unreadable."""
    found: set[str] | None = None
    for table in tables:
        with contextlib.suppress(OSError):
            found = (found or set()) | listening_inodes(table.read_text(), port)
    return found


def _pid_with(inodes: Collection[str]) -> int | None:
    """Return a process with one of these sockets; None: another user's."""
    sockets = {f"socket:[{inode}]" for inode in inodes}
    pids = (int(directory.name) for directory in Path("/proc").iterdir() if directory.name.isdigit())
    return next((pid for pid in pids if not sockets.isdisjoint(_open_files(pid))), None)


def _open_files(pid: int) -> Iterator[str]:
    """Yield what a process's descriptors point to; nothing of a process that has ended or belongs to another user."""
    with contextlib.suppress(OSError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):  # it was closed meanwhile
                yield str(descriptor.readlink())


def _listening_pid_with_lsof(port: int) -> int | None:
    """Do the same if there is no /proc (macOS)."""
    if shutil.which("lsof") is None:
        return None
    out = subprocess.run(
        ["lsof", "-nP", "-t", f"-iTCP:{port}", "-sTCP:LISTEN"], capture_output=True, text=True, check=False
    ).stdout.split()
    return int(out[0]) if out else None


def _command_of(pid: int) -> str:
    """Return the process's command line, shortened to a readable length."""
    try:
        words = (Path("/proc") / str(pid) / "cmdline").read_bytes().split(b"\0")
        text = b" ".join(words).decode("utf-8", errors="replace").strip()
    except OSError:
        text = subprocess.run(
            ["ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False
        ).stdout.strip()
    return shortened(text or "a process without a name")


def shortened(text: str) -> str:
    """Shorten a command line to the program and the end, which tells one Java or Python process from another."""
    text = " ".join(text.split())  # a program given with -c may hold lines; the refusal is one sentence
    if len(text) <= _COMMAND_LENGTH:
        return text
    program = text.split(" ", 1)[0].rpartition("/")[2]
    return f"{program} ... {text[len(program) + 5 - _COMMAND_LENGTH :]}"


def shared_directory() -> Path:
    """Where runs on this machine meet, whatever TMPDIR says for each of them."""
    common = Path("/tmp")
    return common if os.access(common, os.W_OK) else Path(tempfile.gettempdir())


class Reservations:
    """Ports that belong to a directory, whether bound at the moment or not: no other ``up`` may take them.

    They are not bound yet while a cluster starts, and not while one of its processes is down, which comes back to them.
    One small file per user and network namespace, since each namespace has ports of its own; under a lock. A
    reservation ends when its cluster is taken down (``release``), when its directory was removed, or when none of its
    processes has run for a minute. While one runs it stays, whichever ports another directory has recorded.
    """

    def __init__(
        self,
        path: Path | None = None,
        now_seconds: Callable[[], float] = time.time,
        runs: Callable[[Path], bool] = layout.runs,
    ) -> None:
        self._path = path or shared_directory() / f"tidegauge-ports-{os.getuid()}{_network_namespace()}.json"
        self._now_seconds = now_seconds
        self._runs = runs

    @contextlib.contextmanager
    def choosing(self, directory: Path) -> Iterator[Reserved]:
        """Hold the file; gives what others have reserved and takes what this directory chooses."""
        with os.fdopen(self._opened(), "r+", encoding="utf-8", errors="replace") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            now = self._now_seconds()
            found = _read_reservations(file.read())
            others = {other: since for other, since in found.values() if other != str(directory) and _is_there(other)}
            running = {other for other in others if self._runs(Path(other))}
            last = {other: now if other in running else since for other, since in others.items()}
            entries = {
                port: (other, last[other])
                for port, (other, _) in found.items()
                if other in last and 0 <= now - last[other] < _RESERVED_SECONDS
            }
            reserved = Reserved({port: Path(other) for port, (other, _) in entries.items()}, running)
            yield reserved
            for port in reserved.chosen:
                if port not in entries or entries[port][0] not in running:
                    entries[port] = str(directory), now
            file.seek(0)
            file.write(json.dumps({str(port): entry for port, entry in entries.items()}))
            file.truncate()

    def _opened(self) -> int:
        """Open the file, which lies where other users may write too.

        Raises:
            TidegaugeError: INVALID_REQUEST, it is another user's, or no file.
        """
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as problem:
            raise self._unusable(problem.strerror or str(problem)) from None
        if os.fstat(descriptor).st_uid != os.getuid():
            os.close(descriptor)
            raise self._unusable("it belongs to another user")
        return descriptor

    def _unusable(self, why: str) -> TidegaugeError:
        return TidegaugeError(
            ErrorCode.INVALID_REQUEST,
            f"{self._path}, which notes the ports of clusters, can't be used: {why}; remove it",
        )

    def owned(self) -> frozenset[int]:
        """All ports that belong to some directory."""
        with self.choosing(Path()) as reserved:
            return reserved.others

    def require_no_clusters(self, port: int, option: str) -> None:
        """Refuse a port that belongs to a cluster, for a server that is none of its processes.

        Args:
            port: which.
            option: of the verb, that moves it.

        Raises:
            TidegaugeError: INVALID_REQUEST; the port may be free at the moment, while its process is down.
        """
        if port in self.owned():
            raise TidegaugeError(
                ErrorCode.INVALID_REQUEST,
                f"port {port} belongs to a cluster, whose process listens there or comes back to it; give another with "
                f"{option}",
            )

    def hold(self, directory: Path, ports: Collection[int]) -> None:
        """Reserve these ports for the directory's cluster.

        Raises:
            TidegaugeError: INVALID_REQUEST, one of them is another cluster's that runs; nothing is reserved.
        """
        with self.choosing(directory) as reserved:
            reserved.choose(ports, KEPT)

    def release(self, directory: Path) -> None:
        """Release the ports of the directory's cluster, which is down."""
        with self.choosing(directory):
            pass


class Reserved:
    """Ports that other directories have reserved, and those chosen now.

    Args:
        owners: the directory of each port that another one has reserved.
        running: directories of clusters that run.
    """

    def __init__(self, owners: Mapping[int, Path], running: Collection[str] = ()) -> None:
        self.owners = owners
        self._running = running
        self.others = frozenset(owners)
        self.chosen: list[int] = []

    def choose(self, ports: Collection[int], what_to_do: str) -> None:
        """Take ports.

        Args:
            ports: which.
            what_to_do: about one that is taken, for the sentence.

        Raises:
            TidegaugeError: INVALID_REQUEST, one of them is another cluster's that runs; none is taken.
        """
        for port in ports:
            other = self.owners.get(port)
            if other is not None and str(other) in self._running:
                raise TidegaugeError(
                    ErrorCode.INVALID_REQUEST,
                    f"port {port} is in use by the cluster in {other}, which runs; {what_to_do}",
                )
        self.chosen.extend(ports)


def _is_there(directory: str) -> bool:
    """Whether a directory exists; a text that can't name one names none."""
    try:
        return Path(directory).is_dir()
    except (OSError, ValueError):
        return False


def _network_namespace() -> str:
    """Return a suffix by network namespace; empty if the system has none."""
    try:
        return f"-{Path('/proc/self/ns/net').stat().st_ino}"
    except OSError:
        return ""


def _read_reservations(text: str) -> dict[int, tuple[str, float]]:
    """Return the file's entries; a damaged file holds none.

    Where its writer was killed before it gave the file its new length, the rest of the old entries follows the new.
    """
    try:
        entries, _ = json.JSONDecoder().raw_decode(text or "{}")
        return {int(port): (str(directory), float(since)) for port, (directory, since) in entries.items()}
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        return {}

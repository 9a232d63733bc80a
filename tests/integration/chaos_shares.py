"""A share group at work while faults happen, judged by its history (docs/histories.md), and the faults of its parts."""

from __future__ import annotations

import contextlib
import itertools
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from tests.integration.chaos import DAMAGE, FAULTS, IN, METADATA, Chaos
from tests.integration.chaos_coordinators import METADATA_NAME, fail, of_a_coordinator
from tests.integration.share_books import AT, GROUP, LIMIT_SECONDS, Books, end_member, start_member
from tests.waiting import until

from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.local.roles import SHARE, SHARE_PARTITION, Coordinated, Role, RoleKind
from tidegauge_lab.switches import Plane

WORKLOAD = "java-shares"
"""Two of Java's share consumers, one in explicit mode, one in implicit mode."""
MODES = ("explicit", "implicit")
OF_SHARE_MEMBERS = ("ShareGroupHeartbeat", "ShareFetch", "ShareAcknowledge")
OF_SHARE_STATES = ("ReadShareGroupState", "WriteShareGroupState")
PAUSE_SECONDS = 3.0
COORDINATED: Mapping[object, str] = MappingProxyType({SHARE: GROUP})


def share_coordinator(chaos: Chaos) -> int:
    """Return the broker that keeps the state of the share partition."""
    role = Role(RoleKind.COORDINATOR, of=Coordinated(SHARE_PARTITION, GROUP, AT))
    return chaos._waited_for(lambda: chaos.cluster.resolve(role))


SHARE_FAULTS: dict[str, Callable[[Chaos], None]] = {
    **of_a_coordinator(SHARE, "the share group's coordinator"),
    "kill the share coordinator": lambda chaos: chaos.kill(share_coordinator(chaos)),
    "stop the share coordinator": lambda chaos: chaos.stop(share_coordinator(chaos)),
    "pause the share coordinator": lambda chaos: chaos.pause(share_coordinator(chaos)),
    "power cut of the share coordinator": lambda chaos: chaos.kill(share_coordinator(chaos), power_cut=True),
    "cut the share coordinator from brokers": lambda chaos: chaos.cut(share_coordinator(chaos), Plane.BROKERS),
    "cut the share coordinator from clients": lambda chaos: chaos.cut(share_coordinator(chaos), Plane.CLIENTS, IN),
    f"cut the share coordinator from {METADATA_NAME}": lambda chaos: chaos.cut(share_coordinator(chaos), METADATA),
    "appends of the share coordinator are slow": lambda chaos: chaos.slow_disk(share_coordinator(chaos), "append"),
    "pause a member of the share group": lambda chaos: chaos.pause_client(),
    "requests of share members break": lambda chaos: fail(chaos, OF_SHARE_MEMBERS),
    "responses to share members get lost": lambda chaos: fail(chaos, OF_SHARE_MEMBERS, after_effect=True),
    "requests about share states break": lambda chaos: fail(chaos, OF_SHARE_STATES),
    "responses about share states get lost": lambda chaos: fail(chaos, OF_SHARE_STATES, after_effect=True),
}
ALL_FAULTS = SHARE_FAULTS | {name: fault for name, fault in FAULTS.items() if name != DAMAGE}
"""For a cluster on which a share group is at work; the faults of its own parts come first."""


class SharesLoad:
    """A producer, and the members of a share group.

    Args:
        cluster: with the topic ``jobs``.
        directory: for the history and the members' error output.
    """

    def __init__(self, cluster: LocalCluster, directory: Path) -> None:
        self._cluster, self._directory = cluster, directory
        self.books = Books(cluster, directory / "history.jsonl")
        self._members: dict[str, subprocess.Popen[str]] = {}
        self._names = itertools.count(1)
        self._values = itertools.count(1)

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """Have members at work inside the block."""
        self.books.begin_group()
        try:
            for mode in MODES:
                self._start(mode)
            yield
        finally:
            for one in self._members.values():
                if one.poll() is None:
                    end_member(one)

    def _start(self, mode: str) -> None:
        name = f"{mode} {next(self._names)}"
        errors = self._directory / f"{name.replace(' ', '-')}.log"
        self._members[name] = start_member(self._cluster, mode, self.books.path, name, errors)

    def kill_one(self) -> None:
        """Kill the oldest member; another one takes its place."""
        name = next(iter(self._members))
        gone = self._members.pop(name)
        gone.kill()
        gone.communicate(timeout=60)
        self._start(name.partition(" ")[0])

    def pause_one(self) -> None:
        """Have the oldest member stand still for a while."""
        one = next(iter(self._members.values()))
        one.send_signal(signal.SIGSTOP)
        try:
            threading.Event().wait(PAUSE_SECONDS)
        finally:
            one.send_signal(signal.SIGCONT)

    def write(self) -> None:
        """Send a record, whose value says what a member in explicit mode does with it."""
        number = next(self._values)
        self.books.send(f"{('accept', 'release', 'reject', 'accept')[number % 4]} {number}")

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Write records from a thread of its own inside the block."""
        is_over = threading.Event()

        def write_on() -> None:
            while not is_over.wait(0.1):
                self.write()

        thread = threading.Thread(target=write_on)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()

    def settle(self) -> None:
        """Wait until each acknowledged record was given, and the group has done with all of them."""
        until(lambda: self.books.acknowledged <= self.books.given(), LIMIT_SECONDS, "all were given")
        wanted = len(self.books.acknowledged)

        def are_done() -> bool:
            self.write()  # a start offset is written with the next word of a member
            return self.books.start_offset() >= wanted

        until(are_done, LIMIT_SECONDS, "all of these are done")

    def wrong(self) -> dict[str, object]:
        """Return broken guarantees, and members that ended by themselves; empty: neither."""
        code, found = self.books.judged()
        ended = {name: one.returncode for name, one in self._members.items() if one.poll() is not None}
        broken = {} if code == 0 and found["clean"] else {"broken": found["counts"]}
        return {**broken, **({"ended": ended} if ended else {})}

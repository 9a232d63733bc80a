"""Two static members of a group that come again with a rebalance timeout of 0, and leave: in rounds, amid all faults.

Such a rebalance is over as soon as it begins (GroupCoordinator.completeJoin). Whichever faults happen meanwhile, the
coordinator responds to the next round, and the other groups are served.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from tests.integration.copiers import LIMIT_SECONDS
from tests.waiting import until
from tests.wire_responses.probe import Peer, message

PAUSE_SECONDS = 0.2
PATIENCE_SECONDS = 5.0
"""For one response: a coordinator that dies gives none."""
INSTANCES = ("a", "b")
REBALANCE_TIMEOUTS_MS = (10_000, 0, 0, 1)


class OddMembers:
    """The members.

    Args:
        addresses: of all brokers, for Kafka clients.
        group: its id.
    """

    def __init__(self, addresses: Sequence[str], group: str) -> None:
        self._addresses = addresses
        self._group = group
        self._ended = threading.Event()
        self.rounds = 0
        """Count of rounds in which a member could join."""

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """Do rounds in a thread."""
        self._ended.clear()
        thread = threading.Thread(target=self._work, name="odd-members")
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()

    def wait_for_more(self) -> None:
        """Wait for two rounds that begin and end from now on."""
        wanted = self.rounds + 3  # one may be in progress
        until(lambda: self.rounds >= wanted, LIMIT_SECONDS, f"the coordinator of {self._group} responds")

    def _work(self) -> None:
        for turn in itertools.count():
            with contextlib.suppress(OSError, AttributeError):  # brokers die; no response is a text
                self._round(turn)
            if self._ended.wait(PAUSE_SECONDS):
                return

    def _round(self, turn: int) -> None:
        """Let both join with one of the timeouts, and one of them leave in every second round.

        Raises:
            OSError: a broker does not respond.
        """
        where = self._coordinator(self._addresses[turn % len(self._addresses)])
        timeout_ms = REBALANCE_TIMEOUTS_MS[turn % len(REBALANCE_TIMEOUTS_MS)]
        with contextlib.ExitStack() as stack:
            peers = [_opened(stack, where) for _ in INSTANCES]
            requests = [self._join(instance, timeout_ms) for instance in INSTANCES]
            for peer, request in zip(peers, requests, strict=True):
                peer.send(7, request)
            responses = [
                peer.receive(7, request, PATIENCE_SECONDS) for peer, request in zip(peers, requests, strict=True)
            ]
            if turn % 2:
                leaver = INSTANCES[turn // 2 % len(INSTANCES)]
                leave = message(
                    "LeaveGroup", group_id=self._group, members=[{"member_id": "", "group_instance_id": leaver}]
                )
                peers[0].ask(4, leave, PATIENCE_SECONDS)
        if any(not isinstance(one, str) and one.error_code == 0 for one in responses):
            self.rounds += 1

    def _coordinator(self, address: str) -> str:
        with contextlib.ExitStack() as stack:
            request = message("FindCoordinator", key_type=0, coordinator_keys=[self._group])
            (one,) = _opened(stack, address).ask(4, request, PATIENCE_SECONDS).coordinators
        if one.error_code:
            raise OSError(f"no coordinator: {one.error_code}")
        return f"{one.host}:{one.port}"

    def _join(self, instance: str, rebalance_timeout_ms: int) -> Any:
        return message(
            "JoinGroup",
            group_id=self._group,
            session_timeout_ms=6_000,
            rebalance_timeout_ms=rebalance_timeout_ms,
            group_instance_id=instance,
            protocol_type="consumer",
            protocols=[{"name": "range", "metadata": b""}],
        )


def _opened(stack: contextlib.ExitStack, address: str) -> Peer:
    host, _, port = address.rpartition(":")
    peer = Peer(host, int(port))
    stack.callback(peer.close)
    return peer

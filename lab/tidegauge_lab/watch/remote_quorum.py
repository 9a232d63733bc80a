"""The quorum of controllers of a cluster that is only looked at: any of its brokers hands the question on (KIP-642)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.kraft.apis import KRAFT_PROTOCOL
from tidegauge.kafka_channel import Dialer, KafkaChannel
from tidegauge.security import Security
from tidegauge_client.quorum_admin import QuorumView, quorum_by_broker
from tidegauge_lab.watch.facts import QuorumFacts

_CLIENT_ID = "tidegauge-watch"
_LIMIT_SECONDS = 1.0


class RemoteQuorum:
    """Asks brokers for the quorum, over one connection for as long as its broker responds.

    Args:
        security: of the brokers' listeners for Kafka clients.
    """

    def __init__(self, security: Security) -> None:
        self._security = security
        self._dial = Dialer(security)
        self._channel: KafkaChannel | None = None
        self._has_none = False

    async def look(self, addresses: Sequence[str], broker_ids: Collection[int]) -> QuorumFacts | None:
        """Return the quorum; None: ZooKeeper mode, or no leader responds.

        Args:
            addresses: where brokers serve Kafka clients.
            broker_ids: of the brokers, which are observers of the quorum and none of its controllers.
        """
        if self._has_none or not addresses:
            return None
        if self._channel is None or self._channel.address not in addresses:
            self.close()
            self._channel = self._channel_to(addresses[0])
        try:
            return quorum_facts(await quorum_by_broker(self._channel, _LIMIT_SECONDS), broker_ids)
        except TidegaugeError as problem:
            self._has_none = problem.code is ErrorCode.UNSUPPORTED_VERSION
            others = [one for one in addresses if one != self._channel.address]
            self.close()
            self._channel = self._channel_to(others[0]) if others else None
            return None

    def _channel_to(self, address: str) -> KafkaChannel:
        return KafkaChannel(address, _CLIENT_ID, self._dial, self._security.login, protocol=KRAFT_PROTOCOL)

    def close(self) -> None:
        """Close the connection."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None


def quorum_facts(view: QuorumView, broker_ids: Collection[int]) -> QuorumFacts:
    """Return the page's facts of a quorum whose processes are elsewhere.

    Args:
        view: the quorum as its leader describes it.
        broker_ids: observers that are no controllers.
    """
    voters = {one.id for one in view.voters}
    controllers = [*view.voters, *(one for one in view.observers if one.id not in {*broker_ids, *voters})]

    def fact(node_id: int, log_end_offset: int) -> dict[str, Any]:
        role = "leader" if node_id == view.leader_id else "follower" if node_id in voters else "observer"
        listeners = view.endpoints.get(node_id) or ("",)
        return {
            "id": node_id,
            "state": "up" if node_id == view.leader_id else "unknown",
            "pid": None,
            "responds": node_id == view.leader_id,
            "end": None,
            "address": listeners[0].rpartition("/")[2],
            "dir": "",
            "role": role,
            "epoch": view.epoch,
            "log_end_offset": log_end_offset if log_end_offset >= 0 else None,
            "high_watermark": view.high_watermark,
        }

    found = [fact(one.id, one.log_end_offset) for one in sorted(controllers, key=lambda one: one.id)]
    return QuorumFacts(view.leader_id, view.epoch, found)

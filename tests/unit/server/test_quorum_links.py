"""A node's log about controllers that it can't use: it tries for ever, and the log must say why, once."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.kraft.messages import vote
from tidegauge_broker.server.quorum.links import QuorumLinks
from tidegauge_controller.raft import effects
from tidegauge_controller.raft.messages import VoteRequest
from tidegauge_controller.raft.values import Endpoint, ReplicaKey

AT = Endpoint("CONTROLLER", "127.0.0.1", 9393)
ASKED = VoteRequest("cluster", ReplicaKey(1), 5, ReplicaKey(0), 1, 4, pre_vote=False)
GRANTED = vote.VoteResponse(
    topics=[vote.ResponseTopicData("__cluster_metadata", [vote.ResponsePartitionData(vote_granted=True)])]
)


class Channel:
    """A channel whose next outcome the test chooses."""

    def __init__(self) -> None:
        self.outcome: Any = GRANTED

    async def request(self, *_: Any, **__: Any) -> Any:
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


class Said:
    """A node's links to one controller, and what they have said of it."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, "tidegauge.quorum")
        self._log, self.channel = caplog, Channel()
        self._links = QuorumLinks("CONTROLLER", 1.0, lambda _: self.channel)  # type: ignore[arg-type, return-value]

    async def after(self, outcome: Any) -> list[str]:
        """Send a request with this outcome; return the new lines."""
        self.channel.outcome = outcome
        self._log.clear()
        try:
            await self._links.send(effects.Send(1, 3000, AT, ASKED))
        except TidegaugeError:
            assert isinstance(outcome, TidegaugeError)
        return self._log.messages


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Said:
    return Said(caplog)


async def test_why_a_controller_can_t_be_reached_is_said_once_until_it_changes(said: Said) -> None:
    refused = TidegaugeError(ErrorCode.NETWORK_EXCEPTION, "no connection to 127.0.0.1:9393: refused")
    [line] = await said.after(refused)
    assert line == (
        "The controller at 127.0.0.1:9393 can't be used, and is tried again: no connection to 127.0.0.1:9393: refused"
    )
    assert await said.after(refused) == []
    [line] = await said.after(TidegaugeError(ErrorCode.REQUEST_TIMED_OUT, "it did not respond"))
    assert line.endswith("it did not respond")
    assert await said.after(GRANTED) == ["The controller at 127.0.0.1:9393 can be used again"]
    assert await said.after(GRANTED) == []


@pytest.mark.parametrize(
    ("error", "way_out"),
    [
        (ErrorCode.INCONSISTENT_CLUSTER_ID, "name the controllers of this cluster in controller.quorum.bootstrap"),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "add the node's principal to super.users"),
    ],
)
async def test_an_error_of_the_whole_response_is_said_with_the_way_out(
    error: ErrorCode, way_out: str, said: Said
) -> None:
    """The node takes such a response for none, as Kafka's does, so nothing else would say it."""
    [line] = await said.after(vote.VoteResponse(error_code=error))
    assert way_out in line


async def test_a_bootstrap_server_has_a_connection_of_its_own() -> None:
    """A fetch that waits there must not hold up a vote to the voter at the same address (NetworkClient, by node id)."""
    channels: list[Channel] = []

    def opened(_: str) -> Channel:
        channels.append(Channel())
        return channels[-1]

    links = QuorumLinks("CONTROLLER", 1.0, opened)  # type: ignore[arg-type]
    for node_id in (-2, 3000, -2, 3000):
        await links.send(effects.Send(1, node_id, AT, ASKED))
    assert len(channels) == 2

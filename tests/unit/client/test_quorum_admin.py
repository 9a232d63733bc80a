"""How the admin client of a quorum looks for its leader, and which problem it reports in the end."""

from __future__ import annotations

from typing import Any

import pytest

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka_channel import KafkaChannel, NotAuthenticated
from tidegauge_client.quorum_admin import QuorumAdmin

REFUSED = NotAuthenticated("127.0.0.1:2 did not authenticate this side: Invalid username or password")
UNREACHABLE = TidegaugeError(ErrorCode.NETWORK_EXCEPTION, "no connection to 127.0.0.1:1: refused")
LATE = TidegaugeError(ErrorCode.REQUEST_TIMED_OUT, "127.0.0.1:1 did not respond within 0.1 s")


class Controllers:
    """Controllers whose outcomes follow one another, by address; the last one stays."""

    def __init__(self, **outcomes: list[TidegaugeError]) -> None:
        self.asked: list[str] = []
        self._outcomes = {f"127.0.0.1:{name[1:]}": found for name, found in outcomes.items()}

    async def request(self, channel: KafkaChannel, *_: Any, **__: Any) -> Any:
        self.asked.append(channel.address)
        outcomes = self._outcomes[channel.address]
        raise outcomes.pop(0) if len(outcomes) > 1 else outcomes[0]

    async def describe(self, monkeypatch: pytest.MonkeyPatch, limit_seconds: float) -> TidegaugeError:
        async def request(channel: KafkaChannel, *arguments: Any, **more: Any) -> Any:
            return await self.request(channel, *arguments, **more)

        monkeypatch.setattr(KafkaChannel, "request", request)
        async with QuorumAdmin(list(self._outcomes), limit_seconds) as admin:
            with pytest.raises(TidegaugeError) as found:
                await admin.describe()
        return found.value


async def test_credentials_that_no_controller_takes_are_not_tried_for_the_whole_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As in Kafka's clients (SaslAuthenticationException): no other attempt would end differently."""
    controllers = Controllers(_1=[UNREACHABLE], _2=[REFUSED])
    assert await controllers.describe(monkeypatch, 3600.0) is REFUSED
    assert controllers.asked == ["127.0.0.1:1", "127.0.0.1:2"]


async def test_that_the_time_was_over_does_not_hide_what_was_in_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last attempt has little time left, so it says nothing."""
    problem = await Controllers(_1=[UNREACHABLE, LATE]).describe(monkeypatch, 0.2)
    assert problem.code is ErrorCode.NETWORK_EXCEPTION
    assert "no connection to 127.0.0.1:1: refused; if its listener has TLS or SASL, --command-config" in problem.message


async def test_a_controller_that_does_not_respond_leaves_time_to_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is paused accepts no request and refuses none; the next controller has the rest of the time."""
    asked: list[tuple[str, float]] = []

    async def request(channel: KafkaChannel, _key: int, _message: Any, limit_seconds: float, **_: Any) -> Any:
        asked.append((channel.address, limit_seconds))
        raise LATE if channel.address == "127.0.0.1:1" else REFUSED

    monkeypatch.setattr(KafkaChannel, "request", request)
    async with QuorumAdmin(["127.0.0.1:1", "127.0.0.1:2"], 1.2) as admin:
        for _ in range(2):
            with pytest.raises(TidegaugeError) as found:
                await admin.describe()
            assert found.value is REFUSED
    assert [address[-1] for address, _ in asked] == ["1", "2", "2", "1"], "it is asked last from then on"
    assert asked[0][1] == pytest.approx(0.4, abs=0.1), "a third of the time: another controller and a request follow"
    assert asked[1][1] == pytest.approx(0.6, abs=0.1)

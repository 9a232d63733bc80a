"""Lists of what all coordinators have: rule 4 of ``admin_groups``."""

from __future__ import annotations

from typing import Any

import pytest

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.messages.list_groups import ListedGroup, ListGroupsResponse
from tidegauge.kafka.messages.list_transactions import ListTransactionsResponse, TransactionState
from tidegauge_client import admin_groups
from tidegauge_client.admin import Admin
from tidegauge_client.merged_lists import MergedList

LEADERLESS = TidegaugeError(ErrorCode.BROKER_NOT_AVAILABLE, "__consumer_offsets-3 has no leader")
LOADING = TidegaugeError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "Broker 1 loads")


class Brokers:
    """Responses to lists, one after the other; each attempt takes 100 ms of a clock that nothing else moves."""

    def __init__(self, *responses: Any, attempt_ms: float = 100.0) -> None:
        self.responses = list(responses)
        self.attempt_ms = attempt_ms
        self.now_ms = 1_000_000.0
        self.limits: list[float] = []

    async def ask(self, *given: Any, **_: int) -> Any:
        self.limits.append(given[-1])
        self.now_ms += self.attempt_ms
        response = self.responses.pop(0) if len(self.responses) > 1 else self.responses[0]
        if isinstance(response, TidegaugeError):
            raise response
        return response

    def reached_by(self, monkeypatch: pytest.MonkeyPatch) -> Admin:
        """Return a client of theirs."""

        async def sleep(seconds: float) -> None:
            self.now_ms += seconds * 1000

        monkeypatch.setattr(admin_groups, "now_ms", lambda: self.now_ms)
        monkeypatch.setattr(admin_groups.asyncio, "sleep", sleep)
        monkeypatch.setattr(Admin, "_each_list", lambda _self, *given, **versions: self.ask(*given, **versions))
        return Admin("127.0.0.1:1", retry_backoff_ms=100)


def of(response: Any, problem: TidegaugeError | None) -> MergedList:
    """Return a list with broker 0's part that lacks another if there is a problem."""
    if problem is None:
        return MergedList([(0, response)])
    return MergedList([(0, response)], problem.code, [problem.message])


def groups(*names: str, status: TidegaugeError | None = None) -> MergedList:
    return of(ListGroupsResponse(groups=[ListedGroup(name, group_state="Empty") for name in names]), status)


async def listed(admin: Admin, **limits: float | None) -> tuple[list[str], str]:
    found, lacks = await admin.list_groups_there(**limits)
    return [one.group_id for one in found], lacks


@pytest.mark.parametrize("moment", [LEADERLESS, LOADING])
async def test_what_an_election_hides_for_a_moment_is_waited_for(
    moment: TidegaugeError, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers = Brokers(groups("a", status=moment), groups("a", status=moment), groups("a", "b"))
    assert await listed(brokers.reached_by(monkeypatch), timeout_ms=10_000) == (["a", "b"], "")


async def test_what_stays_missing_is_named_with_what_there_is_when_the_time_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    brokers = Brokers(groups("a", status=LEADERLESS))
    admin = brokers.reached_by(monkeypatch)
    assert await listed(admin, timeout_ms=10_000) == (["a"], LEADERLESS.message)
    assert 8_000 <= brokers.now_ms - 1_000_000 <= 10_000, "the time was used, and not more"
    assert min(brokers.limits) >= 1_000, "a shorter attempt would call brokers silent that live"


async def test_a_broker_that_fails_later_does_not_take_away_what_was_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = TidegaugeError(ErrorCode.BROKER_NOT_AVAILABLE, "no broker responds")
    brokers = Brokers(groups("a", status=LEADERLESS), gone)
    assert await listed(brokers.reached_by(monkeypatch), timeout_ms=5_000) == (
        ["a"],
        LEADERLESS.message,
    )
    with pytest.raises(TidegaugeError, match="no broker responds"):
        await Brokers(gone).reached_by(monkeypatch).list_groups()


async def test_a_look_at_what_is_there_now_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control interface names missing parts at once: a test that has killed a coordinator wants to see it."""
    brokers = Brokers(groups("a", status=LEADERLESS))
    assert await listed(brokers.reached_by(monkeypatch), missing_ms=0) == (["a"], LEADERLESS.message)
    assert len(brokers.limits) == 1


async def test_a_whole_list_waits_and_fails_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers(groups("a", status=LEADERLESS), groups("a", "b"))
    assert [one.group_id for one in await brokers.reached_by(monkeypatch).list_groups()] == ["a", "b"]
    with pytest.raises(TidegaugeError, match=LEADERLESS.message):
        await Brokers(groups("a", status=LEADERLESS)).reached_by(monkeypatch).list_groups(timeout_ms=5_000)


async def test_another_error_is_not_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = TidegaugeError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "not allowed")
    brokers = Brokers(groups(status=refused))
    with pytest.raises(TidegaugeError, match="not allowed"):
        await brokers.reached_by(monkeypatch).list_groups_there()
    assert len(brokers.limits) == 1


async def test_transactional_ids_are_listed_likewise(monkeypatch: pytest.MonkeyPatch) -> None:
    moment = of(ListTransactionsResponse(), LEADERLESS)
    whole = of(ListTransactionsResponse(transaction_states=[TransactionState("t", 7, "Ongoing")]), None)
    admin = Brokers(moment, whole).reached_by(monkeypatch)
    found, lacks = await admin.list_transactions_there()
    assert ([one.transactional_id for one in found], lacks) == (["t"], "")
    at_once = await Brokers(moment).reached_by(monkeypatch).list_transactions_there(missing_ms=0)
    assert at_once == ([], LEADERLESS.message)

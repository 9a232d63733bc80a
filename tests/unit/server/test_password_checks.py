"""Passwords are checked for all clients in turn: wrong ones of a client lock no other client out."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from tidegauge_broker.security.sasl.call_authenticator import ToProve
from tidegauge_broker.security.sasl.exchange import AuthenticationRefused
from tidegauge_broker.security.sasl.fair_queue import FairQueue
from tidegauge_broker.security.sasl.scram import ScramCredential
from tidegauge_broker.server.wire.grpc.password_checks import MOST_OF_A_CONNECTION, PasswordChecks

RIGHT, ODD = "right", "odd"
KEYS = ScramCredential(b"salt", b"", b"", 4096)


def candidate(password: str) -> list[ToProve]:
    return [ToProve("SCRAM-SHA-512", "carol", password, KEYS)]


class Checker:
    """Knows one right password; each check waits until the test lets it go on."""

    def __init__(self) -> None:
        self.checked: list[str] = []
        self.threads: set[int] = set()
        self.go_on = threading.Semaphore(0)

    def is_right(self, one: ToProve) -> bool:
        assert self.go_on.acquire(timeout=60)
        self.checked.append(one.password)
        self.threads.add(threading.get_ident())
        return one.password == RIGHT


def begun(checks: PasswordChecks, connection: str, password: str) -> asyncio.Task[ToProve | None]:
    host = connection.partition(":")[0]
    return asyncio.create_task(checks.first_right(host, connection, password.encode(), candidate(password)))


async def turns() -> None:
    """Let begun work reach its first wait."""
    for _ in range(3):
        await asyncio.sleep(0)


async def test_wrong_passwords_delay_another_client_by_a_turn() -> None:
    """One connection floods; the login that comes last on another one is the second to be checked."""
    checker = Checker()
    checks = PasswordChecks(checker.is_right)
    flood = [begun(checks, f"10.0.0.1:{number % 4}", f"wrong {number}") for number in range(100)]
    await turns()
    login = begun(checks, "10.0.0.2:1", "right")
    neighbour = begun(checks, "10.0.0.1:9", "mistyped")
    await turns()
    checker.go_on.release(200)
    found = await login
    assert found is not None
    assert found.password == RIGHT
    assert checker.checked.index("right") <= 2
    assert await neighbour is None
    assert checker.checked.index("mistyped") <= 12, "connections of an address take turns too"
    assert await asyncio.gather(*flood) == [None] * 100
    assert threading.get_ident() not in checker.threads


async def test_calls_with_the_same_credential_share_a_check() -> None:
    checker = Checker()
    checks = PasswordChecks(checker.is_right)
    calls = [begun(checks, "10.0.0.1:1", "right") for _ in range(50)]
    await turns()
    calls[0].cancel()
    checker.go_on.release(50)
    found = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(found[0], asyncio.CancelledError)
    assert {one.password for one in found[1:] if isinstance(one, ToProve)} == {"right"}
    assert checker.checked == ["right"]


async def test_a_password_that_no_call_waits_for_is_not_checked() -> None:
    checker = Checker()
    checks = PasswordChecks(checker.is_right)
    first, given_up, last = (begun(checks, "10.0.0.1:1", f"wrong {number}") for number in range(3))
    await turns()
    given_up.cancel()
    await turns()
    checker.go_on.release(3)
    assert await first is None
    assert await last is None
    assert checker.checked == ["wrong 0", "wrong 2"]


async def test_a_connection_has_a_maximum_of_waiting_credentials_and_others_have_their_own() -> None:
    checker = Checker()
    checks = PasswordChecks(checker.is_right)
    waiting = [begun(checks, "10.0.0.1:1", "being checked")]
    await turns()
    waiting += [begun(checks, "10.0.0.1:1", f"wrong {number}") for number in range(MOST_OF_A_CONNECTION)]
    await turns()
    with pytest.raises(AuthenticationRefused, match="32 different credentials"):
        await begun(checks, "10.0.0.1:1", "one more")
    other = begun(checks, "10.0.0.1:2", "right")
    await turns()
    checker.go_on.release(100)
    assert await other is not None
    await asyncio.gather(*waiting)
    again = begun(checks, "10.0.0.1:1", "right")
    assert await again is not None


async def test_a_check_that_fails_fails_its_calls_alone() -> None:
    def is_right(one: ToProve) -> bool:
        if one.password == ODD:
            raise ValueError("a defect")
        return True

    checks = PasswordChecks(is_right)
    odd, right = begun(checks, "10.0.0.1:1", "odd"), begun(checks, "10.0.0.1:1", "right")
    with pytest.raises(ValueError, match="a defect"):
        await odd
    assert await right is not None


def test_addresses_take_turns_and_so_do_their_connections() -> None:
    queue: FairQueue[Any] = FairQueue(2)
    for host, connection, work in ("aaa", "aab", "aac", "abd", "bce"):
        queue.add(host, connection, work)
    assert not queue.add("a", "a", "x")
    assert [queue.take() for _ in range(4)] == ["a", "e", "d", "b"]
    assert not queue
    with pytest.raises(KeyError):
        queue.take()

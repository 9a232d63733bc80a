"""Checks passwords against SCRAM's keys, away from the event loop, and for all clients in turn.

Rules:
    1. One check at a time has a thread of its own: the hash is slow by design, and many at once would take the machine
       from the broker. Clients take turns (``fair_queue``), so wrong passwords delay other clients by a check or two.
    2. Calls with the same credential share one check.
    3. A credential that no call waits for any more is not checked; a connection with ``MOST_OF_A_CONNECTION`` of them
       waiting gets no further one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from tidegauge_broker.security.sasl.call_authenticator import ToProve
from tidegauge_broker.security.sasl.exchange import AuthenticationRefused
from tidegauge_broker.security.sasl.fair_queue import FairQueue

MOST_OF_A_CONNECTION = 32
TOO_MANY = (
    f"this connection has {MOST_OF_A_CONNECTION} different credentials waiting to be checked; wait for the responses, "
    "or use one credential for a connection"
)


@dataclass(eq=False, slots=True)
class _Check:
    """Passwords of which the first that is right is looked for."""

    key: bytes
    to_prove: Sequence[ToProve]
    found: asyncio.Future[ToProve | None]
    waiting: int = field(default=0)


class PasswordChecks:
    """Checks passwords in a thread.

    Args:
        is_right: compares a password, which takes milliseconds.
    """

    def __init__(self, is_right: Callable[[ToProve], bool]) -> None:
        self._is_right = is_right
        self._queue: FairQueue[_Check] = FairQueue(MOST_OF_A_CONNECTION)
        self._by_key: dict[bytes, _Check] = {}
        self._worker: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, "password-check")

    async def first_right(self, host: str, connection: str, key: bytes, to_prove: Sequence[ToProve]) -> ToProve | None:
        """Return the first password that is right; None: none is.

        Args:
            host: the client's address.
            connection: names the connection.
            key: of the credential and what it is for; calls with the same one share a check.
            to_prove: the passwords.

        Raises:
            AuthenticationRefused: rule 3.
        """
        check = self._by_key.get(key)
        if check is None:
            check = _Check(key, to_prove, asyncio.get_running_loop().create_future())
            if not self._queue.add(host, connection, check):
                raise AuthenticationRefused(f"Authentication failed: {TOO_MANY}")
            self._by_key[key] = check
            if self._worker is None:
                self._worker = asyncio.get_running_loop().create_task(self._work(), name="password-checks")
        check.waiting += 1
        try:
            return await asyncio.shield(check.found)
        finally:
            check.waiting -= 1

    async def _work(self) -> None:
        try:
            while self._queue:
                check = self._queue.take()
                if check.waiting:
                    await self._prove(check)
                else:
                    self._by_key.pop(check.key)
        finally:
            self._worker = None

    async def _prove(self, check: _Check) -> None:
        """Check passwords, and give the outcome to all calls that wait for it."""
        loop = asyncio.get_running_loop()
        try:
            for one in check.to_prove:
                if await loop.run_in_executor(self._thread, self._is_right, one):
                    check.found.set_result(one)
                    return
            check.found.set_result(None)
        except Exception as problem:  # noqa: BLE001 - it is raised in the calls that wait
            check.found.set_exception(problem)
            check.found.exception()  # perhaps no call waits for it any more
        finally:
            self._by_key.pop(check.key)

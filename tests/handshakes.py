"""The reports of clients that TLS keeps out."""

from __future__ import annotations

from tests.waiting import until_async

from tidegauge.errors import TidegaugeError
from tidegauge_client import Admin
from tidegauge_client.bootstrap import BootstrapServers
from tidegauge_client.cluster import HandshakeError


async def refused(servers: BootstrapServers) -> str:
    """The sentence; a machine that is slow to connect is asked again."""

    async def sentence() -> str:
        async with Admin(servers) as admin:
            try:
                await admin.metadata([])
            except HandshakeError as problem:
                return problem.message
            except TidegaugeError:
                return ""
        raise AssertionError("it was served")

    return await until_async(sentence, what="a sentence about TLS")

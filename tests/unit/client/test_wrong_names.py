"""A topic that does not exist, and an address at which another server responds: the sentence says which was meant."""

from __future__ import annotations

import asyncio

import pytest

from tidegauge.errors import TidegaugeError
from tidegauge_client.admin import Admin
from tidegauge_client.cluster import unknown_topic
from tidegauge_client.zookeeper_port import is_zookeeper


def test_a_topic_of_a_similar_name_is_suggested() -> None:
    assert unknown_topic("oders", ["orders", "payments"]) == (
        "Topic 'oders' does not exist as expected; did you mean orders?"
    )
    assert "`tidegauge list-topics` shows what does" in unknown_topic("x", ["orders"])


async def serving(response: bytes, *, closes: bool = True) -> asyncio.Server:
    """Serve every connection one response, whatever it asks, as ZooKeeper does for a frame that is no request."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await reader.read(100)
        if asked == b"srvr":
            writer.write(response)
            await writer.drain()
        if closes:
            writer.close()

    return await asyncio.start_server(serve, "127.0.0.1", 0)


@pytest.mark.parametrize(
    ("response", "is_its"),
    [
        (b"Zookeeper version: 3.9.3\nMode: standalone\n", True),
        (b"srvr is not executed because it is not in the whitelist.\n", True),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", False),
        (b"", False),
    ],
)
async def test_a_zookeeper_is_known_by_its_response_to_srvr(response: bytes, is_its: bool) -> None:
    async with await serving(response) as server:
        port = server.sockets[0].getsockname()[1]
        assert await is_zookeeper(f"127.0.0.1:{port}") == is_its
    assert not await is_zookeeper("127.0.0.1:x")


async def test_an_address_of_zookeeper_is_called_that() -> None:
    """``-b localhost:2181``: gRPC's first bytes are no request of ZooKeeper, which closes the connection."""
    async with await serving(b"Zookeeper version: 3.9.3\n") as server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(TidegaugeError, match=f"at {address} a ZooKeeper responds: that is its port") as refused:
            async with Admin([address]) as admin:
                await admin.list_topics()
        assert "cannot be reached" not in refused.value.message

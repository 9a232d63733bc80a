"""Faust as a program, see tests/clients/applications.py: SERVERS SOURCE SINK GROUP DIRECTORY copies each record."""

from __future__ import annotations

import sys
from typing import Any

import faust  # type: ignore[import-not-found]  # installed beside it, not in this venv

servers, source, sink, group, directory = sys.argv[1:]
application = faust.App(
    group,
    broker=";".join(f"kafka://{address}" for address in servers.split(",")),
    datadir=directory,
    topic_disable_leader=True,
    value_serializer="raw",
    broker_session_timeout=6.0,
    broker_heartbeat_interval=1.0,
    broker_commit_interval=0.5,
    consumer_auto_offset_reset="earliest",
    producer_acks=-1,
    web_enabled=False,
)
read = application.topic(source, value_type=bytes)
written = application.topic(sink, value_type=bytes)


@application.agent(read)
async def copy(values: Any) -> None:
    """Acknowledge a record once its copy is written."""
    async for value in values:
        await (await written.send(value=value))


sys.argv[1:] = ["worker", "--loglevel", "warn", "--without-web"]
application.main()

"""Quix Streams as a program, see tests/clients/applications.py: SERVERS SOURCE SINK GROUP DIRECTORY.

It writes each record of SOURCE as "number value" to SINK, exactly once; the number comes from a store with a changelog.
"""

from __future__ import annotations

import sys

from quixstreams import Application, State  # type: ignore[import-not-found]  # installed beside it, not in this venv

servers, source, sink, group, directory = sys.argv[1:]
application = Application(
    broker_address=servers,
    consumer_group=group,
    processing_guarantee="exactly-once",
    auto_offset_reset="earliest",
    commit_interval=0.2,
    state_dir=directory,
    consumer_extra_config={"session.timeout.ms": 6000},
    producer_extra_config={"transaction.timeout.ms": 10_000},
)


def numbered(value: str, state: State) -> str:
    """Return the value after its number."""
    number = state.get("next", 0)
    state.set("next", number + 1)
    return f"{number} {value}"


read = application.topic(source, key_deserializer="str", value_deserializer="str")
written = application.topic(sink, key_serializer="str", value_serializer="str")
frame = application.dataframe(read).apply(numbered, stateful=True)
frame.to_topic(written)
application.run()

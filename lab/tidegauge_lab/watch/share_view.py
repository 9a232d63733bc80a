"""Share partitions (KIP-932) to the JSON that the page shows: which record is where. Pure.

Rules:
    1. A share partition is what the leader of its partition has in flight. A broker that takes itself for the leader
       still, and serves it, is shown beside, named.
    2. Of a broker that does not respond nothing is shown: records in flight are in its memory alone.
    3. Nothing that changes with time alone is shown: the page is sent what changed. So it is not said how long a lock
       lasts; ``explain share:G/T-P`` says that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tidegauge.share_groups import NO_START_OFFSET
from tidegauge_client.share_views import KeptShare, LedShare, Records
from tidegauge_lab.watch.facts import BrokerFacts

Json = dict[str, Any]


def shares_of(brokers: Sequence[BrokerFacts], partitions: Mapping[str, Json]) -> dict[str, Json]:
    """Return the share partitions by ``GROUP/T-P``, with a former leader's id behind it.

    Args:
        brokers: with the share partitions that each has.
        partitions: as the page shows them, with leaders.
    """
    kept = {(one.group_id, one.at): one for broker in brokers if broker.shares for one in broker.shares.kept}
    found: dict[str, Json] = {}
    for broker in brokers:
        for led in broker.shares.led if broker.shares is not None else ():
            leads = partitions.get(str(led.at), {}).get("leader") == broker.id
            name = f"{led.group_id}/{led.at}" + ("" if leads else f" at broker {broker.id}")
            found[name] = _share(name, broker.id, led, kept.get((led.group_id, led.at)), leads=leads)
    return dict(sorted(found.items()))


def _share(name: str, broker: int, led: LedShare, kept: KeptShare | None, *, leads: bool) -> Json:
    return {
        "name": name,
        "group": led.group_id,
        "partition": str(led.at),
        "broker": broker,
        "leads": leads,
        "state": led.state,
        "leaderEpoch": led.leader_epoch,
        "start": led.start_offset,
        "end": led.end_offset,
        "readable": led.readable_end,
        "limit": led.delivery_count_limit,
        "records": [_records(one) for one in led.records],
        "hasMore": led.has_more_records,
        "unwritten": led.unwritten_count,
        "durableStart": None if kept is None or kept.start_offset == NO_START_OFFSET else kept.start_offset,
    }


def _records(one: Records) -> Json:
    return {
        "first": one.first_offset,
        "last": one.last_offset,
        "state": one.state,
        "count": one.delivery_count,
        "member": one.member_id or None,
        "writing": one.is_being_written,
    }

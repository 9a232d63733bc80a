"""Puts together what serves the members of share groups at a broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tidegauge.settings import Values
from tidegauge.wall_time import WallTime
from tidegauge_broker.server.replication.replica_manager import ReplicaManager
from tidegauge_broker.server.share.events import Note, ShareEvents
from tidegauge_broker.server.share.fetching import ShareFetches
from tidegauge_broker.server.share.led import Led
from tidegauge_broker.server.share.partitions import LookUp, SharePartitions, States
from tidegauge_broker.server.share.service import ShareService
from tidegauge_broker.share.sessions import ShareSessions
from tidegauge_broker.share.settings import ShareSettings

READ_COMMITTED = "read_committed"


def share_settings(values: Values) -> ShareSettings:
    """Return a group's settings in force as its share partitions need them."""
    return ShareSettings(
        record_lock_duration_ms=values.integer("share.record.lock.duration.ms"),
        delivery_count_limit=values.integer("share.delivery.count.limit"),
        max_record_locks=values.integer("share.partition.max.record.locks"),
        renews_locks=values.flag("share.renew.acknowledge.enable"),
        auto_offset_reset=values.text("share.auto.offset.reset"),
        reads_committed=values.text("share.isolation.level").lower() == READ_COMMITTED,
    )


def share_service(
    replicas: ReplicaManager,
    states: States,
    look_up: LookUp,
    values_of: Callable[[str], Values],
    settings: Values,
    now_ms: Callable[[], int],
    wall: WallTime,
    note: Note,
) -> ShareService:
    """Return what serves the members of share groups.

    Args:
        replicas: of this broker.
        states: the persister of share partitions' states.
        look_up: finds offsets by time, in partitions that this broker leads.
        values_of: returns a group's settings in force.
        settings: the broker's.
        now_ms: a clock that never goes back.
        wall: how far the wall clock is ahead of it.
        note: writes an event into the event log.
    """
    led = Led(replicas)

    def settings_of(group_id: str) -> ShareSettings:
        return share_settings(values_of(group_id))

    events = ShareEvents(note, lambda seconds, call: asyncio.get_running_loop().call_later(seconds, call))
    partitions = SharePartitions(led, states, look_up, settings_of, now_ms, wall, events.changed)
    fetches = ShareFetches(partitions, led, now_ms)
    sessions = ShareSessions(settings.integer("group.share.max.share.sessions"))
    return ShareService(partitions, fetches, sessions, settings_of, led)

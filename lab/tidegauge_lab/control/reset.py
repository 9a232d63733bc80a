"""The cluster as it was before a test: every process up, nothing in force, no topics or groups of the test's.

Rules:
    1. Processes and faults first: later deletions then reach all brokers.
    2. A topic is deleted when no broker knows it and its znodes are removed: only then can its name be used again.
    3. Members of a group are removed, since a client that was killed stays a member until its session times out. A
       client that runs joins again; a group that is not empty after that is refused as what it is.
    4. Internal topics stay.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.files import replace_text
from tidegauge.partition import INTERNAL_TOPICS
from tidegauge_client.admin import Admin
from tidegauge_client.kafka_wire import NoKafkaListener
from tidegauge_lab.control.problems import RefusedError
from tidegauge_lab.control.rules import Faults
from tidegauge_lab.control.znodes import wait_for_deletion
from tidegauge_lab.local import layout
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.local.notes import fields_of, list_of, read_note, text_of
from tidegauge_lab.pytest_plugin.aio import AsyncCluster

_TIMEOUT_MS = 60_000
_REJOIN_SECONDS = 10.0
_AGAIN_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Baseline:
    """The topics and groups that a reset keeps."""

    topics: frozenset[str] = field(default_factory=frozenset)
    groups: frozenset[str] = field(default_factory=frozenset)

    @classmethod
    async def of(cls, admin: Admin) -> Baseline:
        """Return the present topics and groups.

        Raises:
            TidegaugeError: no broker responds.
        """
        topics = await admin.list_topics()
        groups = await _groups_of(admin, topics)
        return cls(frozenset(topics), frozenset(groups))

    def added(self, topics: Iterable[str], groups: Iterable[str]) -> tuple[list[str], list[str]]:
        """Return topics and groups added since, without internal topics (rule 4)."""
        return (
            sorted({*topics} - self.topics - INTERNAL_TOPICS),
            sorted({*groups} - self.groups),
        )


def save_baseline(directory: Path, baseline: Baseline) -> None:
    """Write the baseline to the directory."""
    path = layout.control_process(directory).directory / layout.BASELINE_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    value = {"topics": sorted(baseline.topics), "groups": sorted(baseline.groups)}
    replace_text(path, json.dumps(value))


def load_baseline(directory: Path) -> Baseline | None:
    """Return the noted baseline; None without one, or after a restore.

    Raises:
        TidegaugeError: INVALID_REQUEST, the note is damaged.
    """
    path = layout.control_process(directory).directory / layout.BASELINE_FILE
    return read_note(path, _baseline_of, f"remove {path}, or take the cluster down, which forgets it")


def _baseline_of(value: Any) -> Baseline:
    topics, groups = (frozenset(list_of(one, text_of)) for one in fields_of(value, "topics", "groups"))
    return Baseline(topics, groups)


def forget_baseline(directory: Path) -> None:
    """Delete the noted baseline."""
    (layout.control_process(directory).directory / layout.BASELINE_FILE).unlink(missing_ok=True)


async def _groups_of(admin: Admin, topics: Collection[str]) -> list[str]:
    """Return all groups; none without the internal topic, or access to a listener."""
    if INTERNAL_TOPICS.isdisjoint(topics):
        return []
    try:
        return [one.group_id for one in await admin.list_groups(timeout_ms=_TIMEOUT_MS)]
    except NoKafkaListener:  # all listeners for Kafka clients ask for credentials: the groups stay as they are
        return []


async def reset(local: LocalCluster, baseline: Baseline, faults: Faults, *, with_topics: bool) -> dict[str, Any]:
    """Reset the cluster; return the deleted topics and groups, and the duration.

    Raises:
        TidegaugeError: a process does not start, or a deletion failed.
        RefusedError: 409, groups have members again, since their clients still run.
    """
    began = time.monotonic()
    await AsyncCluster(local, []).restore()
    await faults.delete()  # now that no broker is paused, each can be notified
    deleted: tuple[list[str], list[str]] = ([], [])
    if with_topics:
        async with Admin(local.bootstrap_servers) as admin:
            topics = await admin.list_topics()
            deleted = baseline.added(topics, await _groups_of(admin, topics))
            kept = await asyncio.gather(*(_delete_group(admin, group) for group in deleted[1]))
            await asyncio.gather(*(_delete_topic(admin, topic) for topic in deleted[0]))
        if local.file.quorum is None:  # in KRaft mode a deletion is one record
            await asyncio.to_thread(wait_for_deletion, local.file.zookeeper_address, deleted[0], _TIMEOUT_MS / 1000)
        if left := [group for group, is_kept in zip(deleted[1], kept, strict=True) if is_kept]:
            raise RefusedError(
                409,
                ErrorCode.NON_EMPTY_GROUP.name,
                f"members joined {', '.join(left)} again: close their consumers before the reset; all else is reset",
                groups=left,
            )
    return {
        "topics_deleted": deleted[0],
        "groups_deleted": deleted[1],
        "took_ms": round((time.monotonic() - began) * 1000),
    }


async def _delete_group(admin: Admin, group: str) -> bool:
    """Delete a group with its members; return whether it has members all the same (rule 3)."""
    deadline = time.monotonic() + _REJOIN_SECONDS
    while time.monotonic() < deadline:
        try:
            await admin.delete_group(group, timeout_ms=_TIMEOUT_MS)
            return False
        except TidegaugeError as problem:
            if problem.code is ErrorCode.GROUP_ID_NOT_FOUND:
                return False
            if problem.code is not ErrorCode.NON_EMPTY_GROUP:
                raise
        members = (await admin.describe_group(group, timeout_ms=_TIMEOUT_MS)).members
        if members:
            await admin.remove_members(group, members, timeout_ms=_TIMEOUT_MS)
        await asyncio.sleep(_AGAIN_SECONDS)  # a rebalance without members is about to end
    return True


async def _delete_topic(admin: Admin, topic: str) -> None:
    try:
        await admin.delete_topic(topic, timeout_ms=_TIMEOUT_MS)
    except TidegaugeError as problem:
        if problem.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
    await admin.wait_for_topic_gone(topic, timeout_ms=_TIMEOUT_MS)

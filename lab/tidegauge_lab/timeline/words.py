"""An event in words, and as a line of text that fits 80 columns where names are short. Pure.

``12:30:15.250  broker-1  orders-0  HW 0 -> 20 (Fetch)``: wall clock of the writer, who, which partition, what and why.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, tzinfo

from tidegauge.counted import counted
from tidegauge.merged_offsets import CHANGES
from tidegauge_lab.timeline.choice import Event

SOURCE_WIDTH = 8
PARTITION_WIDTH = 8
NO_LEADER = -1


def line(event: Event, zone: tzinfo | None = None) -> str:
    """Return an event as a line, in a time zone; None: local time."""
    moment = datetime.fromtimestamp(event.get("time_ms", 0) / 1000, zone)
    source = str(event.get("source", "?"))
    about = subject_of(event) or "-"
    return (
        f"{moment:%H:%M:%S}.{moment.microsecond // 1000:03d} {source:<{SOURCE_WIDTH}} {about:<{PARTITION_WIDTH}} "
        f"{sentence(event)}"
    )


def subject_of(event: Event) -> str:
    """Return the group, transactional id or partition of an event, if any."""
    return group_of(event) or transactional_id_of(event) or partition_of(event)


_OF_GROUPS = frozenset({"group", "offsets"})
"""Kinds of events of a consumer group."""
_MAX_NAMED = 5
"""Maximum number of partitions that a line names."""


def group_of(event: Event) -> str:
    """Return the consumer group of an event; empty if it has none."""
    return str(event["group"]) if event.get("kind") in _OF_GROUPS and "group" in event else ""


def transactional_id_of(event: Event) -> str:
    """Return the transactional id of a transaction's event; nothing for any other event."""
    return str(event["transactional_id"]) if event.get("kind") == "transaction" and "transactional_id" in event else ""


def partition_of(event: Event) -> str:
    """``orders-0``, or nothing for an event of no partition."""
    return f"{event['topic']}-{event.get('partition')}" if "topic" in event else ""


def sentence(event: Event) -> str:
    """Return what happened, with its cause and the count of merged changes."""
    cause = event.get("cause")
    if not cause or event.get("kind") in _SELF_EXPLAINING:
        return happening(event)
    return f"{happening(event)} ({', '.join([cause, *_merged(event)])})"


def merged_happening(event: Event) -> str:
    """Return what happened with the count of merged changes, without the cause."""
    return " ".join([happening(event), *(f"({changes})" for changes in _merged(event))])


def _merged(event: Event) -> list[str]:
    """Return how many changes a merged line stands for; nothing for one change."""
    return [counted(event[CHANGES], "change")] if CHANGES in event else []


def whole_sentence(event: Event) -> str:
    """Return what happened at length: with a rebalance's reason, a refusal's topic ids."""
    if event.get("kind") == "refusal" and "own_topic_id" in event:
        return f"{sentence(event)}: topic id {event.get('topic_id')}, this replica's is {event['own_topic_id']}"
    if not group_of(event) or event.get("new") != "PreparingRebalance":
        return sentence(event)
    reason = f": {event['reason']}" if event.get("reason") else ""
    return f"{sentence(event)}, {counted(event.get('members', 0), 'member')}{reason}"


def happening(event: Event) -> str:
    """Return what happened; an unknown kind is described by its fields."""
    words = _WORDS.get(str(event.get("kind")))
    try:
        return str(event.get("kind")) if words is None else words(event)
    except (KeyError, TypeError, ValueError):  # a line of another version, or none that a broker has written
        return str(event.get("kind"))


def ids(brokers: Sequence[int]) -> str:
    """Broker ids as in Kafka's lines."""
    return ",".join(map(str, brokers)) or "none"


def _election(event: Event) -> str:
    leader = "no leader" if event["leader"] == NO_LEADER else event["leader"]
    how = " unclean" if event["strategy"] == "unclean" else ""
    if event["strategy"] == "remove-from-isr":
        return f"shrinks the ISR to {ids(event['isr'])}, epoch {event['leader_epoch']}"
    return f"elects {leader}{how}, epoch {event['leader_epoch']}, ISR {ids(event['isr'])}"


def _reassignment(event: Event) -> str:
    target = ids([replica for replica in event["replicas"] if replica not in event["removing"]])
    match event["state"]:
        case "started":
            return f"reassigns to {target}, now {ids(event['replicas'])}"
        case "replaced":
            return f"reassigns to {target} instead, now {ids(event['replicas'])}"
        case "cancelled":
            return f"cancels the reassignment, back to {target}"
        case "completed":
            return f"reassignment is complete: {target}"
    return f"reassignment {event['state']}"


def _role(event: Event) -> str:
    epoch = event["leader_epoch"]
    match event["role"]:
        case "leader":
            return f"leads, epoch {epoch}"
        case "follower":
            return f"follows broker {event['leader']}, epoch {epoch}"
    return f"{event['role']}, epoch {epoch}"


def _truncation(event: Event) -> str:
    """Return the removed part: the end of a log, or all of it."""
    old, new = event["old"], event["new"]
    if new >= old or (new > 0 and event.get("log_start_offset") == new):
        return f"starts its log again, LEO {old} -> {new}"
    return f"truncates its log {old} -> {new}"


def _isr(event: Event) -> str:
    change = f"ISR {ids(event['old'])} -> {ids(event['new'])}" if event["old"] else f"ISR is {ids(event['new'])}"
    return change if event["state"] == "committed" else f"{change}, {event['state']}"


def _broker(event: Event) -> str:
    state = str(event["state"]).replace("-", " ")
    return f"{state}, broker epoch {event['broker_epoch']}" if event["state"] == "registered" else state


def _controller(event: Event) -> str:
    word = "is the controller" if event["state"] == "elected" else "is no longer the controller"
    return f"{word}, controller epoch {event['controller_epoch']}"


def _offsets(event: Event) -> str:
    partitions = event["partitions"]
    named = ", ".join(partitions[:_MAX_NAMED]) + (", ..." if len(partitions) > _MAX_NAMED else "")
    return f"{counted(len(partitions), 'committed offset')} expired: {named}"


def _group(event: Event) -> str:
    return f"{event['new']}, generation {event['generation']}"


_MAX_RANGES = 2
"""Maximum number of ranges of records that a line names."""


def _share(event: Event) -> str:
    """Return the new states of changed records, or the end of the share partition."""
    group, state = event["group"], event["state"]
    if state != "active":
        return f"share {group}: {_SHARE_STATES.get(state, state)}"
    changed = [_share_records(one) for one in event["changed"]]
    if len(changed) > _MAX_RANGES:
        changed = [*changed[:1], f"{len(changed) - 1} more"]
    else:
        changed.append(f"start {event['start_offset']}")
    return f"share {group}: {', '.join(changed)}"


_SHARE_STATES = {"initializing": "reads its state", "failed": "cannot be loaded", "fenced": "is no longer served here"}


def _share_records(records: Sequence[object]) -> str:
    first, last, state, count, member, is_being_written = records
    offsets = str(first) if first == last else f"{first}-{last}"
    who = f" by {member}" if member is not None and state == "acquired" else ""
    return f"{offsets} {state}" + (f" x{count}" if count else "") + who + (", unwritten" if is_being_written else "")


_LOADED = {"groups": "groups", "transactions": "ids"}
"""A coordinator's loaded items, in words that leave room for the name of the partition."""


def _coordinator(event: Event) -> str:
    what = "transactions" if "transactions" in event else "groups"
    loaded = f", {event[what]} {_LOADED[what]}" if event["state"] == "active" else ""
    return f"{event['state']}, epoch {event['leader_epoch']}{loaded}"


def _transaction(event: Event) -> str:
    return f"{event['new']}, producer epoch {event['producer_epoch']}"


def _fault(event: Event) -> str:
    return f"{event['action']} {str(event.get('process', event.get('broker'))).replace('-', ' ')}"


def _refusal(event: Event) -> str:
    """Return the refused request and the error."""
    if event["request"] == "AlterPartition":
        return f"AlterPartition refused: {event['error']}"
    return f"refuses {event['request']}: {event['error']}"


def _moved(name: str) -> Callable[[Event], str]:
    return lambda event: f"{name} {event['old']} -> {event['new']}"


def _stable(event: Event) -> str:
    """Return the move of the last stable offset, and whether readers are held."""
    old, new, high_watermark = event["old"], event["new"], event["high_watermark"]
    moved = f"LSO {new}" if old == new else f"LSO {old} -> {new}"
    return moved if new == high_watermark else f"{moved}, held below HW {high_watermark}"


def _fencing(event: Event) -> str:
    return f"{'fences' if event['state'] == 'fenced' else 'unfences'} broker {event['broker']}"


def _elr(event: Event) -> str:
    """Return the change of the eligible leader replicas and last leader."""
    last = f", last leader {ids(event['last_known'])}" if event["last_known"] else ""
    return f"ELR {ids(event['old'])} -> {ids(event['new'])}{last}"


def _quorum(event: Event) -> str:
    leader = "" if event["leader"] < 0 or event["state"] == "Leader" else f", leader {event['leader']}"
    return f"{event['state']} in epoch {event['epoch']}{leader}"


_WORDS: dict[str, Callable[[Event], str]] = {
    "broker": _broker,
    "session": lambda event: f"ZooKeeper session {event['state']}",
    "controller": _controller,
    "quorum": _quorum,
    "fencing": _fencing,
    "elr": _elr,
    "election": _election,
    "reassignment": _reassignment,
    "role": _role,
    "epoch": lambda event: f"epoch {event['leader_epoch']} begins at offset {event['start_offset']}",
    "isr": _isr,
    "min_insync_replicas": lambda event: _moved(f"min.insync.replicas of {event['resource']}")(event),
    "high_watermark": _moved("HW"),
    "last_stable_offset": _stable,
    "log_end_offset": _moved("LEO"),
    "truncation": _truncation,
    "log_start_offset": _moved("log start"),
    "coordinator": _coordinator,
    "group": _group,
    "offsets": _offsets,
    "share": _share,
    "transaction": _transaction,
    "refusal": _refusal,
    "fault": _fault,
    "restore": lambda event: f"restores snapshot {event['snapshot']}",
}
_SELF_EXPLAINING = frozenset(
    {
        "broker",
        "controller",
        "elr",
        "fault",
        "fencing",
        "min_insync_replicas",
        "reassignment",
        "refusal",
        "restore",
        "session",
    }
)

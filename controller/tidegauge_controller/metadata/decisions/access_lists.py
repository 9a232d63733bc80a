"""Changes of access control lists: each entry has an id, by which it is removed.

Source: ``AclControlManager``, ``StandardAuthorizer``; KIP-801.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidegauge.cluster_metadata import new_uuid
from tidegauge.cluster_metadata.access_lists import (
    Binding,
    Filter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.kraft.record_types import MetadataRecord
from tidegauge.kafka.metadata_records.remove_access_control_entry_record import RemoveAccessControlEntryRecord
from tidegauge.kafka.topic_ids import topic_id_bytes
from tidegauge_controller.metadata.decisions.entry_index import EntryIndex
from tidegauge_controller.metadata.decisions.placement import Randomness
from tidegauge_controller.metadata.decisions.topic_checks import check_record_count
from tidegauge_controller.metadata.decisions.view import MAX_RECORDS_PER_REQUEST, ClusterView, Decision
from tidegauge_controller.metadata.records import made
from tidegauge_controller.metadata.snapshot import entry_record


def create_entries(
    view: ClusterView, bindings: Sequence[Binding], random: Randomness
) -> Decision[list[TidegaugeError | None]]:
    """Add entries; one that exists is not added again. The response has the outcome of each, in order.

    Raises:
        TidegaugeError: POLICY_VIOLATION, that takes too many records.
    """
    existing = set(view.image.access_lists.values())
    records: list[MetadataRecord] = []
    results: list[TidegaugeError | None] = []
    for binding in bindings:
        results.append(_problem(binding))
        if results[-1] is None and binding not in existing:
            existing.add(binding)
            records.append(entry_record(new_uuid(random.randbytes(16)), binding))
            check_record_count(records)
    return Decision(records, results, atomic=True)


def _problem(binding: Binding) -> TidegaugeError | None:
    """Return why an entry is refused, or None (AclControlManager.validateNewAcl)."""
    pattern, entry = binding
    sentence = None
    if pattern.kind in {ResourceType.UNKNOWN, ResourceType.ANY}:
        sentence = f"Invalid resourceType {pattern.kind.name}"
    elif pattern.pattern_type not in {PatternType.LITERAL, PatternType.PREFIXED}:
        sentence = f"Invalid patternType {pattern.pattern_type.name}"
    elif entry.operation in {Operation.UNKNOWN, Operation.ANY}:
        sentence = f"Invalid operation {entry.operation.name}"
    elif entry.permission not in {Permission.DENY, Permission.ALLOW}:
        sentence = f"Invalid permissionType {entry.permission.name}"
    elif not pattern.name:
        sentence = "Resource name should not be empty"
    elif ":" not in entry.principal:
        sentence = (
            f"Could not parse principal from `{entry.principal}` (no colon is present separating the principal "
            "type from the principal name)"
        )
    return None if sentence is None else TidegaugeError(ErrorCode.INVALID_REQUEST, sentence)


MAX_REPORTED = 100_000
"""Limit of the entries that the response to one DeleteAcls reports, an entry for each filter that matches it."""
DeletionResult = tuple[TidegaugeError | None, list[Binding]]
"""The outcome for one filter: the error, or the entries that it removed."""


def delete_entries(view: ClusterView, filters: Sequence[Filter]) -> Decision[list[DeletionResult]]:
    """Remove the entries that filters match; one that several of them match is reported by each.

    Raises:
        TidegaugeError: POLICY_VIOLATION, they match too many, or together more often than a response may report.
    """
    entries = EntryIndex(view.image.access_lists)
    removed: set[str] = set()
    results: list[DeletionResult] = []
    reported = 0
    for wanted in filters:
        problem = _filter_problem(wanted)
        matched: Mapping[str, Binding] = {} if problem is not None else entries.matching(wanted)
        removed.update(matched)
        results.append((problem, list(matched.values())))
        reported += len(matched)
        if len(removed) > MAX_RECORDS_PER_REQUEST:
            raise TidegaugeError(
                ErrorCode.POLICY_VIOLATION,
                f"Cannot remove more than {MAX_RECORDS_PER_REQUEST} acls in a single delete operation.",
            )
        if reported > MAX_REPORTED:
            raise TidegaugeError(
                ErrorCode.POLICY_VIOLATION,
                f"The filters match more than {MAX_REPORTED} acls, of which each reports its own; send fewer filters.",
            )
    records = [made(RemoveAccessControlEntryRecord(topic_id_bytes(entry_id))) for entry_id in sorted(removed)]
    return Decision(records, results, atomic=True)


def _filter_problem(wanted: Filter) -> TidegaugeError | None:
    if wanted.kind is ResourceType.UNKNOWN or wanted.pattern_type is PatternType.UNKNOWN:
        return TidegaugeError(ErrorCode.INVALID_REQUEST, "Unknown patternFilter.")
    if wanted.operation is Operation.UNKNOWN or wanted.permission is Permission.UNKNOWN:
        return TidegaugeError(ErrorCode.INVALID_REQUEST, "Unknown entryFilter.")
    return None

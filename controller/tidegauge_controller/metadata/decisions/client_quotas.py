"""Changes of client quotas: a record for each key that changes.

Source: ``ClientQuotaControlManager``; KIP-546, KIP-612.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from tidegauge.cluster_metadata.client_quotas import CLIENT_ID, IP, TYPES, USER
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.kraft.record_types import MetadataRecord
from tidegauge.kafka.metadata_records.client_quota_record import ClientQuotaRecord, EntityData
from tidegauge_controller.metadata.decisions.topic_checks import check_record_count
from tidegauge_controller.metadata.decisions.view import ClusterView, Decision
from tidegauge_controller.metadata.image import QuotaKey, quota_entity, quota_key
from tidegauge_controller.metadata.records import made

_FRACTION = 1e-6
_LARGEST = {"INT": 2**31 - 1, "LONG": 2**63 - 1}
_OF_CLIENTS = {
    "producer_byte_rate": "LONG",
    "consumer_byte_rate": "LONG",
    "request_percentage": "DOUBLE",
    "controller_mutation_rate": "DOUBLE",
}
_OF_ADDRESSES = {"connection_creation_rate": "INT"}


class QuotaAlteration(NamedTuple):
    """The alteration of one entity's quotas.

    Attributes:
        entity: pairs of type and name; a name of None is the default.
        values: pairs of key and value; None removes it.
    """

    entity: Sequence[tuple[str, str | None]]
    values: Sequence[tuple[str, float | None]]


def is_address(name: str) -> bool:
    """Return whether a name is an IP address."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def alter_client_quotas(
    view: ClusterView,
    alterations: Sequence[QuotaAlteration],
    is_host: Callable[[str], bool] = is_address,
    *,
    validate_only: bool = False,
) -> Decision[list[TidegaugeError | None]]:
    """Alter the quotas of entities; the response has the outcome of each, in order.

    Args:
        view: of the cluster.
        alterations: in the request's order; an entity that is named again is refused.
        is_host: whether a name is an address or a host's.
        validate_only: check, and change nothing.

    Raises:
        TidegaugeError: POLICY_VIOLATION, that takes too many records.
    """
    records: list[MetadataRecord] = []
    results: list[TidegaugeError | None] = []
    seen: set[QuotaKey] = set()
    for alteration in alterations:
        try:
            records += _altered(view, alteration, seen, is_host)
        except TidegaugeError as problem:
            results.append(problem.with_traceback(None))
        else:
            results.append(None)
            check_record_count(records)
    return Decision([] if validate_only else records, results, atomic=True)


def _refused(sentence: str) -> TidegaugeError:
    return TidegaugeError(ErrorCode.INVALID_REQUEST, sentence)


def _altered(
    view: ClusterView, alteration: QuotaAlteration, seen: set[QuotaKey], is_host: Callable[[str], bool]
) -> list[MetadataRecord]:
    keys: set[str] = set()
    for key, _ in alteration.values:
        if key in keys:
            raise _refused(f"Duplicate quota key {key} not updating quota for this entity {alteration.entity}")
        keys.add(key)
    types = [kind for kind, _ in alteration.entity]
    _check_entity(alteration.entity, types, is_host)
    entity = quota_key(dict(alteration.entity))
    if entity in seen:
        raise _refused(f"Ignoring duplicate entity {dict(alteration.entity)}")
    seen.add(entity)
    legal = _OF_ADDRESSES if IP in types else _OF_CLIENTS
    current: Mapping[str, float] = view.image.quotas.get(entity, {})
    records: list[MetadataRecord] = []
    for name, value in alteration.values:
        if value is not None:
            _check_value(legal, name, value)
        if value != current.get(name):
            parts = [EntityData(kind, of) for kind, of in quota_entity(entity).items()]
            records.append(made(ClientQuotaRecord(parts, name, value or 0.0, remove=value is None)))
    return records


def _check_entity(
    entity: Sequence[tuple[str, str | None]], types: Sequence[str], is_host: Callable[[str], bool]
) -> None:
    if not entity:
        raise _refused("Invalid empty client quota entity")
    for at, (kind, name) in enumerate(entity):
        if kind not in TYPES:
            raise _refused(f"Unhandled client quota entity type: {kind}")
        if kind in types[:at]:
            raise _refused(f"Invalid client quota entity, duplicate entity entry {kind}")
        if name is not None and not name:
            raise _refused(f"Empty {kind} not supported")
    if IP not in types:
        return
    if USER in types or CLIENT_ID in types:
        raise _refused("Invalid quota entity combination, IP entity should not be combined with User or ClientId")
    address = dict(entity)[IP]
    if address is not None and not is_host(address):
        raise _refused(f"{address} is not a valid IP or resolvable host.")


def _check_value(legal: Mapping[str, str], key: str, value: float) -> None:
    kind = legal.get(key)
    if kind is None:
        raise _refused(f"Invalid configuration key {key}")
    if not value > 0:  # a value that is no number, too
        raise _refused(f"Quota {key} must be greater than 0")
    if kind == "DOUBLE":
        return
    if value > _LARGEST[kind]:
        raise _refused(f"Proposed value for {key} is too large for {'an' if kind == 'INT' else 'a'} {kind}.")
    if abs(value % 1.0) > _FRACTION:
        raise _refused(f"{key} cannot be a fractional value.")

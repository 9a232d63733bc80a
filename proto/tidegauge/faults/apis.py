"""The names by which faults name APIs, whichever wire carries the request. Pure.

An API has Kafka's name, and its row (``tidegauge.kafka.apis``) says which RPCs of gRPC do the same. A fault may give
the name of such an RPC instead; what only gRPC has (DescribeReplicas) has that name alone. A follower's fetch is
ReplicaFetch over either protocol: Fetch means consumers'.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidegauge.kafka.apis import APIS, message_class
from tidegauge.kafka.fields import wires_of

GRPC = "gRPC"
KAFKA = "Kafka protocol"
WIRES = (GRPC, KAFKA)
"""The wire protocols that carry requests."""
PRE_VOTE = "PreVote"
"""A Vote whose PreVote field is set: it asks for a promise, not for a vote (KIP-996)."""
FORMER_RPCS = {
    "AddOffsets": "AddOffsetsToTxn",
    "AddPartitions": "AddPartitionsToTxn",
    "CommitOffsets": "OffsetCommit",
    "CommitOffsetsInTransaction": "TxnOffsetCommit",
    "DeleteGroup": "DeleteGroups",
    "DeleteOffsets": "OffsetDelete",
    "DescribeGroup": "DescribeGroups",
    "DescribeTransaction": "DescribeTransactions",
    "EndTransaction": "EndTxn",
    "FetchOffsets": "OffsetFetch",
    "InitTransactions": "InitProducerId",
}
"""RPCs of earlier versions, with their APIs: in rules and scenario files their names mean these still."""
_APIS_OF_RPCS = {rpc: api.name for api in APIS.values() for rpc in api.rpcs} | FORMER_RPCS
_OF_KAFKA_ALONE = frozenset(api.name for api in APIS.values() if not api.rpcs)
_KEYS = {api.name: key for key, api in APIS.items()}


def is_over_grpc(api: str) -> bool:
    """Return whether an RPC of gRPC has this API of Kafka's protocol."""
    return api not in _OF_KAFKA_ALONE


def api_of(rpc: str) -> str:
    """Return the name of the API to which an RPC of gRPC belongs."""
    return _APIS_OF_RPCS.get(rpc, rpc)


def apis_meant(name: str) -> frozenset[str]:
    """Return the APIs that a fault's name means.

    AlterConfigs means two: one of Kafka's APIs, and another one's RPC.
    """
    return frozenset({name, api_of(name)})


def kind_of_id(name: str) -> str:
    """Return the kind of id by which a fault narrows an API's calls.

    AddOffsetsToTxn and TxnOffsetCommit have both: for them it is the group's.

    AddOffsetsToTxn and TxnOffsetCommit name both: there it is the group's.
    """
    key = _KEYS.get(api_of(name))
    fields = set() if key is None else set(_field_names(message_class(key, response=False)))
    names_transaction = any("transactional_id" in field for field in fields)
    return "transactional id" if names_transaction and "group_id" not in fields else "group"


def _field_names(kind: type) -> Iterator[str]:
    for name, wire in wires_of(kind).items():
        yield name
        if isinstance(wire.item, type):
            yield from _field_names(wire.item)

"""Makes ready, before nodes are forked, what each of them would make in its first seconds.

Codecs are compiled at their first use, and the methods of a message are made then (``tidegauge.lazy_dataclasses``):
some 60 ms for a controller, in which its first Vote waits and the election timeout of profile ``fast`` may pass.
"""

from __future__ import annotations

import dataclasses

from tidegauge.kafka.compiler import codec
from tidegauge.kafka.fields import WIRE
from tidegauge.kafka.frames import codec_of
from tidegauge.kafka.kraft import apis
from tidegauge.kafka.kraft.record_types import RECORD_TYPES, record_class

_APIS = (
    *(apis.API_VERSIONS, apis.VOTE, apis.BEGIN_QUORUM_EPOCH, apis.FETCH, apis.DESCRIBE_QUORUM),
    *(apis.CONTROLLER_REGISTRATION, apis.BROKER_REGISTRATION, apis.BROKER_HEARTBEAT),
)
"""The APIs between controllers and brokers until a cluster is ready."""
_RECORDS = (
    "FeatureLevelRecord",
    "NoOpRecord",
    "RegisterControllerRecord",
    "RegisterBrokerRecord",
    "BrokerRegistrationChangeRecord",
)
"""The records of the metadata log until then."""


def warm_up() -> None:
    """Compile these codecs and make the methods of their messages, unless they are made already."""
    for key in _APIS:
        found = codec_of(key, apis.KRAFT_APIS[key].last, apis.KRAFT_PROTOCOL)
        _make_methods(found.request_class)
        _make_methods(found.response_class)
    for kind in RECORD_TYPES.values():
        if kind.message in _RECORDS:
            _make_methods(record_class(kind.key))
            codec(record_class(kind.key), kind.last, True)


def _make_methods(message: type) -> None:
    """Make an object of a message's class and of each class of its fields: each field has a default."""
    message()
    for field in dataclasses.fields(message):
        item = field.metadata[WIRE].item
        if isinstance(item, type):
            _make_methods(item)

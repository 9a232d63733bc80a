"""Records whose keys begin with their type, as Kafka writes them since consumer groups (KIP-848).

A key is its type, an int16, and its fields, never flexible; a value is version 0 and its fields.
Source: CoordinatorRecordSerde; the definitions of the records.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.compiler import codec
from tidegauge_broker.coordinator.record_codec import Record, decoded, encoded, version_of

_TYPE = struct.Struct(">h")
_VALUE_VERSION = 0
MAX_EPOCH = 2**31 - 2**20
"""The highest epoch of a record that is served: it can rise a million times before its field, an int32, ends."""


class RecordKinds:
    """Some types of records.

    Attributes:
        kinds: classes of key and value by type.
    """

    def __init__(self, kinds: Mapping[int, tuple[type[Any], type[Any]]]) -> None:
        self.kinds = kinds
        self._types = {key: number for number, (key, _) in kinds.items()}

    def __contains__(self, number: object) -> bool:
        return number in self.kinds

    def to_bytes(self, key: Any, value: Any) -> Record:
        """Return a record's bytes; a value of None makes a tombstone."""
        kind: type = key.__class__
        encode = codec(kind, 0, False).encode
        assert encode is not None, "no key has record batches inside"
        encoded_key = _TYPE.pack(self._types[kind]) + encode(key)
        return Record(encoded_key, None if value is None else encoded(value, _VALUE_VERSION, flexible=True))

    def read_key(self, key: bytes) -> Any:
        """Return a key of one of these types.

        Raises:
            TidegaugeError: CORRUPT_MESSAGE, the bytes are no such key.
        """
        structure, _ = self.kinds[version_of(key)]
        return decoded(structure, key, 0)

    def read_value(self, key: Any, value: bytes) -> Any:
        """Return the value that belongs to a key.

        Raises:
            TidegaugeError: CORRUPT_MESSAGE, the bytes are no such value.
        """
        _, structure = self.kinds[self._types[key.__class__]]
        version = version_of(value)
        if version != _VALUE_VERSION:
            raise TidegaugeError(ErrorCode.CORRUPT_MESSAGE, f"{structure.__name__} has the unknown version {version}")
        return decoded(structure, value, version, flexible=True)

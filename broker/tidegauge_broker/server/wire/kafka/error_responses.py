"""An error in place of a real response's content, in Kafka's protocol. Pure.

Rules:
    1. The response to a request that only reads is the real one, with the error in it: only that has the names.
    2. An error is set in each item of a real response that has a place for one, else at its top.

``error_forms`` has the responses to requests that are not handled, or fail; ``partial_errors`` the responses in which a
part of the request alone fails.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from tidegauge_broker.server.wire.kafka.error_forms import ERROR_FIELDS

_CLEARED = {"base_offset": -1, "high_watermark": -1, "records": b"", "offset": -1}
"""The values of a partition's result beside an error.

Records are empty as in ``FetchResponse.partitionResponse``, and not null: librdkafka can't read that.
"""


def put(response: Any, error: int, *, top_level: bool = False) -> None:
    """Put an error into a real response; rule 2, or at its top alone if that has a place."""
    if top_level and hasattr(response, "error_code"):
        response.error_code = error
        return
    for item in list(_items(response)) or [response]:
        set_error(item, error)


def has_error(item: Any) -> bool:
    """Return whether a part of a response has a place for an error."""
    return any(hasattr(item, name) for name in ERROR_FIELDS)


def set_error(item: Any, error: int) -> None:
    """Put an error into a part of a response that has a place for it, in place of what it says."""
    if not has_error(item):
        return
    for name, value in {**dict.fromkeys(ERROR_FIELDS, error), **_CLEARED}.items():
        if hasattr(item, name):
            setattr(item, name, value)


def _items(message: Any) -> Iterator[Any]:
    """Yield the outermost parts of a message that have an error code of their own."""
    for field in dataclasses.fields(message):
        value = getattr(message, field.name)
        if isinstance(value, (list, tuple)):
            for part in value:
                if has_error(part):
                    yield part
                elif dataclasses.is_dataclass(part):
                    yield from _items(part)

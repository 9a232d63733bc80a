"""Errors over HTTP: a status, Kafka's or our name of it, a sentence, and the actual state. Pure."""

from __future__ import annotations

from typing import Any

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.files import is_of_a_disk, unusable

_NOT_FOUND = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    ErrorCode.RESOURCE_NOT_FOUND,
}
_MALFORMED = {ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_TOPIC_EXCEPTION}


class RefusedError(Exception):
    """A request that gets another status than 200.

    Attributes:
        status: of HTTP.
        name: of the error.
        more: fields beside ``error`` in the response, such as ``actual``.
    """

    def __init__(self, status: int, name: str, message: str, **more: Any) -> None:
        super().__init__(message)
        self.status = status
        self.name = name
        self.message = message
        self.more = more

    @property
    def body(self) -> dict[str, Any]:
        """The response's JSON."""
        return {"error": {"name": self.name, "message": self.message}, **self.more}


def malformed(message: str) -> RefusedError:
    """Return the refusal of a request that can't be understood."""
    return RefusedError(400, ErrorCode.INVALID_REQUEST.name, message)


def not_found(message: str, name: str = "NOT_FOUND") -> RefusedError:
    """Return the refusal of a request about something that is not there."""
    return RefusedError(404, name, message)


def not_so(message: str, actual: Any) -> RefusedError:
    """Return the refusal of an expired wait, with the actual state."""
    return RefusedError(408, ErrorCode.REQUEST_TIMED_OUT.name, message, actual=actual)


def refused(problem: TidegaugeError) -> RefusedError:
    """Return an error of the cluster as a refusal: 400, 404, 408 or 409."""
    if problem.code in _MALFORMED:
        status = 400
    elif problem.code in _NOT_FOUND:
        status = 404
    else:
        status = 408 if problem.code is ErrorCode.REQUEST_TIMED_OUT else 409
    return RefusedError(status, problem.code.name, problem.message)


def unwritable(problem: OSError) -> RefusedError | None:
    """Return an error of the cluster's disk as a refusal; None: another error."""
    if not is_of_a_disk(problem):
        return None
    sentence = (
        f"{unusable(problem)}; this request has ended half-done. Brokers whose disk is full halt, too: make room, "
        "then POST /v1/reset starts them"
    )
    return RefusedError(409, ErrorCode.KAFKA_STORAGE_ERROR.name, sentence)

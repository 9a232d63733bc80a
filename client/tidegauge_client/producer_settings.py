"""The settings of a producer that depend on one another, checked before anything is contacted (ProducerConfig)."""

from __future__ import annotations

from typing import Literal

from tidegauge.errors import ErrorCode, TidegaugeError

MAX_IN_FLIGHT_WITH_IDEMPOTENCE = 5


def check_idempotence(
    acks: Literal["all", 0, 1, -1], max_in_flight: int, *, is_idempotent: bool, is_transactional: bool
) -> None:
    """Check the settings that idempotence depends on, and those that depend on it.

    Raises:
        TidegaugeError: INVALID_REQUIRED_ACKS, INVALID_CONFIG.
    """
    if acks not in {"all", -1, 0, 1}:
        raise TidegaugeError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks must be all, 1 or 0, not {acks!r}")
    if is_idempotent and acks not in {"all", -1}:
        raise _config("Must set acks to all in order to use the idempotent producer.")
    if is_transactional and not is_idempotent:
        raise _config("Cannot set a transactional_id without also enabling idempotence.")
    if max_in_flight < 1 or (is_idempotent and max_in_flight > MAX_IN_FLIGHT_WITH_IDEMPOTENCE):
        raise _config(f"max_in_flight must be 1 to {MAX_IN_FLIGHT_WITH_IDEMPOTENCE} to use the idempotent producer.")


def check_timeouts(delivery_timeout_ms: float, *, linger_ms: float, request_timeout_ms: float) -> None:
    """Check that a record's time covers one request.

    Raises:
        TidegaugeError: INVALID_CONFIG.
    """
    if delivery_timeout_ms < linger_ms + request_timeout_ms:
        raise _config(
            "delivery.timeout.ms should be equal to or larger than linger.ms + request.timeout.ms "
            f"({delivery_timeout_ms:.0f} < {linger_ms:.0f} + {request_timeout_ms:.0f})"
        )


def _config(sentence: str) -> TidegaugeError:
    return TidegaugeError(ErrorCode.INVALID_CONFIG, sentence)

"""Over what a producer or consumer sends data: Kafka's protocol, or gRPC."""

from __future__ import annotations

from typing import Literal, get_args

from tidegauge.errors import ErrorCode, TidegaugeError

Wire = Literal["kafka", "grpc"]
WIRES: tuple[Wire, ...] = get_args(Wire)


def check_wire(wire: str) -> None:
    """Check the name of a wire.

    Raises:
        TidegaugeError: INVALID_CONFIG.
    """
    if wire not in WIRES:
        raise TidegaugeError(ErrorCode.INVALID_CONFIG, f"wire must be {' or '.join(WIRES)}, not {wire!r}")

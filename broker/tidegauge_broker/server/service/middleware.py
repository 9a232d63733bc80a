"""Wrappers around the requests of the service, once for every wire.

Contract: a broker's service is given its middleware when it is made, outermost last. Each wraps the service's methods
by their names, calls from one method to another included; a method that it leaves alone costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

from tidegauge_broker.server.service.caller import Caller

Responded = Callable[[Caller, str, float, Collection[int]], None]
"""Called by a wire with each response: the caller, Kafka's name of the API, milliseconds since the request's arrival,
and the errors in it. Not for Produce, Fetch and the controller's requests: middleware knows more of them."""


class Middleware(Protocol):
    """Something that happens around the requests of a service: measuring, for example."""

    def around(self, method: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return the wrapper of a service method.

        Args:
            method: its name.
            call: it, or what other middleware has made of it.

        Returns:
            Something that takes the same arguments and returns the same; ``call`` itself to leave it alone.
        """
        ...


def to_all(observers: Sequence[Responded]) -> Responded | None:
    """Return a call of all observers; None without any."""
    if len(observers) < 2:
        return observers[0] if observers else None

    def responded(caller: Caller, api: str, milliseconds: float, errors: Collection[int]) -> None:
        for observer in observers:
            observer(caller, api, milliseconds, errors)

    return responded


def wrap(service: object, middleware: Middleware) -> None:
    """Put middleware around every public method of a service."""
    for name in dir(type(service)):
        attribute = getattr(type(service), name)
        if not name.startswith("_") and callable(attribute):
            call = getattr(service, name)
            wrapped = middleware.around(name, call)
            if wrapped is not call:
                setattr(service, name, wrapped)

"""The broker's service: the one door through which every wire's requests reach the core.

``broker_service`` is the door; the other modules hold the decisions that belong to one request or one connection and
to no wire in particular. The door is imported when it is first asked for, so that those decisions can be read without
it (the page ``play`` runs them in a browser).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidegauge_broker.server.service.broker_service import BrokerService
    from tidegauge_broker.server.service.caller import Caller

__all__ = ["BrokerService", "Caller"]
_MODULES = {"BrokerService": "broker_service", "Caller": "caller"}


def __getattr__(name: str) -> Any:
    """Return a name of ``__all__`` from its module.

    Raises:
        AttributeError: the package has no such name.
    """
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)

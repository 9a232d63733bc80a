"""The broker's service: the one door through which every wire's requests reach the core.

``broker_service`` is the door; the other modules hold the decisions that belong to one request or one connection and
to no wire in particular.
"""

from tidegauge_broker.server.service.broker_service import BrokerService
from tidegauge_broker.server.service.caller import Caller

__all__ = ["BrokerService", "Caller"]

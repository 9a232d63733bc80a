"""The rules by which replicas find where their logs part, one for each step of Kafka's history.

The setting is ``replica.truncation.rule``.
"""

from __future__ import annotations

from tidegauge_broker.replica.rules.high_watermark import HighWatermarkRule
from tidegauge_broker.replica.rules.kip_101 import Kip101Rule
from tidegauge_broker.replica.rules.kip_279 import Kip279Rule
from tidegauge_broker.replica.rules.kip_320 import Kip320Rule
from tidegauge_broker.replica.rules.rule import TruncationRule

__all__ = ["RULES", "TruncationRule", "rule_named"]

RULES: tuple[TruncationRule, ...] = (HighWatermarkRule(), Kip101Rule(), Kip279Rule(), Kip320Rule())
"""All rules, oldest first. They hold no state."""
_BY_NAME = {rule.name: rule for rule in RULES}


def rule_named(name: str) -> TruncationRule:
    """Return the rule with this name.

    Raises:
        KeyError: there is no such rule (the settings' table refuses it before).
    """
    return _BY_NAME[name]

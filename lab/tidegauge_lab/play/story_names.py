"""The name of a scenario's topic on the page ``play``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any


def with_orders(value: Any) -> Any:
    """Return plain values with ``orders-0`` for ``story-0``, the topic of scenarios."""
    if isinstance(value, Mapping):
        return {with_orders(key): with_orders(one) for key, one in value.items()}
    if isinstance(value, list):
        return [with_orders(one) for one in value]
    return f"orders-{value[6:]}" if isinstance(value, str) and re.fullmatch(r"story-\d", value) else value

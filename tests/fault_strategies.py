"""Hypothesis strategies that derive from the declared faults: a parameter that is added there is drawn here."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from hypothesis import strategies as st

from tidegauge.errors import ErrorCode
from tidegauge.faults.model import PLANES, FaultKind, Parameter, WantedFault
from tidegauge.faults.table import FAULTS

ERRORS = [code.name for code in ErrorCode if code is not ErrorCode.NONE]
WORDS = {"rpc": ["Produce", "Fetch", "ReplicaFetch", "LeaderAndIsr"], "grpc_status": ["UNAVAILABLE"], "errno": ["EIO"]}
"""Texts that only the broker can judge."""


def values_of(parameter: Parameter) -> st.SearchStrategy[Any]:
    """Values that the declaration allows."""
    match parameter.kind:
        case "integer":
            return st.integers(parameter.minimum, min(parameter.maximum, 2**40))
        case "number":
            return st.floats(parameter.minimum, parameter.maximum, exclude_min=True)
        case "text":
            return st.sampled_from(WORDS[parameter.name]) if parameter.name in WORDS else st.text("abc-/", min_size=1)
        case "time":
            return st.integers(1, 2**32).map(lambda seconds: datetime.fromtimestamp(seconds, UTC).isoformat())
        case "flag":
            return st.booleans()
        case "choice":
            return st.sampled_from(parameter.choices)
        case "error":
            return st.sampled_from(ERRORS)
        case "peers":
            return st.sampled_from(PLANES) | st.lists(st.integers(0, 9), min_size=1, unique=True)
        case "partition":
            return st.builds("orders-{}".format, st.integers(0, 9))
        case "partitions":
            return st.lists(st.builds("orders-{}".format, st.integers(0, 9)))


@st.composite
def faults(draw: st.DrawFn) -> WantedFault:
    """Any declared fault with at most one of each alternative; a rule over several parameters may still refuse it."""
    kind: FaultKind = draw(st.sampled_from(list(FAULTS.values())))
    values = {}
    for parameter in kind.parameters:
        if parameter.is_required or draw(st.booleans()):
            values[parameter.name] = draw(values_of(parameter))
    for names, _, _ in kind.alternatives:
        kept = draw(st.sampled_from(names))
        values = {name: value for name, value in values.items() if name == kept or name not in names}
    return kind.wanted(values)

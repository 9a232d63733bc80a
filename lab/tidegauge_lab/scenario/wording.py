"""Parts of the sentences of steps. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidegauge.errors import ErrorCode
from tidegauge_client.quorum_file import FIRST_CONTROLLER_ID
from tidegauge_lab.local.roles import Role, RoleKind


def brokers(ids: Sequence[int | Role]) -> str:
    """Return names: ``broker 1``, ``controller 3000``, ``brokers 1 and 0``."""
    named = [one.name for one in ids if isinstance(one, Role) and one.name]
    if len(named) == len(ids) > 1:
        return f"controllers {joined([repr(name) for name in named])}"
    if any(isinstance(one, Role) for one in ids):
        return joined([_role(one) if isinstance(one, Role) else f"broker {one}" for one in ids])
    kind = "controller" if all(isinstance(one, int) and one >= FIRST_CONTROLLER_ID for one in ids) else "broker"
    return f"{kind if len(ids) == 1 else f'{kind}s'} {joined(ids)}"


def _role(role: Role) -> str:
    return str(role) if role.kind in {RoleKind.CONTROLLER, RoleKind.VOTER} else f"the {role}"


def joined(items: Sequence[object]) -> str:
    """Return ``a``, ``a and b``, ``a, b and c``."""
    *others, last = map(str, items)
    return f"{', '.join(others)} and {last}" if others else last


def offsets(by_broker: Mapping[int, int]) -> str:
    """Return offsets in words: ``2 on brokers 1 and 2, 1 on broker 0``."""
    found: dict[int, list[int]] = {}
    for broker, offset in by_broker.items():
        found.setdefault(offset, []).append(broker)
    return ", ".join(f"{offset} on {brokers(ids)}" for offset, ids in found.items())


def refused(error: ErrorCode) -> str:
    """Return how a request is refused; empty for one that is not."""
    return "" if error is ErrorCode.NONE else f", which is refused with {error.name}"


def failing(error: ErrorCode | str) -> str:
    """Return how a call fails; empty for one that succeeds."""
    name = error if isinstance(error, str) else "" if error is ErrorCode.NONE else error.name
    return f", which fails with {name}" if name else ""


def and_expire(brokers_ids: Sequence[object], *, expire: bool) -> str:
    """Return that the memberships of the cluster end too, if they do."""
    if not expire:
        return ""
    return ", and end its membership" if len(brokers_ids) == 1 else ", and end their memberships"

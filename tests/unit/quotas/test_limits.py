"""Which quota holds for a client: Kafka's order of eight levels (ClientQuotaManager.DefaultQuotaCallback)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from tests.examples import examples

from tidegauge_broker.quotas.limits import DEFAULT, Limits, Name, QuotaEntity, Sharers

LEVELS = [
    QuotaEntity("alice", "app"),
    QuotaEntity("alice", DEFAULT),
    QuotaEntity("alice", None),
    QuotaEntity(DEFAULT, "app"),
    QuotaEntity(DEFAULT, DEFAULT),
    QuotaEntity(DEFAULT, None),
    QuotaEntity(None, "app"),
    QuotaEntity(None, DEFAULT),
]


def limits_of(*entities: QuotaEntity) -> Limits:
    """Each entity's limit is its number in the arguments, plus one."""
    limits = Limits()
    for number, entity in enumerate(entities, 1):
        limits.set(entity, number)
    return limits


def held(limits: Limits, user: str, client_id: str) -> float | None:
    return limits.limit(limits.sharers(user, client_id))


@pytest.mark.parametrize("first", range(len(LEVELS)))
def test_the_first_level_that_is_set_holds(first: int) -> None:
    """The order that the comment of ClientQuotaManager gives: the most specific first."""
    assert held(limits_of(*LEVELS[first:]), "alice", "app") == 1
    assert held(limits_of(*reversed(LEVELS[first:])), "alice", "app") == len(LEVELS) - first


@pytest.mark.parametrize(
    ("entity", "shared"),
    [
        (LEVELS[0], Sharers("alice", "app")),
        (LEVELS[1], Sharers("alice", "app")),
        (LEVELS[2], Sharers("alice", "")),
        (LEVELS[3], Sharers("alice", "app")),
        (LEVELS[4], Sharers("alice", "app")),
        (LEVELS[5], Sharers("alice", "")),
        (LEVELS[6], Sharers("", "app")),
        (LEVELS[7], Sharers("", "app")),
    ],
)
def test_who_shares_a_quota(entity: QuotaEntity, shared: Sharers) -> None:
    """All clients of a user share its quota, all users of a client id share that one's, and a pair has its own.

    This holds if this kind of quota is the only one, and beside quotas of other kinds that do not hold for the client.
    """
    assert limits_of(entity).sharers("alice", "app") == shared
    others = [QuotaEntity("bob", None), QuotaEntity("bob", "x"), QuotaEntity(None, "x")]
    assert limits_of(entity, *others).sharers("alice", "app") == shared


def test_a_client_without_a_client_id_has_no_quota_of_client_ids() -> None:
    """DefaultQuotaCallback.quotaLimit looks at a client id only if there is one."""
    assert held(limits_of(QuotaEntity(None, DEFAULT)), "alice", "") is None
    assert held(limits_of(QuotaEntity("alice", DEFAULT), QuotaEntity("alice", None)), "alice", "") == 2


def test_a_removed_limit_holds_no_longer_and_clients_are_measured_all_the_same() -> None:
    """``quotasEnabled`` stays true until the broker's restart."""
    assert not Limits().were_set
    limits = limits_of(QuotaEntity("alice", None))
    assert limits.were_set
    limits.set(QuotaEntity("alice", None), None)
    assert held(limits, "alice", "app") is None
    assert limits.were_set
    assert not limits.entities()


def test_a_kind_of_entity_that_was_altered_counts_though_it_has_no_limit_any_more() -> None:
    """ClientQuotaManager.updateQuota notes the kind before it looks whether the quota is set or removed."""
    limits = limits_of(QuotaEntity("alice", "app"))
    assert limits.sharers("bob", "x") == Sharers("bob", "x")
    limits.set(QuotaEntity(None, "y"), None)
    assert limits.sharers("bob", "x") == Sharers("", "x")


NAMES: st.SearchStrategy[Name] = st.sampled_from(["a", "b", DEFAULT, None])
ENTITIES = st.tuples(NAMES, NAMES).map(lambda pair: QuotaEntity(*pair)).filter(any)


@given(st.lists(ENTITIES, max_size=6), st.sampled_from(["a", "b", "c"]), st.sampled_from(["a", "b", "c"]))
@hypothesis_settings(max_examples=examples(300), deadline=None)
def test_a_twin_that_tries_the_levels_one_after_the_other_finds_the_same(
    entities: list[QuotaEntity], user: str, client_id: str
) -> None:
    limits = limits_of(*entities)
    values = {entity: number for number, entity in enumerate(entities, 1)}
    levels = [QuotaEntity(*level) for level in ((user, client_id), (user, DEFAULT), (user, None))]
    levels += [QuotaEntity(*level) for level in ((DEFAULT, client_id), (DEFAULT, DEFAULT), (DEFAULT, None))]
    levels += [QuotaEntity(None, client_id), QuotaEntity(None, DEFAULT)]
    assert held(limits, user, client_id) == next((values[level] for level in levels if level in values), None)

"""Checks a scenario's expectations: each difference is one sentence with the actual state. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from tidegauge_lab.scenario import facts as show
from tidegauge_lab.scenario.facts import Facts, Replica
from tidegauge_lab.scenario.readers import NO_LEADER, LoggedRecord
from tidegauge_lab.scenario.state_steps import Expect


def differences(
    expect: Expect, facts: Facts, responses: Mapping[str, str], readable: Callable[[], Sequence[str]]
) -> list[str]:
    """Return the differences from the expectation.

    Args:
        expect: the step.
        facts: the actual state.
        responses: of producers, by value.
        readable: asks the leader what consumers may read; called only if the step expects it.
    """
    return [
        *_cluster_differences(expect, facts),
        *_replica_differences(expect, facts),
        *_log_differences(expect, facts),
        *_response_differences(expect, responses),
        *_readable_differences(expect, readable),
    ]


def _cluster_differences(expect: Expect, facts: Facts) -> Iterator[str]:
    if expect.leader is not None and facts.leader != expect.leader:
        yield f"the leader is {show.leader_name(facts.leader)}, not {show.leader_name(expect.leader)}"
    if expect.leader not in {None, NO_LEADER} and expect.leader == facts.leader and not facts.is_led:
        yield says_not(facts.leader)
    if expect.epoch is not None and facts.epoch != expect.epoch:
        yield f"the leader epoch is {facts.epoch}, not {expect.epoch}"
    if expect.isr is not None and set(facts.isr) != set(expect.isr):
        yield f"the ISR is {show.numbers(facts.isr)}, not {show.numbers(expect.isr)}"


def _replica_differences(expect: Expect, facts: Facts) -> Iterator[str]:
    yield from values_differ(facts, "LEO", expect.leo, lambda replica: replica.leo)
    yield from values_differ(facts, "HW", expect.hw, lambda replica: replica.hw)
    yield from values_differ(facts, "LSO", expect.lso, lambda replica: replica.lso)
    if expect.remote_leo is not None:
        leader = facts.replicas.get(facts.leader)
        for broker, wanted in expect.remote_leo.items():
            known = None if leader is None else leader.remote_leos.get(broker)
            if known != wanted:
                yield f"the leader's remote LEO of broker {broker} is {known}, not {wanted}"
    for broker, entries in (expect.epochs or {}).items():
        replica = facts.replicas.get(broker)
        if replica is None:
            yield _silent(broker)
        elif replica.epochs != entries:
            yield f"the epoch cache of broker {broker} is {show.epochs(replica.epochs)}, not {show.epochs(entries)}"


def values_differ(
    facts: Facts, name: str, wanted: Mapping[int, int] | None, read: Callable[[Replica], int]
) -> Iterator[str]:
    """Where a value of some replicas is another than wanted."""
    for broker, value in (wanted or {}).items():
        replica = facts.replicas.get(broker)
        if replica is None:
            yield _silent(broker)
        elif read(replica) != value:
            yield f"the {name} of broker {broker} is {read(replica)}, not {value}"


def says_not(leader: int) -> str:
    """Return the sentence for a leader that is dead or leads in no such epoch."""
    return f"broker {leader} does not say that it leads"


def _silent(broker: int) -> str:
    return f"broker {broker} does not respond, or has no replica"


def _log_differences(expect: Expect, facts: Facts) -> Iterator[str]:
    for broker, wanted in (expect.log or {}).items():
        found = facts.logs.get(broker, ())
        if not same_records(found, wanted):
            yield f"the log of broker {broker} is {show.records(found)}, not {show.records(wanted)}"
    if expect.diverged is not None:
        differing = divergence(facts)
        if expect.diverged and not differing:
            yield "the logs of the in-sync replicas agree below their high watermarks; they were to differ"
        elif differing and not expect.diverged:
            yield differing


def same_records(found: Sequence[LoggedRecord], wanted: Sequence[LoggedRecord]) -> bool:
    """Whether the values are the same, and the epochs if they are wanted."""
    return len(found) == len(wanted) and all(
        one.value == other.value and other.leader_epoch in {None, one.leader_epoch}
        for one, other in zip(found, wanted, strict=True)
    )


def divergence(facts: Facts) -> str:
    """Where in-sync replicas that live hold different records below both high watermarks; empty if they agree."""
    living = [broker for broker in facts.isr if broker in facts.replicas]
    for place, one in enumerate(living):
        for other in living[place + 1 :]:
            committed = min(facts.replicas[one].hw, facts.replicas[other].hw)
            here, there = facts.logs.get(one, ())[:committed], facts.logs.get(other, ())[:committed]
            for offset, (mine, theirs) in enumerate(zip(here, there, strict=False)):
                if mine != theirs:
                    return f"offset {offset} is {mine} on broker {one} and {theirs} on broker {other}, both in the ISR"
    return ""


def _response_differences(expect: Expect, responses: Mapping[str, str]) -> Iterator[str]:
    for value, wanted in (expect.answers or {}).items():
        found = responses.get(value, "none")
        if found != wanted:
            yield f"the response to {value} is {found}, not {wanted}"


def _readable_differences(expect: Expect, readable: Callable[[], Sequence[str]]) -> Iterator[str]:
    if expect.readable is not None:
        found = tuple(readable())
        if found != expect.readable:
            yield f"a consumer reads {', '.join(found) or 'nothing'}, not {', '.join(expect.readable) or 'nothing'}"

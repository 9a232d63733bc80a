"""Random lists and questions, judged by Tidegauge's authorizer and by AclAuthorizer of Apache Kafka 3.9.1.

Each case is a set of lists, super users, ``allow.everyone.if.no.acl.found`` and one question: may this principal at
this host do this with this resource, or (one question in eight) with any resource of a kind. Names share prefixes, so
that literal, prefixed and wildcard patterns overlap; half of the sets have denials. Kafka's class runs without
ZooKeeper (AuthorizerSide.java puts the lists into its cache), from Maven Central; without Maven it says so.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from fetched import Unavailable
from jars import KAFKA, kafka_jars

from tidegauge.cluster_metadata.access_lists import (
    ANYONE,
    WILDCARD,
    Entry,
    Operation,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
)
from tidegauge.java import java_program
from tidegauge.principal import principal_of
from tidegauge_broker.security.acls.authorizer import AclAuthorizer, Rules

SIDE = Path(__file__).parent / "AuthorizerSide.java"
PRINCIPALS = ("User:alice", "User:bob", "User:ANONYMOUS", "Group:alice", "User:CN=x:y")
HOSTS = ("10.0.0.1", "10.0.0.2", "127.0.0.1")
KINDS = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID)
OPERATIONS = tuple(one for one in Operation if one > Operation.ALL)
ALPHABET = "ab."


class Question(NamedTuple):
    """A question to the authorizer; without a name: of any resource of the kind."""

    principal: str
    host: str
    operation: Operation
    kind: ResourceType
    name: str | None


class Case(NamedTuple):
    """Lists, rules and a question."""

    super_users: tuple[str, ...]
    allows_everyone: bool
    lists: tuple[tuple[Pattern, Entry], ...]
    question: Question


def cases(count: int, seed: int) -> Iterator[Case]:
    """Yield random cases."""
    rng = random.Random(seed)
    for _ in range(count):
        kinds = rng.sample(KINDS, rng.randint(1, 2))
        operations = rng.sample(OPERATIONS, rng.randint(1, 4))
        denies = rng.random() < 0.5
        lists = tuple(_entry(rng, kinds, operations, denies=denies) for _ in range(rng.randint(0, 8)))
        users = tuple(rng.sample(PRINCIPALS, 1)) if rng.random() < 0.1 else ()
        kind = rng.choice(kinds)
        name = None if rng.random() < 0.125 else _name(rng)
        question = Question(rng.choice(PRINCIPALS), rng.choice(HOSTS), rng.choice(operations), kind, name)
        yield Case(users, rng.random() < 0.3, lists, question)


def _name(rng: random.Random) -> str:
    return "".join(rng.choice(ALPHABET) for _ in range(rng.randint(1, 4)))


def _entry(
    rng: random.Random, kinds: list[ResourceType], operations: list[Operation], *, denies: bool
) -> tuple[Pattern, Entry]:
    pattern_type = rng.choice([PatternType.LITERAL, PatternType.PREFIXED])
    name = WILDCARD if rng.random() < 0.15 else _name(rng)[: rng.randint(1, 4)]
    pattern = Pattern(rng.choice(kinds), name, pattern_type)
    entry = Entry(
        ANYONE if rng.random() < 0.3 else rng.choice(PRINCIPALS),
        WILDCARD if rng.random() < 0.5 else rng.choice(HOSTS),
        Operation.ALL if rng.random() < 0.2 else rng.choice([*operations, *OPERATIONS]),
        Permission.DENY if denies and rng.random() < 0.3 else Permission.ALLOW,
    )
    return pattern, entry


def ours(case: Case) -> bool:
    """Return what Tidegauge decides."""
    users = ";".join(case.super_users)
    authorizer = AclAuthorizer(Rules.of(users, allows_without_lists=case.allows_everyone))
    for pattern, entry in case.lists:
        authorizer.put(pattern, authorizer.entries(pattern) | {entry})
    asked = case.question
    principal = principal_of(asked.principal)
    if asked.name is None:
        return authorizer.allows_somewhere(principal, asked.host, asked.operation, asked.kind)
    return authorizer.allows(principal, asked.host, asked.operation, asked.kind, asked.name)


def _lines(case: Case) -> Iterator[str]:
    yield f"reset\t{';'.join(case.super_users)}\t{str(case.allows_everyone).lower()}"
    for (kind, name, pattern_type), entry in case.lists:
        of_pattern = ("list", kind.name, name, pattern_type.name)
        of_entry = (entry.principal, entry.host, entry.operation.name, entry.permission.name)
        yield "\t".join((*of_pattern, *of_entry))
    asked = case.question
    words = ("any" if asked.name is None else "may", asked.principal, asked.host, asked.operation.name, asked.kind.name)
    yield "\t".join(words if asked.name is None else (*words, asked.name))


def kafkas(every: list[Case]) -> list[bool]:
    """Return what Kafka's AclAuthorizer decides.

    Raises:
        Unavailable: its jars can't be had.
    """
    command = [java_program(), "-cp", f"{kafka_jars()}/*", str(SIDE)]
    given = "".join(f"{line}\n" for case in every for line in _lines(case))
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"AuthorizerSide failed: {done.stderr[-2000:]}")
    return [line == "1" for line in done.stdout.split()]


def main() -> int:
    """Compare; the exit status is 1 where a decision differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    every = list(cases(options.cases, options.seed))
    try:
        theirs = kafkas(every)
    except Unavailable as problem:
        print(f"Not compared: {problem}")
        return 0
    found = [ours(case) for case in every]
    assert len(found) == len(theirs)
    different = [case for case, left, right in zip(every, found, theirs, strict=True) if left != right]
    print(f"{len(every)} cases, {sum(theirs)} allowed by Kafka {KAFKA}, {len(different)} judged differently")
    for case in different[:5]:
        print("\n".join(_lines(case)), f"-> Tidegauge {ours(case)}\n", sep="\n")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())

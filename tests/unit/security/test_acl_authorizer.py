"""Which request is allowed by which lists: the rules of Kafka's AclAuthorizer, and of its filters."""

from __future__ import annotations

import pytest

from tidegauge.cluster_metadata.access_lists import (
    ANYONE,
    WILDCARD,
    Entry,
    Filter,
    Operation,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
    by_number,
)
from tidegauge.principal import Principal
from tidegauge_broker.security.acls.authorizer import AclAuthorizer, Rules
from tidegauge_broker.server.acls.matching_lists import matching_lists

ALICE = Principal("User", "alice")
HOST = "10.0.0.1"
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE
ALLOW, DENY = Permission.ALLOW, Permission.DENY


def entry(operation: Operation, permission: Permission = ALLOW, who: str = "User:alice", host: str = WILDCARD) -> Entry:
    return Entry(who, host, operation, permission)


def authorizer(lists: dict[str, list[Entry]], rules: Rules = Rules()) -> AclAuthorizer:  # noqa: B008 - immutable
    """Lists of topics; a name that ends in ... is a prefix."""
    made = AclAuthorizer(rules)
    for name, entries in lists.items():
        kind = PatternType.PREFIXED if name.endswith("...") else PatternType.LITERAL
        made.put(Pattern(TOPIC, name.removesuffix("..."), kind), entries)
    return made


def allows(made: AclAuthorizer, operation: Operation = READ, name: str = "orders", who: Principal = ALICE) -> bool:
    return made.allows(who, HOST, operation, TOPIC, name)


def test_without_a_list_the_setting_decides_but_one_entry_of_anyone_is_a_list() -> None:
    """AclAuthorizer.isEmptyAclAndAuthorized."""
    everyone = Rules(allows_without_lists=True)
    assert not allows(authorizer({}))
    assert allows(authorizer({}, everyone))
    assert not allows(authorizer({"orders": [entry(READ, who="User:bob")]}, everyone))
    assert allows(authorizer({"other": [entry(READ, who="User:bob")]}, everyone))


def test_a_super_user_may_do_everything_denied_or_not() -> None:
    rules = Rules.of("User:admin; User:alice", allows_without_lists=False)
    assert allows(authorizer({WILDCARD: [entry(Operation.ALL, DENY, ANYONE)]}, rules))
    assert not Rules.of("  ", allows_without_lists=False).super_users
    with pytest.raises(ValueError, match="principalType:principalName"):
        Rules.of("alice", allows_without_lists=False)


@pytest.mark.parametrize("name", ["orders", WILDCARD, "ord...", "o...", "orders..."])
def test_lists_of_the_name_of_all_names_and_of_prefixes_count(name: str) -> None:
    assert allows(authorizer({name: [entry(READ)]}))
    assert not allows(authorizer({name: [entry(READ)], "orders...": [entry(READ, DENY)]}))


@pytest.mark.parametrize("name", ["order", "orders2", "orders2...", "x...", "Orders"])
def test_lists_of_other_names_do_not_count(name: str) -> None:
    assert not allows(authorizer({name: [entry(READ)]}))


@pytest.mark.parametrize("denied", ["orders", WILDCARD, "o..."])
def test_a_denial_overrules_every_permission(denied: str) -> None:
    for allowed in ("orders", WILDCARD, "ord..."):
        made = authorizer({allowed: [entry(READ)]})
        made.put(
            Pattern(
                TOPIC, denied.removesuffix("..."), PatternType.PREFIXED if "..." in denied else PatternType.LITERAL
            ),
            [entry(Operation.ALL, DENY, ANYONE, HOST), entry(READ)],
        )
        assert not allows(made)


@pytest.mark.parametrize("operation", [READ, WRITE, Operation.DELETE, Operation.ALTER, DESCRIBE, Operation.ALL])
def test_what_is_allowed_implies_describe(operation: Operation) -> None:
    """AclAuthorizer.allowAclExists; a denial implies nothing."""
    assert allows(authorizer({"orders": [entry(operation)]}), DESCRIBE)
    made = authorizer({"orders": [entry(READ, DENY), entry(DESCRIBE)]})
    assert allows(made, DESCRIBE)


def test_altering_settings_implies_describing_them_and_nothing_else_implies() -> None:
    assert allows(authorizer({"orders": [entry(Operation.ALTER_CONFIGS)]}), Operation.DESCRIBE_CONFIGS)
    assert not allows(authorizer({"orders": [entry(Operation.ALTER_CONFIGS)]}), DESCRIBE)
    assert not allows(authorizer({"orders": [entry(Operation.CREATE)]}), DESCRIBE)
    assert not allows(authorizer({"orders": [entry(DESCRIBE)]}), READ)


def test_principal_host_and_kind_of_resource_must_be_the_same() -> None:
    assert not allows(authorizer({"orders": [entry(READ, who="User:bob")]}))
    assert not allows(authorizer({"orders": [entry(READ, who="Group:alice")]}))
    assert not allows(authorizer({"orders": [entry(READ, host="10.0.0.2")]}))
    assert allows(authorizer({"orders": [entry(READ, host=HOST)]}))
    assert not authorizer({"orders": [entry(READ)]}).allows(ALICE, HOST, READ, GROUP, "orders")


def test_a_list_that_is_emptied_is_no_list() -> None:
    made = authorizer({"ord...": [entry(READ)]})
    made.put(Pattern(TOPIC, "ord", PatternType.PREFIXED), [])
    assert not allows(made)
    assert made.patterns() == []
    made.replace({Pattern(TOPIC, "orders"): [entry(READ)], Pattern(TOPIC, "x"): []})
    assert made.patterns() == [Pattern(TOPIC, "orders")]


# Any resource of a kind (KIP-679)


def somewhere(lists: dict[str, list[Entry]], rules: Rules = Rules()) -> bool:  # noqa: B008 - immutable
    return authorizer(lists, rules).allows_somewhere(ALICE, HOST, WRITE, TOPIC)


def test_one_permission_somewhere_is_enough_unless_all_is_denied() -> None:
    """AclAuthorizer.authorizeByResourceType."""
    assert not somewhere({})
    assert somewhere({}, Rules(allows_without_lists=True))
    assert somewhere({"x": [entry(WRITE)]})
    assert somewhere({"x...": [entry(Operation.ALL)]})
    assert not somewhere({"x": [entry(READ)]})
    assert not somewhere({"x": [entry(WRITE)], WILDCARD: [entry(WRITE, DENY)]})
    assert not somewhere({WILDCARD: [entry(WRITE, DENY)]}, Rules(allows_without_lists=True))


def test_a_denial_takes_what_it_covers_and_no_more() -> None:
    assert not somewhere({"x": [entry(WRITE), entry(WRITE, DENY)]})
    assert not somewhere({"xyz": [entry(WRITE)], "xy...": [entry(WRITE, DENY)]})
    assert not somewhere({"xyz...": [entry(WRITE)], "xy...": [entry(WRITE, DENY)]})
    assert somewhere({"x...": [entry(WRITE)], "xy...": [entry(WRITE, DENY)]})
    assert somewhere({WILDCARD: [entry(WRITE)], "x...": [entry(WRITE, DENY)]})


# Filters


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (Filter(), {"orders", "ord", "*"}),
        (Filter(GROUP), set()),
        (Filter(TOPIC, "orders", PatternType.LITERAL), {"orders"}),
        (Filter(TOPIC, "ord", PatternType.PREFIXED), {"ord"}),
        (Filter(TOPIC, None, PatternType.PREFIXED), {"ord"}),
        (Filter(TOPIC, "ord", PatternType.ANY), {"ord"}),
        (Filter(TOPIC, "orders", PatternType.MATCH), {"orders", "ord", "*"}),
        (Filter(TOPIC, "ordinary", PatternType.MATCH), {"ord", "*"}),
        (Filter(principal="User:bob"), {"ord"}),
        (Filter(operation=WRITE, permission=DENY), {"*"}),
        (Filter(host=HOST), {"*"}),
    ],
)
async def test_filters_find_what_kafkas_find(wanted: Filter, found: set[str]) -> None:
    """ResourcePatternFilter.matches, AccessControlEntryFilter.matches."""
    made = authorizer(
        {"orders": [entry(READ)], "ord...": [entry(READ, who="User:bob")], WILDCARD: [entry(WRITE, DENY, host=HOST)]}
    )
    assert {pattern.name async for pattern, _ in matching_lists(made, wanted)} == found


def test_numbers_that_are_not_known_are_unknown() -> None:
    assert by_number(Operation, 3) is READ
    assert by_number(Operation, 99) is Operation.UNKNOWN
    assert str(Pattern(ResourceType.TRANSACTIONAL_ID, "t")) == "TransactionalId:LITERAL:t"


@pytest.mark.parametrize("written", ["::1", "0:0:0:0:0:0:0:1", "0::1"])
def test_an_ipv6_host_is_the_same_however_an_entry_writes_it(written: str) -> None:
    """Callers have Java's form (InetAddress.getHostAddress); a denial that was stored in another one holds too."""
    made = authorizer({"orders": [entry(READ), entry(READ, DENY, host=written)]})
    assert not made.allows(ALICE, "0:0:0:0:0:0:0:1", READ, TOPIC, "orders")
    assert made.allows(ALICE, "0:0:0:0:0:0:0:2", READ, TOPIC, "orders")
    only = authorizer({"orders": [entry(READ, host=written)]})
    assert only.allows_somewhere(ALICE, "0:0:0:0:0:0:0:1", READ, TOPIC)

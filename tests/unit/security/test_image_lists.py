"""Lists that follow images by their differences, and filters that look at few entries, equal what looks at all."""

from __future__ import annotations

from random import Random

import pytest

from tidegauge.cluster_metadata.access_lists import (
    Binding,
    Entry,
    Filter,
    Operation,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
)
from tidegauge_broker.security.acls.authorizer import AclAuthorizer, Rules
from tidegauge_broker.server.acls.image_lists import ImageLists
from tidegauge_controller.metadata.decisions.entry_index import EntryIndex
from tidegauge_controller.metadata.sorted_map import REMOVED, SortedMap

NAMES = ("a", "ab", "abc", "b", "*")
KINDS = (ResourceType.TOPIC, ResourceType.GROUP)
PRINCIPALS, HOSTS = ("User:a", "User:b", "User:*"), ("*", "h")


def some_binding(dice: Random) -> Binding:
    pattern = Pattern(dice.choice(KINDS), dice.choice(NAMES), dice.choice([PatternType.LITERAL, PatternType.PREFIXED]))
    operation = dice.choice([Operation.READ, Operation.WRITE])
    return Binding(
        pattern, Entry(dice.choice(PRINCIPALS), dice.choice(HOSTS), operation, dice.choice(list(Permission)[2:]))
    )


def some_filter(dice: Random) -> Filter:
    return Filter(
        dice.choice([ResourceType.ANY, *KINDS]),
        dice.choice([None, *NAMES, "abcd", "c"]),
        dice.choice([PatternType.ANY, PatternType.MATCH, PatternType.LITERAL, PatternType.PREFIXED]),
        dice.choice([None, *PRINCIPALS, "User:c"]),
        dice.choice([None, *HOSTS, "i"]),
        dice.choice([Operation.ANY, Operation.READ]),
        dice.choice([Permission.ANY, Permission.ALLOW]),
    )


@pytest.mark.parametrize("seed", range(20))
def test_filters_match_by_the_index_what_they_match_among_all(seed: int) -> None:
    dice = Random(seed)
    entries = {f"{number:03}": some_binding(dice) for number in range(60)}
    index = EntryIndex(entries)
    for wanted in [some_filter(dice) for _ in range(200)]:
        all_matching = {
            key: one
            for key, one in entries.items()
            if wanted.matches_pattern(one.pattern) and wanted.matches_entry(one.entry)
        }
        assert list(index.matching(wanted).items()) == list(all_matching.items()), wanted


class Counted(dict[str, Binding]):
    """Entries that count how often they are walked over."""

    walks = 0

    def items(self):  # type: ignore[no-untyped-def]
        self.walks += 1
        return super().items()


def test_thousands_of_filters_walk_over_the_entries_once() -> None:
    """99,000 filters over 10,000 entries would take the controller's queue for minutes (DeleteAcls)."""
    dice = Random(1)
    entries = Counted({f"{number:03}": some_binding(dice) for number in range(60)})
    index = EntryIndex(entries)
    for number in range(1000):
        assert not index.matching(Filter(name=f"n{number}"))
        assert not index.matching(Filter(name=f"n{number}", pattern_type=PatternType.LITERAL))
        assert not index.matching(Filter(principal=f"User:{number}"))
        assert index.matching(Filter(operation=Operation.READ))
    assert entries.walks == 1


@pytest.mark.parametrize("seed", range(20))
def test_lists_that_follow_images_equal_lists_made_from_the_image(seed: int) -> None:
    """An entry that is removed under one id and added under another one stays."""
    dice = Random(seed)
    lists = ImageLists(AclAuthorizer(Rules()))
    image: SortedMap[str, Binding] = SortedMap()
    for _ in range(30):
        here = {binding: key for key, binding in image.items()}
        changes: dict[str, object] = {}
        for _ in range(dice.randrange(4)):
            binding = some_binding(dice)
            if binding in here:  # the controller never writes an entry twice
                changes[here.pop(binding)] = REMOVED
                if dice.random() < 0.5:
                    changes[f"{dice.randrange(10**6):06}"] = binding
            elif binding not in changes.values():
                changes[f"{dice.randrange(10**6):06}"] = binding
        image = image.updated(changes)  # type: ignore[arg-type]
        lists.follow(image)
        whole = AclAuthorizer(Rules())
        found: dict[Pattern, set[Entry]] = {}
        for pattern, entry in image.values():
            found.setdefault(pattern, set()).add(entry)
        whole.replace(found)
        assert {one: lists.authorizer.entries(one) for one in lists.authorizer.patterns()} == {
            one: whole.entries(one) for one in whole.patterns()
        }
        assert lists.authorizer._prefixes == whole._prefixes


def many(count: int, first: int = 0) -> SortedMap[str, Binding]:
    """Return lists with one entry for each of many topics."""
    entry = Entry("User:a", "*", Operation.READ, Permission.ALLOW)
    return SortedMap(
        {f"{one:06}": Binding(Pattern(ResourceType.TOPIC, f"t{one}"), entry) for one in range(first, first + count)}
    )


async def test_a_large_step_of_the_lists_is_taken_in_a_thread_and_a_small_one_at_once() -> None:
    """40,000 new entries would hold the event loop of a controller for 150 ms."""
    lists = ImageLists(AclAuthorizer(Rules()))
    assert lists.follow_beside(first := many(3_000)) is None, "nothing may be judged before the first lists"
    assert len(lists.authorizer.lists()) == 3_000
    assert lists.follow_beside(few := first.updated({"000001": REMOVED})) is None
    assert len(lists.authorizer.lists()) == 2_999

    beside = lists.follow_beside(much := many(9_000))
    assert beside is not None
    assert lists.follow_beside(few) in {beside, None}
    await beside
    assert lists.follow_beside(much) is None
    assert len(lists.authorizer.patterns()) == 9_000


def test_without_an_event_loop_the_thread_takes_the_step_itself() -> None:
    """A large request is judged in a thread (``large_requests.prepared``)."""
    lists = ImageLists(AclAuthorizer(Rules()))
    with pytest.raises(RuntimeError):
        lists.follow_beside(many(1))
    lists.follow(many(1))
    assert lists.follow_beside(lists._taken) is None

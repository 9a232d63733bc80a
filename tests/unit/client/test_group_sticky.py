"""The assignor cooperative-sticky, and the consumer that goes on reading while its group rebalances (KIP-429)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge_client.group.assignors import assign, is_cooperative
from tidegauge_client.group.consumer_protocol import MemberSubscription, encode_assignment
from tidegauge_client.group.effects import Generation, PrepareJoin, TakeAssignment
from tidegauge_client.group.group_consumer import GroupConsumer
from tidegauge_client.group.listener import Partitions, RebalanceListener
from tidegauge_client.group.sticky import user_data

PROTOCOL = "cooperative-sticky"


def at(*names: str) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(name[0], int(name[1:])) for name in names)


def has(*owned: str, topics: tuple[str, ...] = ("t",), generation: int = 1, **fields: object) -> MemberSubscription:
    return MemberSubscription(topics, owned=at(*owned), generation=generation, **fields)  # type: ignore[arg-type]


def assigned(partitions: Mapping[str, int], **members: MemberSubscription) -> dict[str, list[str]]:
    found = assign(PROTOCOL, partitions, members)
    return {member: [f"{one.topic}{one.partition}" for one in given_out] for member, given_out in found.items()}


def test_members_keep_what_they_have_though_another_order_would_be_as_equal() -> None:
    assert assigned({"t": 4}, a=has("t1", "t3"), b=has("t0", "t2")) == {"a": ["t1", "t3"], "b": ["t0", "t2"]}


def test_a_partition_that_moves_has_no_reader_until_it_is_given_up() -> None:
    """CooperativeStickyAssignor.adjustAssignment: two rebalances, and no reader of t2 or t3 between them."""
    assert assigned({"t": 4}, a=has("t0", "t1", "t2", "t3"), b=has()) == {"a": ["t0", "t1"], "b": []}
    assert assigned({"t": 4}, a=has("t0", "t1"), b=has(generation=2)) == {"a": ["t0", "t1"], "b": ["t2", "t3"]}


def test_no_more_moves_than_are_needed() -> None:
    members = {"a": has("t0", "t1", "t2", "t3"), "b": has("t4", "t5", "t6", "t7"), "c": has()}
    assert assigned({"t": 8}, **members) == {"a": ["t0", "t1", "t2"], "b": ["t4", "t5", "t6"], "c": []}


def test_what_a_lost_member_had_is_dealt_to_those_with_the_fewest() -> None:
    assert assigned({"t": 6}, a=has("t0", "t1"), b=has("t5")) == {"a": ["t0", "t1", "t3"], "b": ["t2", "t4", "t5"]}


def test_of_two_claims_the_newer_generation_counts_and_equal_ones_cancel_each_other() -> None:
    """AbstractStickyAssignor.allSubscriptionsEqual: a member that was away claims what others have by now."""
    assert assigned({"t": 2}, a=has("t0", generation=3), b=has("t0", generation=5)) == {"a": ["t1"], "b": ["t0"]}
    assert assigned({"t": 2}, a=has("t0"), b=has("t0"))["a"] in ([], ["t1"])
    assert "t0" not in {name for found in assigned({"t": 2}, a=has("t0"), b=has("t0")).values() for name in found}


def test_a_subscription_of_version_1_has_its_generation_in_the_data_of_the_assignor() -> None:
    old = has("t0", generation=-1, user_data=user_data(5))
    assert assigned({"t": 2}, a=has("t0", generation=3), b=old) == {"a": ["t1"], "b": ["t0"]}


def test_a_partition_of_a_topic_that_is_no_longer_subscribed_to_goes_to_another_when_it_is_given_up() -> None:
    claims = has("t0", "u0", topics=("t",))
    assert assigned({"t": 1, "u": 1}, a=claims, b=has(topics=("t", "u"))) == {"a": ["t0"], "b": []}
    assert assigned({"t": 1, "u": 1}, a=has("t0"), b=has(topics=("t", "u"))) == {"a": ["t0"], "b": ["u0"]}


def test_members_are_cooperative_if_all_their_assignors_are() -> None:
    """ConsumerCoordinator: the highest protocol that every assignor supports; so a group changes over in two rounds."""
    assert is_cooperative([PROTOCOL])
    assert not is_cooperative([PROTOCOL, "range"])
    assert not is_cooperative(["range"])


_TOPICS = st.dictionaries(st.sampled_from("tuv"), st.integers(1, 7), min_size=1)
_WANTED = st.dictionaries(st.sampled_from("abcd"), st.sets(st.sampled_from("tuv")), min_size=1)


_ROUNDS_AT_MOST = 6


@given(_TOPICS, st.lists(_WANTED, min_size=1, max_size=4))
@example({"t": 1, "u": 2, "v": 3}, [{"a": {*"tuv"}}, {"a": {*"tuv"}, "b": {*"tu"}, "c": {*"tv"}}])
def test_over_any_changes_of_members_each_partition_has_one_reader_and_what_moves_pauses(
    topics: dict[str, int], rounds: list[dict[str, set[str]]]
) -> None:
    """Rebalances as members have them: nothing changes hands in one round; further ones give out the rest.

    Where all subscribe to the same the second round is the last; else that round may balance further.
    """
    owned: dict[str, list[TopicPartition]] = {}
    for members in rounds:
        complete = {TopicPartition(name, n) for name in topics for n in range(topics[name])}
        wanted_by_any = set().union(*members.values())
        wanted_partitions = {one for one in complete if one.topic in wanted_by_any}
        are_alike = len({frozenset(wanted) for wanted in members.values()}) == 1
        given_out: list[TopicPartition] = []
        for number in range(1, 3 if are_alike else _ROUNDS_AT_MOST + 1):
            if number > 2 and set(given_out) == wanted_partitions:
                break
            before: dict[str, list[TopicPartition]] = {member: [*owned.get(member, [])] for member in members}
            subscriptions = {
                member: MemberSubscription(tuple(sorted(wanted)), None, tuple(before[member]), number)
                for member, wanted in members.items()
            }
            owned = assign(PROTOCOL, topics, subscriptions)
            given_out = [one for member in members for one in owned[member]]
            assert len(given_out) == len(set(given_out)), "one reader"
            for member, found in owned.items():
                others = {one for other, had in before.items() if other != member for one in had}
                assert not set(found) & others, "nothing is taken from one and given to another at once"
        assert set(given_out) == wanted_partitions, "after the last round"
        for member, wanted in members.items():
            for other, others_wanted in members.items():
                if wanted == others_wanted and len(members) == 2:
                    assert abs(len(owned[member]) - len(owned[other])) <= 1


class Journal(RebalanceListener):
    """Notes its calls."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, list[TopicPartition]]] = []

    def on_partitions_assigned(self, partitions: Partitions) -> None:
        self.lines.append(("assigned", list(partitions)))

    def on_partitions_revoked(self, partitions: Partitions) -> None:
        self.lines.append(("revoked", list(partitions)))

    def on_partitions_lost(self, partitions: Partitions) -> None:
        self.lines.append(("lost", list(partitions)))


class Driven(GroupConsumer):
    """A consumer whose membership a test drives."""

    def __init__(self, *strategies: str) -> None:
        super().__init__("127.0.0.1:1", "g", partition_assignment_strategy=strategies, enable_auto_commit=False)
        self.journal = Journal()
        self._listener = self.journal
        self._member.topics = frozenset({"t"})

    async def takes(self, generation: int, *names: str) -> None:
        self._membership.is_rejoin_needed = False
        self._membership.generation = Generation(generation, "m", PROTOCOL)
        await self._take_assignment(TakeAssignment(self._membership.generation, encode_assignment(at(*names))))

    async def prepares(self, *, is_lost: bool = False) -> None:
        await self._prepare_join(PrepareJoin(is_lost), float("inf"))

    async def preparations(self) -> list[PrepareJoin]:
        """Prepare until JoinGroup may be sent; return the rounds that it took."""
        self._membership.coordinator = "127.0.0.1:1"
        self._membership.request_rejoin("because")
        rounds = []
        while isinstance(effect := self._membership.poll_effects(0)[0], PrepareJoin):
            rounds.append(effect)
            await self._prepare_join(effect, float("inf"))
        return rounds

    @property
    def rejoins(self) -> bool:
        return self._membership.is_rejoin_needed

    def subscriptions(self) -> Sequence[bytes]:
        return list(self._member._subscriptions(self._membership.generation.number).values())

    def forget_topics(self, *topics: str) -> None:
        self._member.topics = frozenset(topics)

    def reset(self) -> None:
        self._membership.heartbeat_done(self._membership.generation, ErrorCode.UNKNOWN_MEMBER_ID, "", 0)


async def test_only_what_moves_is_revoked_and_the_member_joins_again_for_what_comes_in_exchange() -> None:
    """ConsumerCoordinator.onJoinPrepare and onJoinComplete, COOPERATIVE."""
    consumer = Driven(PROTOCOL)
    await consumer.takes(1, "t0", "t1")
    assert not consumer.rejoins
    await consumer.prepares()
    assert consumer.assignment() == list(at("t0", "t1")), "it reads on"
    await consumer.takes(2, "t1", "t2")
    assert consumer.journal.lines == [
        ("assigned", list(at("t0", "t1"))),
        ("revoked", list(at("t0"))),
        ("assigned", list(at("t2"))),
    ]
    assert consumer.rejoins
    assert sorted(consumer.assignment()) == list(at("t1", "t2"))


async def test_an_eager_member_gives_all_up_before_it_joins() -> None:
    for strategies in (("range",), (PROTOCOL, "range")):
        consumer = Driven(*strategies)
        await consumer.takes(1, "t0", "t1")
        await consumer.prepares()
        assert consumer.assignment() == []
        await consumer.takes(2, "t1", "t2")
        assert not consumer.rejoins
        assert consumer.journal.lines[1:] == [("revoked", list(at("t0", "t1"))), ("assigned", list(at("t1", "t2")))]


async def test_a_cooperative_member_loses_all_when_it_was_removed_also_while_its_listener_works() -> None:
    consumer = Driven(PROTOCOL)
    await consumer.takes(1, "t0", "t1")
    await consumer.prepares(is_lost=True)
    assert consumer.journal.lines[1:] == [("lost", list(at("t0", "t1")))]
    assert consumer.assignment() == []

    slow = Driven(PROTOCOL)
    slow.forget_topics("t", "u")
    await slow.takes(1, "t0", "u0")
    slow.forget_topics("t")
    slow.journal.on_partitions_revoked = lambda _: slow.reset()  # type: ignore[method-assign]
    assert await slow.preparations() == [PrepareJoin(is_lost=False), PrepareJoin(is_lost=True)]
    assert slow.journal.lines[-1] == ("lost", list(at("t0")))
    assert slow.assignment() == []


async def test_what_is_not_subscribed_to_any_more_is_revoked_before_the_join() -> None:
    consumer = Driven(PROTOCOL)
    await consumer.takes(1, "t0")
    consumer.forget_topics("u")
    await consumer.prepares()
    assert consumer.journal.lines[-1] == ("revoked", list(at("t0")))
    assert consumer.assignment() == []


async def test_a_member_tells_what_it_has_and_since_which_generation() -> None:
    """ConsumerProtocolSubscription of version 3, as the Java consumer with CooperativeStickyAssignor writes it."""
    consumer = Driven(PROTOCOL, "range")
    await consumer.takes(7, "t0", "t1")
    owned = "00000001 000174 00000002 00000000 00000001"
    sticky, plain = (one.hex(" ") for one in consumer.subscriptions())
    common = "0003 00000001 000174 {} " + owned + " 00000007 ffff"
    assert bytes.fromhex(sticky) == bytes.fromhex(common.format("00000004 00000007"))
    assert bytes.fromhex(plain) == bytes.fromhex(common.format("ffffffff"))


async def test_a_listener_that_fails_leaves_the_assignment_taken() -> None:
    consumer = Driven(PROTOCOL)
    await consumer.takes(1, "t0", "t1")

    def fail(_: Partitions) -> None:
        raise RuntimeError("listener")

    consumer.journal.on_partitions_revoked = fail  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="listener"):
        await consumer.takes(2, "t1", "t2")
    assert sorted(consumer.assignment()) == list(at("t1", "t2"))
    assert consumer.journal.lines[-1] == ("assigned", list(at("t2")))

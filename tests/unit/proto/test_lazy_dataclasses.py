"""A lazy dataclass is a dataclass: each fact below is asked of both kinds, from one definition."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from dataclasses import field
from typing import Any, ClassVar

import pytest

from tidegauge import lazy_dataclasses

Decorate = Callable[..., Any]
KINDS = [lazy_dataclasses.dataclass, dataclasses.dataclass]


@lazy_dataclasses.dataclass(frozen=True)
class Kept:
    """Frozen, and found by its name, so that it can be pickled."""

    topic: str
    partition: int = 0


@lazy_dataclasses.dataclass
class Bare:
    value: int = 0


def span_of(dataclass: Decorate, **options: bool) -> Any:
    """Return a class with a default, factory, constant and check."""

    @dataclass(slots=True, **options)
    class Span:
        """From one offset to another."""

        LIMIT: ClassVar[int] = 100

        first: int
        end: int = 10
        readers: list[str] = field(default_factory=list, compare=False)

        def __post_init__(self) -> None:
            if self.first > self.end:
                raise ValueError(f"{self.first} lies behind {self.end}")

        def __len__(self) -> int:
            return self.end - self.first

    return Span


@pytest.fixture(params=KINDS, ids=["lazy", "standard"])
def kind(request: pytest.FixtureRequest) -> Decorate:
    """Return one decorator, then the other."""
    decorate: Decorate = request.param
    return decorate


def test_arguments_by_position_and_name_and_defaults(kind: Decorate) -> None:
    span = span_of(kind)
    assert (span(3).first, span(3).end, span(end=9, first=2).end, len(span(4, 7))) == (3, 10, 9, 3)
    assert span(1).readers is not span(1).readers


def test_a_wrong_argument_is_a_type_error_before_and_after_the_first_object(kind: Decorate) -> None:
    span = span_of(kind)
    for _ in range(2):
        with pytest.raises(TypeError, match="unexpected keyword argument 'last'"):
            span(0, last=3)
    span(0)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'first'"):
        span()


def test_its_own_check_runs(kind: Decorate) -> None:
    with pytest.raises(ValueError, match="11 lies behind 10"):
        span_of(kind)(11)


def test_equality_and_text(kind: Decorate) -> None:
    span, other = span_of(kind), span_of(kind)
    assert span(1, readers=["a"]) == span(1)
    assert span(1) != span(2)
    assert span(1) != other(1)
    assert span(1) != (1, 10)
    assert repr(span(1)).endswith("Span(first=1, end=10, readers=[])")


def test_a_class_that_can_change_has_no_hash(kind: Decorate) -> None:
    with pytest.raises(TypeError, match="unhashable type: 'Span'"):
        hash(span_of(kind)(1))


def test_a_hash_asked_first_is_that_of_equal_objects(kind: Decorate) -> None:
    span = span_of(kind, frozen=True)
    assert {span(1), span(1), span(2)} == {span(2), span(1)}


def test_a_frozen_object_refuses_changes_and_others_take_them(kind: Decorate) -> None:
    kept, free = span_of(kind, frozen=True)(1), span_of(kind)(1)
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'first'"):
        kept.first = 2
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'first'"):
        del kept.first
    free.first = 2
    assert (kept.first, free.first) == (1, 2)
    with pytest.raises(AttributeError):
        free.unknown = 1


def test_without_eq_only_the_same_object_is_equal(kind: Decorate) -> None:
    span = span_of(kind, eq=False)
    one = span(1)
    assert one == one  # noqa: PLR0124
    assert one != span(1)
    assert len({one, span(1)}) == 2


def test_fields_by_name_only(kind: Decorate) -> None:
    span = span_of(kind, kw_only=True)
    assert span(first=1).end == 10
    with pytest.raises(TypeError, match="takes 1 positional argument"):
        span(1)


def test_the_functions_of_dataclasses_take_it(kind: Decorate) -> None:
    span = span_of(kind, frozen=True)
    assert [one.name for one in dataclasses.fields(span)] == ["first", "end", "readers"]
    assert dataclasses.replace(span(1), end=5) == span(1, 5)
    assert dataclasses.asdict(span(1)) == {"first": 1, "end": 10, "readers": []}
    assert span.__match_args__ == ("first", "end", "readers")
    assert span.__doc__ == "From one offset to another."


def test_methods_that_the_class_defines_stay(kind: Decorate) -> None:
    @kind(slots=True, frozen=True)
    class Named:
        name: str

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Named) and self.name.lower() == other.name.lower()

        def __hash__(self) -> int:
            return hash(self.name.lower())

        def __repr__(self) -> str:
            return f"<{self.name}>"

    assert {Named("A"), Named("a")} == {Named("A")}
    assert repr(Named("A")) == "<A>"


def test_an_equality_of_its_own_leaves_the_hash_to_the_fields(kind: Decorate) -> None:
    @kind(slots=True, frozen=True)
    class Named:  # noqa: PLW1641
        name: str

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Named)

    assert hash(Named("A")) == hash(Named("A"))
    assert Named("A") == Named("B")


def test_a_class_that_inherits_has_both_kinds_of_fields(kind: Decorate) -> None:
    @kind(slots=True, frozen=True)
    class Request:
        cluster: str

    @kind(slots=True, frozen=True)
    class Vote(Request):
        epoch: int = 0

    assert Vote("c", 3) == Vote(cluster="c", epoch=3)
    assert Vote("c", 3) != Request("c")
    with pytest.raises(dataclasses.FrozenInstanceError):
        Vote("c").epoch = 1


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])  # noqa: S301
def test_a_frozen_object_can_be_copied_and_pickled(copied: Callable[[Any], Any]) -> None:
    one = Kept("orders", 3)
    assert copied(one) == one
    with pytest.raises(dataclasses.FrozenInstanceError):
        copied(one).partition = 4


def test_a_class_without_a_docstring_is_described_by_its_name() -> None:
    assert Bare.__doc__ == "Bare"
    assert Bare(3).value == 3


def test_slots_cannot_be_refused() -> None:
    with pytest.raises(TypeError, match="a lazy dataclass has slots"):
        lazy_dataclasses.dataclass(slots=False)

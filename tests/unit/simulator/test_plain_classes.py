"""Dataclasses that are written out for the compiler behave as dataclasses do (tools/plain_classes.py)."""

from __future__ import annotations

import ast
import pickle
import sys
from collections.abc import Iterator
from dataclasses import FrozenInstanceError
from pathlib import Path
from types import ModuleType
from typing import Any

import compile_packages
import pytest
from plain_classes import SUPPORT_MODULE, SUPPORT_SOURCE, CannotWriteOut, value_names, write_out

ROOT = Path(__file__).parents[3]
SOURCE = '''"""A module."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, NamedTuple

LIMIT = 3
SEEN: list[int] = []
twice = 1
twice = 2


@dataclass(frozen=True, slots=True)
class Value:
    """Compared, hashed."""

    KIND: ClassVar[str] = "value"
    name: str
    size_bytes: int = LIMIT
    tags: dict[str, int] = field(default_factory=dict, compare=False)

    @property
    def double(self) -> int:
        """Of the size."""
        return 2 * self.size_bytes


@dataclass(slots=True)
class Changing:
    """Compared, not hashed."""

    steps: list[int] = field(default_factory=lambda: [7])
    done: bool = False


@dataclass(slots=True, eq=False)
class Token:
    """Itself only, and checked when it is made."""

    number: int

    def __post_init__(self) -> None:
        assert self.number >= 0


class Pair(NamedTuple):
    """Taken apart nowhere."""

    one: int
    other: int = 5


def larger(value: Value) -> Value:
    return replace(value, size_bytes=value.size_bytes + 1)
'''


@pytest.fixture
def modules() -> Iterator[list[Any]]:
    """The module as it is, and as it is compiled."""
    support = ModuleType(SUPPORT_MODULE)
    sys.modules[SUPPORT_MODULE] = support
    exec(SUPPORT_SOURCE, vars(support))  # noqa: S102 - what the compiler would get
    found: list[Any] = []
    for name, source in (("as_it_is", SOURCE), ("written_out", write_out(SOURCE, frozenset({"Pair"})))):
        module = ModuleType(name)
        sys.modules[name] = module
        exec(source, vars(module))  # noqa: S102 - what the compiler would get
        found.append(module)
    yield found
    for name in (SUPPORT_MODULE, "as_it_is", "written_out"):
        del sys.modules[name]


def test_values_are_made_compared_hashed_and_shown_alike(modules: list[Any]):
    for module in modules:
        value = module.Value("a")
        assert value == module.Value(name="a", size_bytes=3, tags={"not": 1})
        assert value != module.Value("a", 4)
        assert value != "a"
        assert value.double == 6
        assert module.larger(value).size_bytes == 4
        assert pickle.loads(pickle.dumps(value)) == value  # noqa: S301 - its own bytes
        assert module.Value.KIND == "value"
        assert module.Pair(1).other == 5
        assert module.Pair(1) == module.Pair(1, 5)
        match value:
            case module.Value("a", size_bytes):
                assert size_bytes == 3
            case _:
                pytest.fail("no __match_args__")
    one, other = modules
    assert hash(one.Value("a")) == hash(other.Value("a"))
    assert repr(one.Value("a")) == repr(other.Value("a")) == "Value(name='a', size_bytes=3, tags={})"


def test_what_changes_has_defaults_of_its_own(modules: list[Any]):
    for module in modules:
        one, other = module.Changing(), module.Changing()
        one.steps.append(8)
        assert other.steps == [7]
        assert one != other
        assert one == module.Changing([7, 8])
        with pytest.raises(TypeError):
            hash(one)
        assert module.Token(1) != module.Token(1)
        assert len({module.Token(1), module.Token(1)}) == 2


def test_frozen_is_left_to_the_type_checker(modules: list[Any]):
    """The one difference, and it is said."""
    one, other = modules
    with pytest.raises(FrozenInstanceError):
        one.Value("a").name = "b"
    other.Value("a").name = "b"


def test_constants_are_final_and_others_are_not():
    text = write_out(SOURCE)
    assert "LIMIT: _Final = 3" in text
    assert "SEEN: _Final[list[int]] = []" in text
    assert "\ntwice = 2" in text
    assert "class Pair(NamedTuple):" in text


def test_what_is_checked_when_it_is_made_is_checked(modules: list[Any]):
    for module in modules:
        assert module.Token(1).number == 1
        with pytest.raises(AssertionError):
            module.Token(-1)


def compiled_modules() -> list[Path]:
    """Return the modules that are compiled; a pattern without a file compiles nothing."""
    places = [ROOT / package for package in compile_packages.PACKAGES]
    found: list[Path] = []
    for pattern in compile_packages.MODULES:
        paths = [path for place in places for path in sorted(place.parent.glob(pattern))]
        compiled = [path for path in paths if path.name not in {"__init__.py", *compile_packages.INTERPRETED}]
        assert compiled, f"{pattern} names no module"
        found += compiled
    return found


def test_every_module_that_is_compiled_can_be_written_out():
    """A dataclass of a kind that is not known ends a build."""
    for path in compiled_modules():
        write_out(path.read_text(encoding="utf-8"), compile_packages.TUPLES, compile_packages.BASES)


def test_no_method_of_a_named_tuple_that_is_compiled_has_a_closure():
    """The compiler ends with an internal error at a function within such a method (mypyc 2.4); ``partial`` does."""
    closures = (ast.Lambda, ast.FunctionDef, ast.AsyncFunctionDef)
    found = [
        f"{path.relative_to(ROOT)}:{inner.lineno}"
        for path in compiled_modules()
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef) and node.name not in compile_packages.TUPLES
        if any(isinstance(base, ast.Name) and base.id == "NamedTuple" for base in node.bases)
        for method in node.body
        if isinstance(method, ast.FunctionDef)
        for inner in ast.walk(method)
        if isinstance(inner, closures) and inner is not method
    ]
    assert found == []


def test_a_view_in_a_named_tuple_is_quoted():
    """The compiler looks for the type in the module, does not find it, and the module could not be imported."""
    source = "class One(NamedTuple):\n    size: int\n    view: memoryview\n    other: memoryview | None = None\n"
    assert write_out(source).splitlines()[1:] == [
        "    size: int",
        '    view: "memoryview"',
        "    other: memoryview | None = None",
    ]


@pytest.mark.parametrize(
    "words",
    [
        "@dataclass(order=True)\nclass One:\n    x: int",
        "@dataclass\nclass One(Other):\n    x: int",
        "@dataclass\nclass One:\n    x: int = field(init=False)",
    ],
)
def test_what_is_not_known_is_refused(words: str):
    with pytest.raises(CannotWriteOut):
        write_out(f"from dataclasses import dataclass, field\n{words}\n")


def test_two_types_under_one_name_are_refused():
    """The compiler gives the name the first type, and raises a TypeError where the second is caught."""
    first = "def read():\n    try:\n        pass\n    except OSError as error:\n        pass\n"
    source = first + "    except {} as {}:\n        pass\n"
    with pytest.raises(CannotWriteOut, match="read catches OSError and ValueError as error"):
        write_out(source.format("ValueError", "error"))
    write_out(source.format("ValueError", "problem"))
    write_out(source.format("OSError", "error"))


def test_a_class_with_interpreted_subclasses_says_so():
    source = "from __future__ import annotations\n\n\nclass Base:\n    pass\n"
    assert "@_attr(allow_interpreted_subclasses=True)\nclass Base:" in write_out(source, bases=frozenset({"Base"}))
    assert "allow_interpreted_subclasses" not in write_out(source)


KINDS = """from __future__ import annotations


class Cluster:
    pass


class Kind(Enum):
    ONE = 1


@dataclass(frozen=True, slots=True)
class Plain:
    kind: Kind
    sizes: tuple[int, ...] | None = None


Either: TypeAlias = Plain | int


@dataclass(frozen=True, slots=True)
class Holder:
    plain: Sequence[Either]


@dataclass(frozen=True, slots=True)
class Response:
    token: object


@dataclass(frozen=True, slots=True)
class Waiting:
    then: Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Placed:
    cluster: Cluster


@dataclass(frozen=True, slots=True)
class Indirect:
    response: Response


@dataclass(frozen=True, slots=True)
class Nested:
    below: tuple[Nested, ...]
"""


def test_only_what_can_be_part_of_no_cycle_is_kept_from_the_garbage_collector():
    """A cycle through an object that the collector does not know is never freed, and all that hangs on it."""
    text = write_out(KINDS, values=value_names([KINDS]))
    mark = "@_attr(acyclic=True, free_list_len=1)\nclass "
    assert {name for name in ("Plain", "Holder") if f"{mark}{name}:" in text} == {"Plain", "Holder"}
    assert text.count(mark) == 2


def test_a_name_with_two_meanings_counts_as_a_value_if_both_are():
    other = KINDS + "\n\nclass Plain:\n    pass\n"
    assert {"Plain", "Holder", "Either"}.isdisjoint(value_names([KINDS, other]))
    assert {"Plain", "Holder", "Either"} <= value_names([KINDS, KINDS])

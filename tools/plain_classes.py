"""Dataclasses written out as plain classes, in a copy of the sources that is going to be compiled.

The compiler (mypyc) makes a native class of a dataclass, but its ``__init__``, ``__eq__`` and ``__repr__`` stay those
that ``dataclasses`` makes at import: interpreted, and three to ten times slower than the same methods written by hand;
``slots=True`` it does not take at all. So each is written by hand, by this module.

Contract: the class that comes out has the same fields, in the same order, as arguments by position or by name, with the
same defaults; is equal, hashed and shown as before; has ``__match_args__``; and the functions of ``dataclasses`` take
it, for the modules that are not compiled. Frozen classes are not guarded at run time: the type checker has
checked that. Lines keep their places above the methods, so that complaints name the right ones. Dataclasses with a
base class, ``__post_init__``, ``order`` or ``kw_only`` are refused, and functions that catch two types under one name.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

SUPPORT_MODULE = "tidegauge_written_out"
_NOT_FOUND = frozenset({"memoryview"})
"""Builtins that the compiler does not find when they are the type of a NamedTuple's field (mypyc 2.4: KeyError)."""
SUPPORT_SOURCE = '''"""``dataclasses.replace`` and ``asdict`` for classes that were written out."""

from __future__ import annotations

from copy import copy
from dataclasses import Field, make_dataclass
from typing import Any, TypeVar

Fields = dict[str, Field[Any]]
T = TypeVar("T")
_PATTERN: Any = make_dataclass("Pattern", ["field"])


def fields_of(*names: str) -> Fields:
    """What the functions of ``dataclasses`` look for in a class, so that they take it for one that was decorated."""
    found: Fields = {}
    for name in names:
        found[name] = copy(_PATTERN.__dataclass_fields__["field"])
        found[name].name = name
    return found


def replace(thing: T, **changes: Any) -> T:
    """The same with other values for some fields."""
    kind: Any = type(thing)
    values = {name: getattr(thing, name) for name in kind.__dataclass_fields__}
    values.update(changes)
    return kind(**values)  # type: ignore[no-any-return]


def asdict(thing: Any) -> dict[str, Any]:
    """The fields of a class whose fields hold no other such class."""
    return {name: getattr(thing, name) for name in type(thing).__match_args__}
'''


_SOURCES = ("dataclasses", "tidegauge.lazy_dataclasses")
"""Modules that ``dataclass`` comes from; a class that is written out needs neither."""


class CannotWriteOut(Exception):
    """Raised if a dataclass uses an unknown feature; the text says which and what."""


@dataclass(frozen=True, slots=True)
class _Field:
    """One field, as source text; ``default`` and ``factory`` are empty if there is none."""

    name: str
    annotation: str
    default: str
    factory: str
    compares: bool


def value_names(sources: Iterable[str]) -> frozenset[str]:
    """Return the names that the modules define as values only.

    From a value no path leads to an object that could refer back to it. Values are numbers, text, bytes, containers of
    values, enumerations, NamedTuples and dataclasses whose fields are values, and aliases of these. A name that any
    module gives to something else is left out, and so is a class that may hold itself.
    """
    parts: dict[str, set[str]] = {}
    for source in sources:
        for node in ast.parse(source).body:
            if isinstance(node, ast.ClassDef):
                parts.setdefault(node.name, set()).update(_parts(node))
            elif (alias := _alias(node)) is not None:
                parts.setdefault(alias[0], set()).update(alias[1])
    values = _VALUES
    while more := {name for name in parts.keys() - values if parts[name] <= values}:
        values |= more
    return values


def _parts(node: ast.ClassDef) -> set[str]:
    """Return the names in a class's annotations, or a name that is no value."""
    bases = {ast.unparse(base) for base in node.bases}
    if bases & _ENUMERATIONS:
        return set()
    is_data = "NamedTuple" in bases or any("dataclass" in ast.unparse(one) for one in node.decorator_list)
    return _parts_of(node) if is_data else {_ANYTHING}


def _alias(node: ast.stmt) -> tuple[str, set[str]] | None:
    """Return name and parts of a type alias: a union, or a container."""
    if isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation) == "TypeAlias" and node.value is not None:
        return ast.unparse(node.target), _names(node.value)
    if isinstance(node, ast.Assign) and isinstance(node.value, (ast.BinOp, ast.Subscript)) and len(node.targets) == 1:
        return ast.unparse(node.targets[0]), _names(node.value)
    return None


def _names(node: ast.expr) -> set[str]:
    """Return the names in an annotation or its text; of ``a.b`` the last."""
    return set(re.findall(r"(?<![\w.])(?:\w+\.)*([A-Za-z_]\w*)(?![\w.])", ast.unparse(node)))


_ANYTHING = "object"
_ENUMERATIONS = frozenset({"Enum", "IntEnum", "StrEnum", "IntFlag"})
_VALUES = frozenset(
    {"int", "str", "bytes", "bytearray", "memoryview", "bool", "float", "None", "Path", "tuple", "frozenset", "list"}
    | {"dict", "set", "Sequence", "Mapping", "Collection", "Iterable", "Union", "Final", "Literal"}
)


def write_out(
    source: str,
    tuples: frozenset[str] = frozenset(),
    bases: frozenset[str] = frozenset(),
    *,
    values: frozenset[str] = _VALUES,
    holds_values: bool = False,
) -> str:
    """Return a module's source with dataclasses and these NamedTuples as plain classes.

    Args:
        source: of the module.
        tuples: which NamedTuples are to be plain classes, too.
        bases: which classes have subclasses that are not compiled.
        values: what stands for values (``value_names``). Objects of a frozen class whose fields are values are part of
            no cycle of references, so the garbage collector need not know of them.
        holds_values: whether that is so of all these classes, frozen or not, if their fields are values.
    """
    lines = source.splitlines()
    tree = ast.parse(source)
    _check_handlers(tree)
    _finalise(lines, tree)
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    for node in reversed(classes):
        options = _options(node, tuples)
        if node.name in bases:
            lines[node.lineno - 1] = f"@_attr(allow_interpreted_subclasses=True)\n{lines[node.lineno - 1]}"
        if options is None:
            _quote(lines, node)
            continue
        fields = [_field(source, statement) for statement in _fields(node)]
        methods = _methods(node, fields, options)
        lines[node.end_lineno : node.end_lineno] = [f"    {line}".rstrip() for line in methods]
        for place, one in zip(_fields(node), fields, strict=True):
            _blank(lines, place)
            lines[place.lineno - 1] = f"    {one.name}: {one.annotation}"
        for decorator in node.decorator_list:
            _blank(lines, decorator)
        if node.bases:
            lines[node.lineno - 1] = f"class {node.name}:"
        if (holds_values or options.get("frozen")) and _parts_of(node) <= values:
            lines[node.lineno - 1] = f"@_attr(acyclic=True, free_list_len=1)\n{lines[node.lineno - 1]}"
    for statement in tree.body:
        if isinstance(statement, ast.ImportFrom) and statement.module in _SOURCES:
            _blank(lines, statement)
            wanted = [alias.name for alias in statement.names if alias.name in {"replace", "asdict"}]
            support = f"; from {SUPPORT_MODULE} import {', '.join(wanted)}" if wanted else ""
            lines[statement.lineno - 1] = support.removeprefix("; ")
        if isinstance(statement, ast.ImportFrom) and statement.module == "__future__":
            lines[statement.lineno - 1] += _IMPORTS
    return "\n".join(lines) + "\n"


def _quote(lines: list[str], node: ast.ClassDef) -> None:
    """Quote the types of a NamedTuple's fields that the compiler looks for in the module instead of in the builtins."""
    if not any(isinstance(base, ast.Name) and base.id == "NamedTuple" for base in node.bases):
        return
    for one in _fields(node):
        if isinstance(one.annotation, ast.Name) and one.annotation.id in _NOT_FOUND:
            place = one.annotation.lineno - 1
            name = one.annotation.id
            lines[place] = lines[place].replace(f": {name}", f': "{name}"', 1)


def _parts_of(node: ast.ClassDef) -> set[str]:
    """Return the names in the annotations of its fields."""
    statements = [statement for statement in node.body if isinstance(statement, ast.AnnAssign)]
    return {name for statement in statements for name in _names(statement.annotation)} - {"ClassVar"}


def _check_handlers(tree: ast.Module) -> None:
    """Refuse a function that catches exceptions of two types under one name: compiled, the second is a TypeError."""
    for function in ast.walk(tree):
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            types: dict[str, str] = {}
            for node in ast.walk(function):
                if isinstance(node, ast.ExceptHandler) and node.name and node.type is not None:
                    caught = ast.unparse(node.type)
                    if types.setdefault(node.name, caught) != caught:
                        raise CannotWriteOut(f"{function.name} catches {types[node.name]} and {caught} as {node.name}")


def _blank(lines: list[str], node: ast.expr | ast.stmt) -> None:
    for number in range(node.lineno - 1, node.end_lineno or node.lineno):
        lines[number] = ""


_IMPORTS = (
    "; from typing import ClassVar as _ClassVar, Final as _Final; from mypy_extensions import mypyc_attr as _attr"
    f"; from {SUPPORT_MODULE} import Fields as _Fields, fields_of as _fields_of"
    "; from collections.abc import Iterator as _Iterator"
)
_CONSTANT = re.compile(r"_?[A-Z][A-Z0-9_]+")


def _finalise(lines: list[str], tree: ast.Module) -> None:
    """Names in capitals that a module sets once are final: then they are not looked up in a dictionary."""
    targets: list[ast.expr] = []
    for node in ast.walk(tree):
        targets += (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
    counts = Counter(target.id for target in targets if isinstance(target, ast.Name))
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target = statement.targets[0]
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            target = statement.target
        else:
            continue
        if not isinstance(target, ast.Name) or not _CONSTANT.fullmatch(target.id) or counts[target.id] != 1:
            continue
        place = statement.lineno - 1
        if isinstance(statement, ast.Assign):
            lines[place] = lines[place].replace(f"{target.id} =", f"{target.id}: _Final =", 1)
        elif statement.annotation.end_lineno == statement.lineno and ast.unparse(statement.annotation) != "TypeAlias":
            start, end = statement.annotation.col_offset, statement.annotation.end_col_offset or 0
            line = lines[place]
            lines[place] = f"{line[:start]}_Final[{line[start:end]}]{line[end:]}"


def _options(node: ast.ClassDef, tuples: frozenset[str]) -> dict[str, bool] | None:
    """Return the arguments of ``@dataclass``; None if the class stays unchanged."""
    if node.name in tuples and [ast.unparse(base) for base in node.bases] == ["NamedTuple"]:
        return {"frozen": True, "tuple": True}
    for decorator in node.decorator_list:
        name = decorator.func if isinstance(decorator, ast.Call) else decorator
        if isinstance(name, ast.Name) and name.id == "dataclass":
            if len(node.decorator_list) > 1 or node.bases:
                raise CannotWriteOut(f"{node.name} has a base class or another decorator")
            keywords = decorator.keywords if isinstance(decorator, ast.Call) else []
            options = {str(word.arg): bool(ast.literal_eval(word.value)) for word in keywords}
            if not options.keys() <= {"frozen", "slots", "eq"}:
                raise CannotWriteOut(f"{node.name} has options that are not known: {sorted(options)}")
            return options
    return None


def _fields(node: ast.ClassDef) -> list[ast.AnnAssign]:
    found = [s for s in node.body if isinstance(s, ast.AnnAssign) and "ClassVar" not in ast.unparse(s.annotation)]
    if any("InitVar" in ast.unparse(s.annotation) or not isinstance(s.target, ast.Name) for s in found):
        raise CannotWriteOut(f"{node.name} has a field of a kind that is not known")
    return found


def _field(source: str, statement: ast.AnnAssign) -> _Field:
    def text(node: ast.expr | None) -> str:
        return "" if node is None else " ".join((ast.get_source_segment(source, node) or "").split())

    name, annotation, value = text(statement.target), text(statement.annotation), statement.value
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "field":
        words = {str(word.arg): word.value for word in value.keywords}
        if not words.keys() <= {"default", "default_factory", "compare"}:
            raise CannotWriteOut(f"the field {name} has options that are not known: {sorted(words)}")
        compares = "compare" not in words or bool(ast.literal_eval(words["compare"]))
        factory = words.get("default_factory")
        made = (
            "" if factory is None else text(factory.body) if isinstance(factory, ast.Lambda) else f"{text(factory)}()"
        )
        return _Field(name, annotation, text(words.get("default")), made, compares)
    return _Field(name, annotation, text(value), "", compares=True)


def _methods(node: ast.ClassDef, fields: list[_Field], options: dict[str, bool]) -> list[str]:
    has = {statement.name for statement in node.body if isinstance(statement, ast.FunctionDef)}
    compared = [one.name for one in fields if one.compares]
    written = ["", f"__match_args__: _ClassVar = ({''.join(f'{one.name!r}, ' for one in fields)})", ""]
    names = ", ".join(repr(one.name) for one in fields)
    written += [f"__dataclass_fields__: _ClassVar[_Fields] = _fields_of({names})", ""]
    written += [f"def __init__({', '.join(['self', *map(_parameter, fields)])}) -> None:"]
    assigned = [f"    self.{one.name} = {_value(one)}" for one in fields]
    after = ["    self.__post_init__()"] if "__post_init__" in has else []
    written += [*assigned, *after] or ["    pass"]
    if options.get("eq", True) and "__eq__" not in has:
        same = "".join(f" and self.{name} == other.{name}" for name in compared)
        written += ["", "def __eq__(self, other: object) -> bool:"]
        if options.get("tuple"):
            parts = "".join(f"self.{name}, " for name in compared)
            written += ["    if isinstance(other, tuple):", f"        return ({parts}) == other"]
        written += [f"    return isinstance(other, {node.name}){same}"]
        if options.get("frozen"):
            parts = "".join(f"self.{name}, " for name in compared)
            written += ["", "def __hash__(self) -> int:", f"    return hash(({parts}))"]
    parts = "".join(f"self.{one.name}, " for one in fields)
    if options.get("tuple"):
        written += ["", "def __iter__(self) -> _Iterator[object]:", f"    return iter(({parts}))"]
    written += ["", "def __reduce__(self) -> tuple[object, ...]:", f"    return {node.name}, ({parts})"]
    if "__repr__" not in has:
        shown = ", ".join(f"{one.name}={{self.{one.name}!r}}" for one in fields)
        written += ["", "def __repr__(self) -> str:", f"    return f{f'{node.name}({shown})'!r}"]
    return written


def _parameter(one: _Field) -> str:
    if one.factory:
        return f"{one.name}: {one.annotation} | None = None"
    return f"{one.name}: {one.annotation}{f' = {one.default}' if one.default else ''}"


def _value(one: _Field) -> str:
    return f"{one.factory} if {one.name} is None else {one.name}" if one.factory else one.name

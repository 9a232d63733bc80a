"""A machine's whole state as bytes, and back: what pickle does, for object graphs that hold functions as well.

The coordinators keep later work as functions: timers, outcomes of appends. Such a function is its code,
which is kept in a table of this process, and the variables that it has from around it, which are a part of the state.
Bytes made here mean something in this process only.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any

_FUNCTIONS: list[FunctionType] = []
_NUMBERS: dict[FunctionType | CodeType, int] = {}
_VALUES: list[object] = []
_VALUE_NUMBERS: dict[object, int] = {}
_VALUE_TYPES: set[type] = set()


def keep_as_values(*types: type) -> None:
    """Have objects of these types kept in a table: they are immutable, and compared by what they are."""
    _VALUE_TYPES.update(types)


def dump(machine: object) -> bytes:
    """Return the state of an object with all that it refers to."""
    file = io.BytesIO()
    _Pickler(file, pickle.HIGHEST_PROTOCOL).dump(machine)
    return file.getvalue()


def load(state: bytes) -> Any:
    """Return a new object in a state."""
    return pickle.loads(state)  # noqa: S301 - our own bytes


class _Pickler(pickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        kind = type(obj)
        if kind is FunctionType:
            return NotImplemented if obj.__module__ == __name__ else _of_function(obj)
        if kind is MethodType:
            return _method, (obj.__func__, obj.__self__)
        if kind is CellType:
            return _cell, (), obj.cell_contents, None, None, _fill
        if kind in _VALUE_TYPES:
            number = _VALUE_NUMBERS.get(obj)
            if number is None:
                number = _VALUE_NUMBERS[obj] = len(_VALUES)
                _VALUES.append(obj)
            return _value, (number,)
        return NotImplemented


def _of_function(function: FunctionType) -> tuple[Callable[..., object], tuple[object, ...]]:
    if function.__closure__ is None:
        return _function, (_number(function, function),)
    like = _number(function.__code__, function)
    return _closure, (like, function.__defaults__, function.__kwdefaults__, *function.__closure__)


def _number(key: FunctionType | CodeType, function: FunctionType) -> int:
    number = _NUMBERS.get(key)
    if number is None:
        number = _NUMBERS[key] = len(_FUNCTIONS)
        _FUNCTIONS.append(function)
    return number


def _function(number: int) -> FunctionType:
    return _FUNCTIONS[number]


def _closure(number: int, defaults: Any, keyword_defaults: Any, *cells: CellType) -> FunctionType:
    like = _FUNCTIONS[number]
    function = FunctionType(like.__code__, like.__globals__, like.__name__, defaults, cells)
    function.__kwdefaults__ = keyword_defaults
    return function


def _method(function: Callable[..., object], owner: object) -> MethodType:
    return MethodType(function, owner)


def _value(number: int) -> object:
    return _VALUES[number]


def _cell() -> CellType:
    return CellType()


def _fill(cell: CellType, contents: object) -> None:
    cell.cell_contents = contents

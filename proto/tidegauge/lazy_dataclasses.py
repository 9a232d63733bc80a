"""``dataclass`` whose methods are made at their first use, for modules that many processes import.

``dataclasses`` writes and compiles up to six functions for each class at its definition. A broker imports a thousand
such classes and uses a few hundred: the functions were more than half of the time that its import took.

A class decorated here equals one decorated by ``dataclasses.dataclass`` with the same options, except:

- ``slots`` is always meant, and ``order`` is not taken;
- ``inspect.signature`` gives the fields only after the first object was made;
- a class without a docstring has its name as its docstring, not its signature;
- the methods of a class that inherits from a dataclass are made at once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

__all__ = ["dataclass"]

_standard: Any = dataclasses.dataclass

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(
        cls: type | None = None,
        /,
        *,
        slots: bool = True,
        frozen: bool = False,
        eq: bool = True,
        kw_only: bool = False,
    ) -> Any:
        """Decorate a class as ``dataclasses.dataclass`` does; see the module for the differences.

        Raises:
            TypeError: ``slots`` is false, or ``dataclasses`` refuses the fields.
        """
        if not slots:
            raise TypeError("a lazy dataclass has slots; use dataclasses.dataclass for one without")
        options = {"frozen": frozen, "eq": eq, "kw_only": kw_only}
        return _decorated(cls, options) if cls is not None else lambda one: _decorated(one, options)


def _decorated(cls: type, options: dict[str, bool]) -> type:
    """Return the class with slots and with stand-ins for the generated methods."""
    if any(dataclasses.is_dataclass(base) for base in cls.__bases__):
        return cast("type", _standard(**options, slots=True)(cls))
    written = dict(cls.__dict__)
    cls.__doc__ = cls.__doc__ or cls.__name__
    own = {name for name in written if name != "__hash__" or written[name] is not None}
    made: Any = _standard(init=False, repr=False, eq=False, kw_only=options["kw_only"], slots=True)(cls)
    names = ["__init__", "__repr__"]
    if options["eq"]:
        names.append("__eq__")
        if options["frozen"]:
            names.append("__hash__")
        elif "__hash__" not in own:
            made.__hash__ = None
    missing = [name for name in names if name not in own]
    if options["frozen"]:
        _freeze(made)
    for name in missing:
        setattr(made, name, _stand_in(made, name, lambda: _complete(made, written, options, missing)))
    return cast("type", made)


def _stand_in(made: type, name: str, complete: Callable[[], None]) -> Callable[..., Any]:
    """Return a method that completes its class, then calls its replacement."""

    def first_use(self: Any, /, *arguments: Any, **named: Any) -> Any:
        complete()
        return getattr(made, name)(self, *arguments, **named)

    first_use.__name__, first_use.__qualname__ = name, f"{made.__qualname__}.{name}"
    return first_use


def _complete(made: type, written: dict[str, Any], options: dict[str, bool], missing: list[str]) -> None:
    """Have ``dataclasses`` make the methods of a twin of the class, and give them to the class."""
    body = {key: value for key, value in written.items() if key not in ("__dict__", "__weakref__")}
    twin = _standard(**options)(type(made.__name__, made.__bases__, body))
    for name in missing:
        method = twin.__dict__[name]
        method.__qualname__ = f"{made.__qualname__}.{name}"
        setattr(made, name, method)


def _freeze(made: Any) -> None:
    """Refuse assignments to an object of the class, and have it copied and pickled past this refusal."""
    made.__dataclass_params__.frozen = True
    made.__setattr__, made.__delattr__ = _refuse_to_set, _refuse_to_delete
    made.__getstate__, made.__setstate__ = _state, _restore


def _refuse_to_set(_: Any, name: str, __: Any) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(_: Any, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _restore(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)

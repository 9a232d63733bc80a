"""A package whose own code runs at the first use of a name in it, so that one module of it costs only that module."""

from __future__ import annotations

import sys
import threading
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any

_running = threading.RLock()


class _LatePackage(ModuleType):
    """The package; its code runs when anything looks for a name that only its code makes."""

    _has_begun = False

    def __getattr__(self, name: str) -> Any:
        with _running:
            if isinstance(self, _LatePackage):
                if self._has_begun:
                    raise AttributeError(f"module {self.__name__!r} has no attribute {name!r} yet")
                self._has_begun = True
                assert self.__spec__ is not None
                assert self.__spec__.loader is not None
                self.__spec__.loader.exec_module(self)
                del self._has_begun
                self.__class__ = ModuleType  # type: ignore[assignment] # as the late package, it has the same layout
        return getattr(self, name)


def run_late(name: str) -> None:
    """Let a package's code run late, unless it has run: its modules can be imported at once.

    Args:
        name: the package's.

    Raises:
        ModuleNotFoundError: there is none.
    """
    if name in sys.modules:
        return
    spec = find_spec(name)
    if spec is None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    package = module_from_spec(spec)
    package.__class__ = _LatePackage
    sys.modules[name] = package

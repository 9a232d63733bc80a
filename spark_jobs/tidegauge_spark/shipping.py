"""How the source reaches Spark's other Python processes if the distribution is not installed (``--py-files``).

Contract: an instance of a subclass of ``Shipped`` can be unpickled by a process that does not find this package by
itself. Spark unpacks ``--py-files`` for its workers and for the planner of batch queries, but does not give them to the
planner of streams. So instances are pickled as a function, sent by value, that first looks in the places where the
sender found the packages. A process that finds them by itself uses its own.

Spark's copy of cloudpickle sends by value what was registered with ``register_pickle_by_value``, in each process that
pickles; so that happens when this module is imported. It imports nothing of the project: the function must stand alone.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

from pyspark import cloudpickle

PACKAGES = ("tidegauge_spark", "tidegauge_client", "tidegauge")


def rebuild(places: list[str], module: str, name: str, state: bytes) -> Any:
    """Rebuild an instance; ``places`` are searched only if the package is not found without them."""
    import importlib  # noqa: PLC0415  (sent by value: what it needs, it imports)
    import pickle  # noqa: PLC0415  (as above)
    import sys  # noqa: PLC0415  (as above)

    try:
        owner = importlib.import_module(module)
    except ModuleNotFoundError:
        sys.modules.pop(module.partition(".")[0], None)  # a mere directory of that name, taken for a package
        sys.path += [place for place in places if place not in sys.path]
        importlib.invalidate_caches()
        owner = importlib.import_module(module)
    kind = getattr(owner, name)
    instance = kind.__new__(kind)
    instance.__dict__.update(pickle.loads(state))  # noqa: S301  (from this very query)
    return instance


def places_of_packages() -> list[str]:
    """Return the directories or archives from which this process imports the project's packages."""
    found = []
    for package in PACKAGES:
        spec = importlib.util.find_spec(package)
        if spec is not None and spec.origin is not None:
            found.append(str(Path(spec.origin).parents[1]))
    return list(dict.fromkeys(found))


class Shipped:
    """Pickled in such a way that the receiver need not find this package by itself."""

    def __reduce__(self) -> tuple[Any, ...]:
        kind = type(self)
        # The state as bytes: its classes can be found only after ``rebuild`` has looked.
        state = cloudpickle.dumps(self.__dict__)
        return rebuild, (places_of_packages(), kind.__module__, kind.__name__, state)


cloudpickle.register_pickle_by_value(sys.modules[__name__])

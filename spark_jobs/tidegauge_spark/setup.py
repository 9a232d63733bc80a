"""The requirements of the source on Spark and its Python, and what to do if one is not met.

Contract: pure; ``setup_problem`` inspects nothing by itself. Every sentence names the Python concerned, because a
driver, its planners and its workers may each run another one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from tidegauge.errors import ErrorCode, TidegaugeError

OLDEST_PYSPARK = (4, 2)
"""The first whose Python sources have admission control (latestOffset with a limit)."""
MODULES = {
    "pyarrow": "pyarrow",
    "grpc": "grpcio",
    "google.protobuf": "protobuf",
    "crc32c": "crc32c",
    "cramjam": "cramjam",
    "aiokafka": "aiokafka",
    "click": "click",
}
"""What the source imports in workers, and the distribution that contains it."""


def setup_problem(pyspark_version: str, is_there: Callable[[str], bool], executable: str) -> str | None:
    """Return a sentence about the first requirement that is not met; None if all are.

    Args:
        pyspark_version: as ``pyspark.__version__``.
        is_there: returns whether a module can be imported.
        executable: the Python that is inspected.
    """
    parts = pyspark_version.split(".")
    if tuple(int(part) for part in parts[:2] if part.isdigit()) < OLDEST_PYSPARK:
        return (
            f"The tidegauge source needs PySpark {'.'.join(map(str, OLDEST_PYSPARK))} or newer, and {executable} has "
            f"{pyspark_version}. Install it there: {executable} -m pip install 'pyspark>=4.2,<5'"
        )
    missing = [name for module, name in MODULES.items() if not is_there(module)]
    if missing:
        return (
            f"The tidegauge source needs {', '.join(missing)}, which {executable} does not have. Install it there: "
            f"{executable} -m pip install {' '.join(missing)}"
        )
    return None


def missing(error: ModuleNotFoundError) -> TidegaugeError:
    """Return the error for a worker that lacks a module."""
    name = (error.name or "").split(".")[0]
    distribution = {module.split(".")[0]: one for module, one in MODULES.items()}.get(name, name)
    return TidegaugeError(
        ErrorCode.INVALID_CONFIG,
        f"The Python of this Spark worker ({sys.executable}) has no module '{error.name}'. Install it there "
        f"({sys.executable} -m pip install {distribution}), or set PYSPARK_PYTHON to a Python that has it, before a "
        "session starts",
    )

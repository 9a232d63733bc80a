"""Write the wheel ``tidegauge-compiled``: the package of extension modules, for this Python on this kind of machine.

Its only requirements are the version of Tidegauge whose sources were compiled, and what mypyc's code imports.
Source: the Binary Distribution Format of the Python Packaging User Guide.
"""

from __future__ import annotations

import base64
import hashlib
import sys
import sysconfig
import zipfile
from pathlib import Path

DISTRIBUTION = "tidegauge_compiled"
_METADATA = """Metadata-Version: 2.1
Name: tidegauge-compiled
Version: {version}
Summary: Machine code for the brokers and the simulator of Tidegauge; without it they run from their sources.
License: Apache-2.0
Requires-Python: =={python}.*
Requires-Dist: tidegauge=={version}
Requires-Dist: mypy_extensions>=1.0
"""


def write_wheel(package: Path, directory: Path, version: str) -> Path:
    """Write a wheel of a package; return its path.

    Args:
        package: the directory ``tidegauge_compiled``.
        directory: where to.
        version: of Tidegauge.
    """
    number = f"{sys.version_info.major}{sys.version_info.minor}"
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    tag = f"cp{number}-cp{number}-{platform}"
    about = f"{DISTRIBUTION}-{version}.dist-info"
    files = {f"{package.name}/{path.relative_to(package).as_posix()}": path.read_bytes() for path in _files(package)}
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    files[f"{about}/METADATA"] = _METADATA.format(version=version, python=python).encode()
    files[f"{about}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: tidegauge\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    record = [f"{name},sha256={_hash(content)},{len(content)}" for name, content in files.items()]
    files[f"{about}/RECORD"] = "\n".join([*record, f"{about}/RECORD,,", ""]).encode()
    directory.mkdir(parents=True, exist_ok=True)
    wheel = directory / f"{DISTRIBUTION}-{version}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return wheel


def _files(package: Path) -> list[Path]:
    return sorted(path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts)


def _hash(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()

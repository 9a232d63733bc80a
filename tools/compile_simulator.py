# ruff: noqa: PLC0415 - a command of its own; what it looks for may be missing
"""Compile the simulator to machine code: the core, the controller's decisions and what simulates the rest.

Usage: python tools/compile_simulator.py [DIRECTORY]       (build/compiled; ``make simulate-compiled``)

The packages are copied to the directory; dataclasses are written out there (plain_classes.py), and mypyc, which comes
with mypy, makes extension modules of the modules below, beside the copies. To use the compiled simulator,
put that directory first on PYTHONPATH (``make simulate-long`` does), and everything else, brokers above all,
runs from the sources as before. The same seed gives the same history (tests/unit/simulator/test_compiled.py).

A directory that was made from the same sources is left as it is. Without a C compiler, Python's headers or mypyc one
sentence says so, the directory is taken away, and the exit code is 0: the simulator then runs interpreted.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

from plain_classes import SUPPORT_MODULE, SUPPORT_SOURCE, write_out  # noqa: E402 - beside this file

PACKAGES = (
    "proto/tidegauge",
    "broker/tidegauge_broker",
    "controller/tidegauge_controller",
    "client/tidegauge_client",
    "lab/tidegauge_lab",
    "proof/tidegauge_proof",
)
MODULES = (
    "tidegauge/control.py",
    "tidegauge/errors.py",
    "tidegauge/in_sync.py",
    "tidegauge/partition.py",
    "tidegauge/record_batch.py",
    "tidegauge/znodes.py",
    "tidegauge_broker/waiting/purgatory.py",
    "tidegauge_broker/replica/*.py",
    "tidegauge_broker/replica/rules/*.py",
    "tidegauge_controller/decisions/*.py",
    "tidegauge_lab/accountant/*.py",
    "tidegauge_proof/simulator/actions.py",
    "tidegauge_proof/simulator/acts.py",
    "tidegauge_proof/simulator/checker.py",
    "tidegauge_proof/simulator/clients.py",
    "tidegauge_proof/simulator/coverage.py",
    "tidegauge_proof/simulator/dice.py",
    "tidegauge_proof/simulator/memory_broker.py",
    "tidegauge_proof/simulator/memory_log.py",
    "tidegauge_proof/simulator/memory_zookeeper.py",
    "tidegauge_proof/simulator/sim_controller.py",
    "tidegauge_proof/simulator/simulation.py",
    "tidegauge_proof/simulator/stored_replica.py",
    "tidegauge_proof/simulator/world.py",
)
"""What is compiled: all that a history runs through, but for what waits for offsets (a generic base class of
dataclasses), the CLI, and what shares the work among processes."""
INTERPRETED = frozenset({"delayed_offsets.py", "delayed_produce.py", "delayed_delete_records.py"})
"""Files that MODULES names and that stay interpreted: they share a generic base class of dataclasses."""
TUPLES = frozenset(
    {
        "BatchSpan",
        "EpochEnd",
        "EpochEntry",
        "KeptRecord",
        "LeaderHint",
        "LiveBroker",
        "ProducerCheck",
        "ReadRange",
        "ReadRecord",
        "ReadResult",
        "WriteResult",
        "ZnodeStat",
    }
)
"""NamedTuples that are never unpacked or used as keys: as plain classes they are made and read faster. mypy, which sees
the copies, would complain of one that is used as a tuple."""
VALUES = frozenset({"tidegauge_broker/replica/effects.py", "tidegauge_broker/replica/messages.py"})
"""Modules whose dataclasses hold values only, though not all of them are frozen."""
GROUP = "tidegauge_simulator"
STAMP = "compiled-from"
_MYPY_INI = """[mypy]
python_version = {python}
explicit_package_bases = True
namespace_packages = True
mypy_path = .
follow_imports = silent
[mypy-kazoo.*,aiokafka.*,crc32c.*,cramjam.*,grpc_health.*,grpc_reflection.*]
ignore_missing_imports = True
follow_imports = skip
"""


def main() -> int:
    """Compile, or say why not."""
    directory = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "compiled").resolve()
    directory.parent.mkdir(parents=True, exist_ok=True)
    problem = _what_is_missing()
    if problem:
        shutil.rmtree(directory, ignore_errors=True)
        print(f"The simulator is not compiled: {problem}. It runs interpreted.", file=sys.stderr)
        return 0
    stamp = _stamp()
    if (directory / STAMP).is_file() and (directory / STAMP).read_text(encoding="utf-8") == stamp:
        print(f"{directory} is up to date.", file=sys.stderr)
        return 0
    print("Compiling the simulator: two or three minutes ...", file=sys.stderr)
    started = time.monotonic()
    new = directory.with_name(directory.name + ".new")
    shutil.rmtree(new, ignore_errors=True)
    _copy(new)
    log = new / "compiler.log"
    with log.open("w", encoding="utf-8") as output:
        done = subprocess.run(
            [sys.executable, __file__, "--build"], cwd=new, stdout=output, stderr=subprocess.STDOUT, check=False
        )
    if done.returncode:
        print(f"The simulator could not be compiled; {log} has the reason.", file=sys.stderr)
        return 1
    for rubbish in ("build", "c", "objects", ".mypy_cache"):
        shutil.rmtree(new / rubbish, ignore_errors=True)
    (new / STAMP).write_text(stamp, encoding="utf-8")
    shutil.rmtree(directory, ignore_errors=True)
    new.rename(directory)
    print(f"{directory} is compiled, in {time.monotonic() - started:.0f} s.", file=sys.stderr)
    return 0


def _what_is_missing() -> str:
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None:
        return f"there is no C compiler ({compiler})"
    if not (Path(sysconfig.get_paths()["include"]) / "Python.h").is_file():
        return "Python's headers (Python.h) are not installed"
    for module in ("mypyc", "setuptools"):
        if importlib.util.find_spec(module) is None:
            return f"{module} is not installed"
    return ""


def _sources() -> Iterator[Path]:
    for package in PACKAGES:
        yield from sorted(path for path in (ROOT / package).rglob("*.py"))


def _stamp() -> str:
    """Return what the result depends on."""
    from mypy.version import __version__

    digest = hashlib.sha256()
    for path in (Path(__file__), Path(__file__).with_name("plain_classes.py"), *_sources()):
        digest.update(f"{path.relative_to(ROOT)}\n".encode())
        digest.update(path.read_bytes())
    return f"{digest.hexdigest()} Python {platform.python_version()} mypyc {__version__}\n"


def _copy(directory: Path) -> None:
    for package in PACKAGES:
        source = ROOT / package
        shutil.copytree(source, directory / source.name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in _modules(directory):
        values = path.relative_to(directory).as_posix() in VALUES
        path.write_text(write_out(path.read_text(encoding="utf-8"), TUPLES, holds_values=values), encoding="utf-8")
    (directory / f"{SUPPORT_MODULE}.py").write_text(SUPPORT_SOURCE, encoding="utf-8")


def _modules(directory: Path) -> list[Path]:
    found = [path for pattern in MODULES for path in sorted(directory.glob(pattern)) if path.name not in INTERPRETED]
    return [path for path in found if path.name != "__init__.py"]


def _build() -> int:
    """Build in the directory: C, and extension modules beside the copies."""
    from mypyc.build import mypycify
    from setuptools import setup

    here = Path.cwd()
    ini = here / "mypy.ini"
    ini.write_text(_MYPY_INI.format(python=f"{sys.version_info.major}.{sys.version_info.minor}"), encoding="utf-8")
    modules = [str(path.relative_to(here)) for path in _modules(here)]
    extensions = mypycify(
        ["--config-file", str(ini), *modules],
        opt_level="2",
        debug_level="0",
        multi_file=True,
        target_dir=str(here / "c"),
        group_name=GROUP,
    )
    arguments = ["-q", "build_ext", "--inplace", "--build-temp", str(here / "objects")]
    setup(name=GROUP, ext_modules=extensions, script_args=arguments)
    return 0


if __name__ == "__main__":
    raise SystemExit(_build() if sys.argv[1:] == ["--build"] else main())

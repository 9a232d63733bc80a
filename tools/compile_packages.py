# ruff: noqa: PLC0415 - a command of its own; what it looks for may be missing
"""Compile what brokers and the simulator run through to machine code: the package ``tidegauge_compiled``.

Usage: python tools/compile_packages.py [DIRECTORY]       (build/compiled; ``make compiled``)

The packages are copied; dataclasses are written out there (plain_classes.py), and mypyc, which comes with mypy, makes
extension modules of the modules below. The directory then holds the package ``tidegauge_compiled``: those extension
modules and a table of them. Where that package can be imported, ``tidegauge`` uses it (machine_code.py): with the
directory on PYTHONPATH. The same seed gives the same history (tests/unit/simulator/test_compiled.py), and brokers do
the same (tests/integration/test_compiled_brokers.py).

A directory that was made from the same sources is left as it is. Where ccache is installed, a build compiles only the C
files that differ from an earlier one's: none after a change of a module that stays interpreted. Without a C
compiler, Python's headers or mypyc one sentence says so, the directory is taken away, and the exit code is 0:
everything then runs from the sources.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "proto")]

from plain_classes import SUPPORT_MODULE, SUPPORT_SOURCE, value_names, write_out  # noqa: E402 - beside this file

from tidegauge import __version__, machine_code  # noqa: E402 - of this checkout

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
    "tidegauge/event_log.py",
    "tidegauge/groups.py",
    "tidegauge/in_sync.py",
    "tidegauge/kafka/apis.py",
    "tidegauge/kafka/compiler.py",
    "tidegauge/kafka/fields.py",
    "tidegauge/kafka/frames.py",
    "tidegauge/kafka/topic_ids.py",
    "tidegauge/kafka_channel.py",
    "tidegauge/kafka_connection.py",
    "tidegauge/logical_clock.py",
    "tidegauge/metadata_update.py",
    "tidegauge/partition.py",
    "tidegauge/partition_state.py",
    "tidegauge/record_batch.py",
    "tidegauge/transaction_marker.py",
    "tidegauge/transactions.py",
    "tidegauge_broker/coordinator/**/*.py",
    "tidegauge_broker/formats/*.py",
    "tidegauge_broker/log/*.py",
    "tidegauge_broker/replica/*.py",
    "tidegauge_broker/replica/rules/*.py",
    "tidegauge_broker/server/clock.py",
    "tidegauge_broker/server/deadline_timer.py",
    "tidegauge_broker/server/event_log_writer.py",
    "tidegauge_broker/server/metadata/metadata_cache.py",
    "tidegauge_broker/server/metrics/metered_requests.py",
    "tidegauge_broker/server/metrics/meters.py",
    "tidegauge_broker/server/replication/core_steps.py",
    "tidegauge_broker/server/replication/effect_host.py",
    "tidegauge_broker/server/replication/fetch_session.py",
    "tidegauge_broker/server/replication/fetchers.py",
    "tidegauge_broker/server/replication/follower_session.py",
    "tidegauge_broker/server/replication/grpc_links.py",
    "tidegauge_broker/server/replication/kafka_links.py",
    "tidegauge_broker/server/replication/replica_manager.py",
    "tidegauge_broker/server/service/admission.py",
    "tidegauge_broker/server/service/caller.py",
    "tidegauge_broker/server/service/cluster_view.py",
    "tidegauge_broker/server/service/gate.py",
    "tidegauge_broker/server/service/old_formats.py",
    "tidegauge_broker/server/service/open_produces.py",
    "tidegauge_broker/server/service/pending_responses.py",
    "tidegauge_broker/server/service/produce_verification.py",
    "tidegauge_broker/server/wire/kafka/connection.py",
    "tidegauge_broker/server/wire/kafka/fetch_reader.py",
    "tidegauge_broker/server/wire/kafka/frame_reader.py",
    "tidegauge_broker/server/wire/kafka/handlers/common.py",
    "tidegauge_broker/server/wire/kafka/handlers/fetch.py",
    "tidegauge_broker/server/wire/kafka/handlers/list_offsets.py",
    "tidegauge_broker/server/wire/kafka/handlers/metadata.py",
    "tidegauge_broker/server/wire/kafka/handlers/produce.py",
    "tidegauge_broker/server/wire/kafka/request.py",
    "tidegauge_broker/server/wire/kafka/responses.py",
    "tidegauge_broker/server/wire/kafka/sasl_connection.py",
    "tidegauge_broker/server/wire/kafka/servers.py",
    "tidegauge_broker/server/wire/kafka/sessions.py",
    "tidegauge_broker/server/wire/kafka/slot.py",
    "tidegauge_broker/server/wire/kafka/turns.py",
    "tidegauge_broker/waiting/purgatory.py",
    "tidegauge_controller/rules/*.py",
    "tidegauge_controller/zookeeper/decisions/*.py",
    "tidegauge_lab/accountant/*.py",
    "tidegauge_proof/simulator/action.py",
    "tidegauge_proof/simulator/actions.py",
    "tidegauge_proof/simulator/acts.py",
    "tidegauge_proof/simulator/checker.py",
    "tidegauge_proof/simulator/clients.py",
    "tidegauge_proof/simulator/coordinator_history.py",
    "tidegauge_proof/simulator/coordinator_world.py",
    "tidegauge_proof/simulator/coverage.py",
    "tidegauge_proof/simulator/dice.py",
    "tidegauge_proof/simulator/disk_actions.py",
    "tidegauge_proof/simulator/exactly_once/*.py",
    "tidegauge_proof/simulator/groups/*.py",
    "tidegauge_proof/simulator/isr_proposals.py",
    "tidegauge_proof/simulator/follower_rounds.py",
    "tidegauge_proof/simulator/memory_broker.py",
    "tidegauge_proof/simulator/memory_log.py",
    "tidegauge_proof/simulator/controllers/known_cluster.py",
    "tidegauge_proof/simulator/controllers/zookeeper/*.py",
    "tidegauge_proof/simulator/sim_partition.py",
    "tidegauge_proof/simulator/simulation.py",
    "tidegauge_proof/simulator/stored_replica.py",
    "tidegauge_proof/simulator/swarm.py",
    "tidegauge_proof/simulator/traffic.py",
    "tidegauge_proof/simulator/transactions/*.py",
    "tidegauge_proof/simulator/world.py",
)
"""Compiled: the path of a produce, of a fetch and of a round of replication, both coordinators, and all that a
simulated history of any world runs through. Left out is what Python starts by name (``-m``), what the lab or middleware
puts something of its own in the place of (BrokerService, Seams), generated messages, and what no request waits for."""
INTERPRETED = frozenset(
    {
        "delayed_delete_records.py",
        "delayed_offsets.py",
        "delayed_produce.py",
        "dump.py",
        "dump_verb.py",
    }
)
"""Files that MODULES names and that stay interpreted: the first three share a generic base class of dataclasses."""
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
BASES = frozenset({"Checker", "Compiler", "History", "KafkaChannel", "MemoryZooKeeper", "TidegaugeError"})
"""Classes with subclasses in modules that are not compiled."""
VALUES = frozenset({"tidegauge_broker/replica/effects.py", "tidegauge_broker/replica/messages.py"})
"""Modules whose dataclasses hold values only, though not all of them are frozen."""
GROUP = "tidegauge_compiled_modules"
LIBRARY = f"{GROUP}__mypyc"
"""The extension module that holds the machine code of all others."""
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
    parser = argparse.ArgumentParser(description="Compile brokers and simulator.")
    parser.add_argument("directory", type=Path, nargs="?", default=ROOT / "build" / "compiled")
    directory = parser.parse_args().directory.resolve()
    directory.parent.mkdir(parents=True, exist_ok=True)
    problem = _what_is_missing()
    if problem:
        shutil.rmtree(directory, ignore_errors=True)
        print(f"Nothing is compiled: {problem}. Brokers and simulator run interpreted.", file=sys.stderr)
        return 0
    return 0 if _is_up_to_date(directory) or _compile(directory) else 1


def _is_up_to_date(directory: Path) -> bool:
    stamp = directory / STAMP
    if not stamp.is_file() or stamp.read_text(encoding="utf-8") != _stamp():
        return False
    print(f"{directory} is up to date.", file=sys.stderr)
    return True


def _compile(directory: Path) -> bool:
    """Compile beside the directory, and put the result in its place; return whether it went well."""
    print("Compiling brokers and simulator: five to ten minutes ...", file=sys.stderr)
    stamp, started = _stamp(), time.monotonic()
    new, work = (directory.with_name(f"{directory.name}.{end}") for end in ("new", "work"))
    for old in (new, work):
        shutil.rmtree(old, ignore_errors=True)
    _copy(work)
    names = [_name(path.relative_to(work)) for path in _modules(work)]
    sources = machine_code.digest(names, {Path(source).name: ROOT / source for source in PACKAGES})
    log = work / "compiler.log"
    with log.open("w", encoding="utf-8") as output:
        done = subprocess.run(
            [sys.executable, __file__, "--build"],
            cwd=work,
            env=_with_ccache(os.environ),
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if done.returncode:
        print(f"Brokers and simulator could not be compiled; {log} has the reason.", file=sys.stderr)
        return False
    _collect(work, new / machine_code.PACKAGE, names, sources)
    (new / STAMP).write_text(stamp, encoding="utf-8")
    shutil.rmtree(work)
    shutil.rmtree(directory, ignore_errors=True)
    new.rename(directory)
    print(f"{directory} is compiled, in {time.monotonic() - started:.0f} s.", file=sys.stderr)
    return True


def _with_ccache(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a build, with ccache unless a compiler was chosen."""
    chosen = dict(environment)
    if "CC" not in chosen and shutil.which("ccache"):
        chosen["CC"] = f"ccache {sysconfig.get_config_var('CC') or 'cc'}"
    return chosen


def _collect(work: Path, package: Path, names: Sequence[str], sources: str) -> None:
    """Make the package of the extension modules that were built; ``sources`` is the digest of the copied files."""
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    for built in sorted(work.rglob(f"*{suffix}")):
        place = package / "modules" / built.relative_to(work)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(built, place)
    lines = [
        '"""Extension modules of Tidegauge, made by tools/compile_packages.py; tidegauge.machine_code uses them."""\n',
        f"VERSION = {__version__!r}",
        f"SOURCES = {sources!r}",
        f"SUFFIX = {suffix!r}",
        f"LIBRARY = {LIBRARY!r}",
        f"HELPERS = ({SUPPORT_MODULE!r},)",
        f"MODULES = {tuple(names)!r}",
    ]
    (package / "__init__.py").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _name(path: Path) -> str:
    return ".".join(path.with_suffix("").parts)


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
    modules = [path for package in PACKAGES for path in sorted((directory / Path(package).name).rglob("*.py"))]
    values = value_names([path.read_text(encoding="utf-8") for path in modules])
    for path in _modules(directory):
        source, holds_values = path.read_text(encoding="utf-8"), path.relative_to(directory).as_posix() in VALUES
        written = write_out(source, TUPLES, BASES, values=values, holds_values=holds_values)
        path.write_text(written, encoding="utf-8")
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
    modules = [str(path.relative_to(here)) for path in (*_modules(here), here / f"{SUPPORT_MODULE}.py")]
    extensions = mypycify(
        ["--config-file", str(ini), *modules],
        opt_level="1",
        debug_level="0",
        multi_file=True,
        target_dir=str(here / "c"),
        group_name=GROUP,
    )
    arguments = ["-q", "build_ext", "--inplace", "--build-temp", str(here / "objects")]
    setup(name=GROUP, ext_modules=extensions, script_args=arguments, cmdclass={"build_ext": _with_all_cores()})
    return 0


def _with_all_cores() -> type[Any]:
    """Return a ``build_ext`` that runs a compiler on each core."""
    from setuptools.command.build_ext import build_ext

    class BuildExt(build_ext):  # type: ignore[misc, unused-ignore]
        def build_extensions(self) -> None:
            compile_all = self.compiler.compile

            def compile_each(sources: Sequence[str], **options: Any) -> list[str]:
                with ThreadPoolExecutor(os.cpu_count()) as pool:
                    made = list(pool.map(lambda source: compile_all([source], **options), sources))
                return [item for items in made for item in items]

            self.compiler.compile = compile_each
            super().build_extensions()

    return BuildExt


if __name__ == "__main__":
    raise SystemExit(_build() if sys.argv[1:] == ["--build"] else main())

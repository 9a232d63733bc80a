#!/usr/bin/env python3
"""Writes the synchronous mirrors of asynchronous classes; --check only compares.

A mirror has every public method of its original with the same signature and docstring, and waits for the result. A
method that is not a coroutine runs on the original's event loop too, unless the mirror reads it directly.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import textwrap
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from generated_files import ROOT, write_or_compare

Method = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Mirror:
    """One synchronous class.

    Attributes:
        name: its name.
        base: its base class, written by hand.
        about: its docstring.
        originals: ``file:Class`` of the asynchronous class and its bases; the first definition of a method counts.
        inner: the attribute that holds the asynchronous object.
        run: the method that runs a coroutine.
        direct: methods that are called without a turn of the event loop: they only read.
        without: methods that the base class has, or that make no sense without a loop.
        thread: the name of its loop's thread, if it has a constructor of its own.
    """

    name: str
    base: str
    about: str
    originals: tuple[str, ...]
    inner: str
    run: str
    direct: Collection[str] = ()
    without: Collection[str] = ()
    thread: str = ""


@dataclass(frozen=True)
class Target:
    """One generated module."""

    file: str
    about: str
    imports: tuple[str, ...]
    head: str
    mirrors: tuple[Mirror, ...]


CLIENT = "client/tidegauge_client/"
PLUGIN = "lab/tidegauge_lab/pytest_plugin/"
TARGETS = (
    Target(
        file=CLIENT + "sync.py",
        about="""The client for scripts without an event loop: each object runs one in a thread of its own.

``SyncProducer.send`` returns a ``concurrent.futures.Future``; every other method waits for its result. Objects may be
used from any thread. Errors are those of the asynchronous classes.
""",
        imports=(
            "from tidegauge_client.sync_admin import SyncAdmin",
            "from tidegauge_client.loop_thread import Facade, LoopThread, made_on",
            "from tidegauge_client.producer_facade import ProducerFacade",
        ),
        head="""\
__all__ = ["SyncAdmin", "SyncConsumer", "SyncProducer"]
""",
        mirrors=(
            Mirror(
                name="SyncProducer",
                base="ProducerFacade",
                about="``Producer`` without ``await``; keywords are the same.",
                originals=(CLIENT + "producer.py:Producer",),
                inner="self._inner",
                run="self._loop.run",
                direct=("led_by_kafka", "topic_identity"),
                without=("send",),
                thread="tidegauge-producer",
            ),
            Mirror(
                name="SyncConsumer",
                base="Facade[Consumer]",
                about="``Consumer`` without ``await``; keywords are the same.",
                originals=(CLIENT + "consumer.py:Consumer",),
                inner="self._inner",
                run="self._loop.run",
                direct=("assignment", "high_watermark", "led_by_kafka", "topic_identity", "troubles"),
                thread="tidegauge-consumer",
            ),
        ),
    ),
    Target(
        file=CLIENT + "sync_admin.py",
        about="""The admin client for scripts without an event loop, as in ``tidegauge_client.sync``.
""",
        imports=("from tidegauge_client.loop_thread import Facade, LoopThread, made_on",),
        head="",
        mirrors=(
            Mirror(
                name="SyncAdmin",
                base="Facade[Admin]",
                about="``Admin`` without ``await``; keywords are the same.",
                originals=(
                    CLIENT + "admin.py:Admin",
                    CLIENT + "admin_topics.py:TopicAdmin",
                    CLIENT + "admin_records.py:RecordAdmin",
                    CLIENT + "admin_configs.py:ConfigAdmin",
                    CLIENT + "admin_reassignments.py:ReassignmentAdmin",
                    CLIENT + "admin_transactions.py:TransactionAdmin",
                    CLIENT + "admin_groups.py:GroupAdmin",
                    CLIENT + "admin_base.py:AdminBase",
                ),
                inner="self._inner",
                run="self._loop.run",
                without=("at_controller",),
                thread="tidegauge-admin",
            ),
        ),
    ),
    Target(
        file=CLIENT + "group/sync.py",
        about="""The group consumer for scripts without an event loop, as in ``tidegauge_client.sync``.
""",
        imports=(
            "from tidegauge_client.group.sync_base import GroupConsumerFacade",
            "from tidegauge_client.loop_thread import LoopThread, made_on",
        ),
        head="",
        mirrors=(
            Mirror(
                name="SyncGroupConsumer",
                base="GroupConsumerFacade",
                about="``GroupConsumer`` without ``await``; keywords are the same.",
                originals=(CLIENT + "group/group_consumer.py:GroupConsumer", CLIENT + "consumer.py:Consumer"),
                inner="self._inner",
                run="self._loop.run",
                direct=(
                    "assignment",
                    "group_metadata",
                    "group_trouble",
                    "high_watermark",
                    "led_by_kafka",
                    "subscription",
                    "topic_identity",
                    "troubles",
                ),
                without=("subscribe", "commit_async"),
                thread="tidegauge-group-consumer",
            ),
        ),
    ),
    Target(
        file=PLUGIN + "sync_cluster.py",
        about="""``AsyncCluster`` for plain tests: each method is done when it returns.
""",
        imports=(
            "from abc import ABC, abstractmethod",
            "from collections.abc import Coroutine",
            "from typing import Any, TypeVar",
            "from tidegauge_lab.pytest_plugin.aio import AsyncCluster",
        ),
        head="""\
__tracebackhide__ = True  # pytest: a report shows the test's own lines
Result = TypeVar("Result")


class SyncClusterBase(ABC):
    \"\"\"What the mirror needs.\"\"\"

    @property
    @abstractmethod
    def aio(self) -> AsyncCluster:
        \"\"\"The same cluster for asyncio tests.\"\"\"

    @abstractmethod
    def _run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        \"\"\"Run a coroutine on the cluster's own loop.\"\"\"
""",
        mirrors=(
            Mirror(
                name="SyncCluster",
                base="SyncClusterBase",
                about="The methods of ``AsyncCluster`` without ``await``.",
                originals=(
                    PLUGIN + "aio.py:AsyncCluster",
                    PLUGIN + "aio_faults.py:AsyncFaults",
                    "lab/tidegauge_lab/switches/fault_calls.py:FaultCalls",
                ),
                inner="self.aio",
                run="self._run",
            ),
        ),
    ),
)


class Source:
    """One original's module: its class and the origin of its names."""

    def __init__(self, place: str) -> None:
        self.file, _, self.name = place.partition(":")
        path = Path(self.file).with_suffix("")
        self.module = ".".join(path.parts[path.parts.index(self._package(path)) :])
        self.tree = ast.parse((ROOT / self.file).read_text(encoding="utf-8"))

    @staticmethod
    def _package(path: Path) -> str:
        return next(part for part in path.parts if part.startswith("tidegauge"))

    def methods(self) -> Iterator[Method]:
        """Yield the public methods and the constructor, in source order."""
        [found] = [one for one in self.tree.body if isinstance(one, ast.ClassDef) and one.name == self.name]
        for one in found.body:
            if isinstance(one, Method) and (one.name == "__init__" or not one.name.startswith("_")):
                yield one

    def origin(self, name: str) -> str | None:
        """Return the import statement of a module's name; None for a builtin."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and name in {alias.asname or alias.name for alias in node.names}:
                return f"from {node.module} import {name}"
        defined = {node.name for node in self.tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
        assigned = {
            target.id
            for node in self.tree.body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        return f"from {self.module} import {name}" if name in defined | assigned else None


def names_in(method: Method) -> set[str]:
    """Return the names that a signature uses."""
    parts: list[ast.AST] = [method.args, *([method.returns] if method.returns is not None else [])]
    return {node.id for part in parts for node in ast.walk(part) if isinstance(node, ast.Name)}


def forwarded(arguments: ast.arguments) -> str:
    """Return the arguments of a call that hands the method's own on."""
    given = [one.arg for one in [*arguments.posonlyargs, *arguments.args][1:]]
    if arguments.vararg is not None:
        given.append(f"*{arguments.vararg.arg}")
    given += [f"{one.arg}={one.arg}" for one in arguments.kwonlyargs]
    if arguments.kwarg is not None:
        given.append(f"**{arguments.kwarg.arg}")
    return ", ".join(given)


def signature(method: Method) -> str:
    """Return a method's parameters, with the long numbers in groups of digits."""
    return re.sub(r"\b\d{4,}\b", lambda number: f"{int(number[0]):_}", ast.unparse(method.args))


def is_property(method: Method) -> bool:
    """Return whether a method is read like an attribute."""
    return any(isinstance(one, ast.Name) and one.id == "property" for one in method.decorator_list)


def mirrored(mirror: Mirror, method: Method) -> str:
    """Return the text of one method of a mirror."""
    call = f"{mirror.inner}.{method.name}({forwarded(method.args)})"
    returns = ast.unparse(method.returns) if method.returns is not None else "None"
    head = "    @property\n" if is_property(method) else ""
    head += f"    def {method.name}({signature(method)}) -> {returns}:\n"
    text = ast.get_docstring(method)
    assert text is not None, f"{method.name} has no docstring"
    docstring = textwrap.indent(f'"""{text}"""' if "\n" not in text else f'"""{text}\n"""', " " * 8) + "\n"
    if is_property(method):
        return f"{head}{docstring}        return {mirror.inner}.{method.name}\n"
    result = "" if returns == "None" else "return "
    if method.name in mirror.direct:
        return f"{head}{docstring}        {result}{call}\n"
    if isinstance(method, ast.AsyncFunctionDef):
        return f"{head}{docstring}        {result}{mirror.run}({call})\n"
    work = f"        async def work() -> {returns}:\n            {result}{call}\n\n"
    return f"{head}{docstring}\n{work}        {result}{mirror.run}(work())\n"


def constructor(mirror: Mirror, method: Method) -> str:
    """Return the text of a mirror's constructor, which builds the original on its loop."""
    original = mirror.originals[0].partition(":")[2]
    return (
        f"    def __init__({signature(method)}) -> None:\n"
        f'        """Build the client; arguments are those of ``{original}``."""\n'
        f'        self._loop = LoopThread("{mirror.thread}")\n'
        f"        self._inner = made_on(self._loop, lambda: {original}({forwarded(method.args)}))\n"
    )


def of_base(mirror: Mirror) -> set[str]:
    """Return the methods written by hand in the bases of all mirrors."""
    return {"start", "stop", *mirror.without} if mirror.thread else set(mirror.without)


def module(target: Target) -> str:
    """Return the text of a generated module."""
    imports: dict[str, str] = {}
    classes = []
    for mirror in target.mirrors:
        seen, body = of_base(mirror), []
        for place in mirror.originals:
            source = Source(place)
            for method in source.methods():
                if method.name in seen or (method.name == "__init__" and not mirror.thread):
                    continue
                seen.add(method.name)
                body.append((constructor if method.name == "__init__" else mirrored)(mirror, method))
                for name in names_in(method):
                    if name not in imports and (origin := source.origin(name)) is not None:
                        imports[name] = origin
        if mirror.thread:
            source = Source(mirror.originals[0])
            imports[source.name] = f"from {source.module} import {source.name}"
        # The constructor is in one of the bases: it comes first all the same.
        body.sort(key=lambda text: "def __init__(" not in text)
        classes.append(f'class {mirror.name}({mirror.base}):\n    """{mirror.about}"""\n\n' + "\n".join(body))
    originals = " and ".join(f"``{one.originals[0].partition(':')[2]}``" for one in target.mirrors)
    about = f'"""{target.about}\nMade by tools/generate-mirrors.py from {originals}; change them instead.\n"""\n'
    lines = sorted({*target.imports, *imports.values()})
    text = "\n".join([about, "from __future__ import annotations\n", *lines, "", target.head, *classes])
    for step in (["check", "--select", "I,F401", "--fix", "-q"], ["format"]):
        ruff = [sys.executable, "-m", "ruff", *step, "--stdin-filename", target.file, "-"]
        text = subprocess.run(ruff, input=text, text=True, capture_output=True, check=True, cwd=ROOT).stdout
    return text


FILES = {target.file: partial(module, target) for target in TARGETS}

if __name__ == "__main__":
    raise SystemExit(write_or_compare(sys.argv[1:], FILES, "the asynchronous classes are", "make mirrors"))

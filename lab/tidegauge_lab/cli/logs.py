"""``tidegauge logs``: what the processes of the cluster in ``--dir`` wrote, merged, a prefix per process.

Contract: ``logs [ID|zookeeper] [-f] [--grep RE]``. With ``-o json`` a line is an object with
``process`` and ``line``. ``-f`` goes on until Ctrl-C.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from tidegauge.cli import directory_option, output_option, pause, print_json, print_line
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge_lab.cli.verbs import lab_verb
from tidegauge_lab.local import layout
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.timeline.merged_logs import FollowedFile, LogLine, merge

_LOOK_AGAIN_SECONDS = 0.2
_NODE = re.compile(r"((broker|controller)-)?[0-9]{1,10}")


class PatternType(click.ParamType[re.Pattern[str]]):
    """A regular expression on the command line."""

    name = "RE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> re.Pattern[str]:
        """Compile it; a usage error if that fails."""
        if isinstance(value, re.Pattern):
            return value
        try:
            return re.compile(str(value))
        except re.error as problem:
            self.fail(f"{value!r} is no regular expression: {problem}", param, ctx)


def processes_of(cluster: LocalCluster, wanted: str | None) -> list[str]:
    """Names of the processes whose logs are meant.

    Raises:
        TidegaugeError: there is no such process in the cluster.
    """
    if wanted is None:
        return [process.name for process in cluster.processes().values()]
    if wanted == layout.ZOOKEEPER and cluster.file.zookeeper_address and not cluster.file.zookeeper_managed:
        raise TidegaugeError(
            ErrorCode.INVALID_REQUEST,
            f"ZooKeeper at {cluster.file.zookeeper_address} was not started by `tidegauge up`; its log is not here",
        )
    if wanted == layout.ZOOKEEPER:
        return [cluster.process_of(wanted).name]
    return [cluster.process_of(int(wanted.rpartition("-")[2])).name]


def _check_process(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    if value is None or value == layout.ZOOKEEPER or _NODE.fullmatch(value):
        return value
    raise click.BadParameter(f"{value!r} is neither a node's ID nor zookeeper")


def _written(files: dict[str, FollowedFile]) -> Iterator[LogLine]:
    return merge({process: file.new_lines() for process, file in files.items()})


@click.command()
@click.argument("process", required=False, metavar="[ID|zookeeper]", callback=_check_process)
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes, until Ctrl-C.")
@click.option("--grep", "pattern", type=PatternType(), metavar="RE", help="Only lines in which this is found.")
@directory_option
@output_option
@lab_verb
def logs(process: str | None, follow: bool, pattern: re.Pattern[str] | None, directory: Path, output: str) -> None:
    """Show what the processes wrote, in the order of time."""
    cluster = LocalCluster(directory)
    names = processes_of(cluster, process)
    width = max(len(name) for name in names)
    files = {name: FollowedFile(cluster.logs / f"{name}.log") for name in names}

    def show(line: LogLine) -> None:
        if pattern is not None and pattern.search(line.text) is None:
            return
        if output == "json":
            print_json({"process": line.process, "line": line.text})
        else:
            print_line(f"{line.process:<{width}} | {line.text}")

    for line in _written(files):
        show(line)
    while follow:
        pause(_LOOK_AGAIN_SECONDS)
        for line in _written(files):
            show(line)
    for name, file in files.items():
        if (rest := file.last_line()) is not None:
            show(LogLine(name, rest))

"""``tidegauge lab list|show|start|check|stop``: questions, tried on a live cluster that checks them itself.

Contract (docs/labs/README.md): ``start`` starts a fresh cluster in ``--dir`` and shows question, prediction and
commands; ``check`` looks at the cluster, says what is true, and ends with 0 where all of it is as the lab wants it,
else with 1; ``stop`` deletes the cluster. ``show`` prints a lab's whole page, explanation included. Pages and checks
are in Chinese if the locale is Chinese; ``--language`` decides otherwise.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import click

from tidegauge.cli import (
    directory_option,
    fail,
    offline_verb_options,
    output_option,
    print_json,
    print_line,
    print_text,
    say,
)
from tidegauge.cluster_directory import DIRECTORY_VARIABLE, directory_argument
from tidegauge_client.cli.common import language_option
from tidegauge_client.languages import CHINESE
from tidegauge_lab.cli.common import complete_lab, is_kraft, kraft_option
from tidegauge_lab.cli.verbs import lab_verb
from tidegauge_lab.labs import terminal
from tidegauge_lab.labs.catalogue import LABS, lab_named
from tidegauge_lab.labs.checking import Checked
from tidegauge_lab.labs.checking import check as run_check
from tidegauge_lab.labs.chinese import in_chinese
from tidegauge_lab.labs.model import Lab
from tidegauge_lab.labs.running import Ports, begin, end, listening
from tidegauge_lab.labs.texts import text_of
from tidegauge_lab.local.cluster import LocalCluster


@click.group()
def lab() -> None:
    """Try a question on a live cluster, which checks the result itself."""


@lab.command("list")
@language_option
@offline_verb_options
@lab_verb
def list_labs(language: str, output: str, directory: Path, bootstrap_server: str | None) -> None:
    """List the labs: number, name, question."""
    del directory, bootstrap_server
    found = [(one, text_of(one, language).title) for one in LABS]
    if output == "json":
        print_json([{"number": one.number, "name": one.name, "question": title} for one, title in found])
        return
    width = max(len(one.name) for one in LABS)
    for one, title in found:
        print_line(f"{one.number:>2}  {one.name:<{width}}  {title}")


@lab.command()
@click.argument("name", metavar="NAME", shell_complete=complete_lab)
@language_option
@offline_verb_options
@lab_verb
def show(name: str, language: str, output: str, directory: Path, bootstrap_server: str | None) -> None:
    """Show a lab's page, explanation included."""
    del directory, bootstrap_server
    wanted = lab_named(name)
    text = text_of(wanted, language)
    if output == "json":
        print_json({"number": wanted.number, "name": wanted.name, "question": text.title, "page": text.shown})
    else:
        click.echo(terminal.rendered(text.shown, language), nl=False)


@lab.command()
@click.argument("name", metavar="NAME", shell_complete=complete_lab)
@click.option(
    "--base-port",
    type=click.IntRange(1, 65535),
    metavar="N",
    help="As in `up`.  [default: 19092, or the next free ones]",
)
@click.option(
    "--kafka-port",
    type=click.IntRange(1, 65535),
    metavar="N",
    help="As in `up`.  [default: 9092, or the next free ones]",
)
@click.option(
    "--zookeeper-port",
    type=click.IntRange(1, 65535),
    metavar="N",
    help="As in `up`.  [default: 12181, or the next free one]",
)
@kraft_option
@language_option
@directory_option
@output_option
@lab_verb
def start(
    name: str,
    base_port: int | None,
    kafka_port: int | None,
    zookeeper_port: int | None,
    language: str,
    directory: Path,
    output: str,
    *,
    kraft: bool,
) -> None:
    """Start a lab's cluster; show question and commands."""
    wanted = lab_named(name)
    in_kraft = is_kraft(asked=kraft) or bool(wanted.kraft_only)
    if in_kraft and zookeeper_port is not None:
        raise click.UsageError("A cluster in KRaft mode has no ZooKeeper: leave --zookeeper-port out")
    text = text_of(wanted, language)
    try:
        cluster = begin(wanted, directory, Ports(base_port, kafka_port, zookeeper_port), kraft=in_kraft)
    except KeyboardInterrupt:
        say("Interrupted: nothing is left running, and the lab's cluster is deleted.")
        raise
    if output == "json":
        print_json(
            {
                "lab": wanted.name,
                "bootstrap_servers": ",".join(cluster.bootstrap_servers),
                "kafka_bootstrap_servers": ",".join(listening(cluster)),
                "directory": str(cluster.directory),
            }
        )
        return
    question, prediction = (terminal.prose(text.sections[name], language) for name in ("Question", "Predict"))
    print_text(f"{wanted.number}. {text.title}\n\n{question}\n")
    print_text(f"{text.headings['Predict']}\n\n{prediction}\n\n{text.headings['Do']}\n")
    if directory_argument(directory):
        print_text(f"export {DIRECTORY_VARIABLE}={shlex.quote(str(directory.absolute()))}\n")
    click.echo(terminal.commands(text.sections["Do"], language, listening(cluster)))
    print_text("\n".join(["", *_where(cluster, is_chosen=kafka_port is not None), "", *_next(wanted, directory)]))


def _where(cluster: LocalCluster, *, is_chosen: bool) -> list[str]:
    """Return lines with the cluster's directory and its addresses for clients."""
    addresses = listening(cluster)
    lines = [f"The cluster is up, in {cluster.directory}", f"Kafka clients use {','.join(addresses)}"]
    return lines + other_addresses(addresses[0], is_chosen=is_chosen)


def other_addresses(first: str, *, is_chosen: bool) -> list[str]:
    """Return a remark if addresses differ from the lab's page.

    Args:
        first: the address of the first broker.
        is_chosen: whether the user has chosen the port; else the page's was not free.
    """
    if first == terminal.FIRST_ADDRESS:
        return []
    here = "The commands above have these addresses"
    if not is_chosen:
        here = f"Port {terminal.FIRST_KAFKA_PORT} was not free: the commands above have these addresses"
    return terminal.wrapped(f"{here}, and the page has {terminal.FIRST_ADDRESS} and the next ones in their place.")


def _next(wanted: Lab, directory: Path) -> list[str]:
    option = directory_argument(directory)
    return [
        f"The check:        tidegauge lab check {wanted.name}{option}",
        f"The explanation:  tidegauge lab show {wanted.name}",
        f"The end:          tidegauge lab stop{option}",
    ]


@lab.command()
@click.argument("name", metavar="[NAME]", required=False, shell_complete=complete_lab)
@language_option
@directory_option
@output_option
@lab_verb
def check(name: str | None, language: str, directory: Path, output: str) -> None:
    """Let the cluster say which of the lab's tasks are done."""
    checked = run_check(directory, None if name is None else lab_named(name))
    if output == "json":
        print_json(checked.as_json())
    else:
        for line in _findings(checked, language):
            print_line(line)
    verdict = in_chinese().translated(checked.verdict) if language == CHINESE and output == "text" else checked.verdict
    if not checked.passed:
        fail(verdict, output)
    if output == "text":
        print_line(verdict)


def _findings(checked: Checked, language: str) -> Iterator[str]:
    """Return what a check has found, a line or more each."""
    for one in checked.findings:
        if language == CHINESE:
            yield f"  {'是' if one.holds else '否'}  {in_chinese().translated(one.text)}。"
        else:
            yield from terminal.wrapped(f"{one.text}.", first="  yes  " if one.holds else "  no   ", rest=" " * 7)


@lab.command()
@directory_option
@output_option
@lab_verb
def stop(directory: Path, output: str) -> None:
    """Stop a lab's cluster, and delete it."""
    ended = end(directory)
    if output == "json":
        print_json({"lab": None if ended is None else ended.name})
    elif ended is None:
        print_line(f"There is no lab in {directory.absolute()}.")
    else:
        print_line(f"Lab {ended.name} is over; its cluster is deleted.")

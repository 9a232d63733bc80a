"""``verify``: the accountant audits a topic: lost, kept though failed, duplicated, reordered, diverged.

Exit 0 when the books balance, 1 when they don't, or when they could not be read. What could not be checked, and why, is
said each time: a check that was not made has found nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import click

from tidegauge.cli import EXIT_FAILED, print_json, reports_errors, verb_options
from tidegauge_client.cli.common import JSON, run, servers
from tidegauge_client.cluster_file import FILE_NAME, load_cluster_file
from tidegauge_lab.accountant.audit import Report
from tidegauge_lab.accountant.books import MEANINGS, Kind
from tidegauge_lab.accountant.ledger import Account
from tidegauge_lab.accountant.reading.topic_books import Sources, folders_of, read_and_audit
from tidegauge_lab.local import layout

SHOWN = 5


@click.command("verify")
@click.argument("topic")
@click.option(
    "--history",
    "histories",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="What `produce --history` wrote; may be given several times.",
)
@click.option(
    "--reads",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="What `consume -o json` printed; may be given several times, in the order of reading.",
)
@click.option("--complete", is_flag=True, help="The histories hold all that was written: phantoms count too.")
@click.option(
    "--timeout-ms",
    type=click.IntRange(min=1),
    default=30_000,
    show_default=True,
    help="How long a leader, or the next record, is waited for.",
)
@verb_options
@reports_errors
def verify(
    topic: str,
    histories: tuple[Path, ...],
    reads: tuple[Path, ...],
    complete: bool,
    timeout_ms: int,
    bootstrap_server: str | None,
    directory: Path,
    output: str,
) -> None:
    """Compare the responses that producers got with the committed log and with all replicas."""
    if complete and not histories:
        raise click.UsageError("Option --complete says something of histories: give --history")
    bootstrap = servers(bootstrap_server, directory)
    event_logs, log_directories = own_folders(bootstrap, directory)
    sources = Sources(histories, reads, event_logs, log_directories, complete, timeout_ms)
    report = run(read_and_audit(bootstrap, topic, sources))
    if output == JSON:
        print_json(report.to_json())
    else:
        for line in text_lines(report):
            click.echo(line)
    if not report.is_balanced:
        raise SystemExit(EXIT_FAILED)


def own_folders(bootstrap: list[str], directory: Path) -> tuple[Path | None, dict[int, Path]]:
    """Return the directories of event logs and broker logs, if the cluster asked is the one in the directory."""
    if not (directory / FILE_NAME).exists():
        return None, {}
    file = load_cluster_file(directory)
    if not set(bootstrap) <= set(file.bootstrap_servers):
        return None, {}
    return directory / layout.LOGS, folders_of(directory, file)


# Text


def text_lines(report: Report) -> Iterator[str]:
    """Return the report as lines of text."""
    yield (
        f"Topic {report.topic}: {report.partitions} partitions, {report.records} committed records, "
        f"{report.replicas} replicas compared"
    )
    if report.accounts:
        yield from _table(report)
    for kind in Kind:
        if report.count(kind) and report.is_violation(kind):
            yield from _finding(report, kind)
    for kind in Kind:
        if report.count(kind) and not report.is_violation(kind):
            yield from _finding(report, kind, "Note: ")
    for broker, partitions in sorted(report.from_disk.items()):
        of = ", ".join(f"{report.topic}-{partition}" for partition in partitions)
        yield f"Broker {broker} is down or out of reach: its replicas of {of} were read from disk"
    for line in report.not_checked:
        yield f"Not checked: {line}"
    if report.is_balanced:
        yield "The books balance."
    else:
        wrong = [kind for kind in Kind if report.count(kind) and report.is_violation(kind)]
        found = [f"{report.count(kind)} {kind.value}" for kind in wrong]
        yield f"The books do not balance: {', '.join(found)}."


def _table(report: Report) -> Iterator[str]:
    columns = [field.name for field in fields(Account)]
    rows = [["acks", *(name.replace("_", " ") for name in columns)]]
    for level, account in sorted(report.accounts.items(), reverse=True):
        rows.append([level, *(str(getattr(account, name)) for name in columns)])
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _finding(report: Report, kind: Kind, begin: str = "") -> Iterator[str]:
    tally = report.tallies[kind]
    levels = ", ".join(f"acks={level}: {count}" for level, count in sorted(tally.by_acks.items()))
    yield f"{begin}{tally.count} {kind.value}{f' ({levels})' if levels else ''}: {MEANINGS[kind]}"
    for example in tally.examples[:SHOWN]:
        yield f"    {report.topic}-{example.partition}: {example.message}"
    if tally.count > SHOWN:
        yield f"    and {tally.count - min(SHOWN, len(tally.examples))} more"

"""``verify``: the accountant audits a topic: lost, kept though failed, duplicated, reordered, diverged.

Exit 0 when the books balance, 1 when they don't, or when they could not be read. Checks not made, and why, are
listed each time: a check that was not made has found nothing.

With ``--transactions`` and ``--shares`` histories that any Kafka client may have written are judged too
(docs/histories.md), or, without a topic, alone: then no cluster is asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import click

from tidegauge.cli import EXIT_FAILED, print_json, print_line, reports_errors, verb_options
from tidegauge.counted import counted
from tidegauge_client.cli.common import JSON, run, servers
from tidegauge_client.cli.completing import complete_topic
from tidegauge_client.cluster_file import FILE_NAME, load_cluster_file
from tidegauge_lab.accountant.audit import Report
from tidegauge_lab.accountant.books import MEANINGS, Kind
from tidegauge_lab.accountant.ledger import Account
from tidegauge_lab.accountant.reading.client_history import read_client_histories
from tidegauge_lab.accountant.reading.final_poll import final_poll
from tidegauge_lab.accountant.reading.share_history import read_share_histories
from tidegauge_lab.accountant.reading.topic_books import Sources, directories_of, read_and_audit
from tidegauge_lab.accountant.shares.judging import ShareJudgement, judge_shares
from tidegauge_lab.accountant.shares.telling import share_lines
from tidegauge_lab.accountant.shares.telling import to_json as shares_to_json
from tidegauge_lab.accountant.transactions.judging import Judgement, judge
from tidegauge_lab.accountant.transactions.telling import judged_lines, to_json
from tidegauge_lab.local import layout

SHOWN = 5


@click.command("verify")
@click.argument("topic", required=False, shell_complete=complete_topic)
@click.option(
    "--history",
    "histories",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="What `produce --history` wrote; may be repeated.",
)
@click.option(
    "--reads",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="What `consume -o json` printed; may be repeated, in the order of reading.",
)
@click.option(
    "--transactions",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="A history of transactions, of any client (docs/histories.md); may be repeated.",
)
@click.option(
    "--shares",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="A history of share groups, of any client (docs/histories.md); may be repeated.",
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
    topic: str | None,
    histories: tuple[Path, ...],
    reads: tuple[Path, ...],
    transactions: tuple[Path, ...],
    shares: tuple[Path, ...],
    complete: bool,
    timeout_ms: int,
    bootstrap_server: str | None,
    directory: Path,
    output: str,
) -> None:
    """Compare the responses that producers got with the committed log and with all replicas.

    With --transactions and --shares: judge histories of transactions and of share groups that any client has written.
    Without TOPIC no cluster is asked; with TOPIC its committed records are the final poll of transactions.
    """
    of_shares = judge_shares(read_share_histories(shares)) if shares else None
    if topic is None:
        if not (transactions or shares) or histories or reads:
            raise click.UsageError("Missing argument 'TOPIC': only --transactions and --shares can do without a topic")
        _tell(None, judge(read_client_histories(transactions)) if transactions else None, of_shares, output)
        return
    history = read_client_histories(transactions) if transactions else None
    if complete and not histories:
        raise click.UsageError("Option --complete says something of histories: give --history")
    bootstrap = servers(bootstrap_server, directory)
    event_logs, log_directories = own_directories(bootstrap, directory)
    sources = Sources(histories, reads, event_logs, log_directories, complete, timeout_ms)
    report = run(read_and_audit(bootstrap, topic, sources))
    judgement = None
    if history is not None:
        history.polls.append(run(final_poll(bootstrap, topic, timeout_ms)))
        judgement = judge(history)
    _tell(report, judgement, of_shares, output)


def _tell(report: Report | None, judgement: Judgement | None, of_shares: ShareJudgement | None, output: str) -> None:
    """Print the findings; exit 1 if one is a violation."""
    if output == JSON:
        document = {} if report is None else report.to_json()
        if judgement is not None:
            document["transactions"] = to_json(judgement)
        if of_shares is not None:
            document["shares"] = shares_to_json(of_shares)
        print_json(document)
    else:
        for line in (
            *(text_lines(report) if report else ()),
            *(judged_lines(judgement) if judgement else ()),
            *(share_lines(of_shares) if of_shares else ()),
        ):
            print_line(line)
    is_fine = (report is None or report.is_balanced) and (judgement is None or judgement.is_clean)
    if not is_fine or (of_shares is not None and not of_shares.is_clean):
        raise SystemExit(EXIT_FAILED)


def own_directories(bootstrap: list[str], directory: Path) -> tuple[Path | None, dict[int, Path]]:
    """Return the directories of event and broker logs, if the cluster is the directory's."""
    if not (directory / FILE_NAME).exists():
        return None, {}
    file = load_cluster_file(directory)
    if not set(bootstrap) <= set(file.bootstrap_servers):
        return None, {}
    return directory / layout.LOGS, directories_of(directory, file)


# Text


def text_lines(report: Report) -> Iterator[str]:
    """Return the report as lines of text."""
    yield (
        f"Topic {report.topic}: {counted(report.partitions, 'partition')}, "
        f"{counted(report.records, 'committed record')}, {counted(report.replicas, 'replica')} compared"
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

"""``tidegauge dump-log FILE...``: show the contents of a log's files, in the layout of kafka-dump-log.sh.

Data on stdout, records as they are, unless that is a terminal, which their control characters could steer;
contradictions on stderr, as Kafka's sentences. With ``-o json`` a line for each item.
Exit 1 if a file cannot be read, or if ``--verify-index-only`` or ``--index-sanity-check`` found something.
"""

from __future__ import annotations

import base64
import sys
from pathlib import Path

import click

from tidegauge.cli import (
    EXIT_FAILED,
    EXIT_OK,
    offline_verb_options,
    print_json,
    print_line,
    print_text,
    reports_errors,
    say,
)
from tidegauge_broker.log.dump import MAX_BYTES, DumpItem, DumpOptions, Problems, dump_file


@click.command("dump-log")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--print-data-log", is_flag=True, help="Show the records too, with keys and values.")
@click.option("--deep-iteration", is_flag=True, help="Show the records too, without keys and values.")
@click.option(
    "--cluster-metadata-decoder", is_flag=True, help="Show the records of a KRaft cluster's metadata log, as JSON."
)
@click.option("--skip-record-metadata", is_flag=True, help="With the records, show keys and values only.")
@click.option("--verify-index-only", is_flag=True, help="Show nothing of an index, only check it against its log.")
@click.option("--index-sanity-check", is_flag=True, help="Check only what a broker checks when it starts.")
@click.option(
    "--max-bytes",
    type=click.IntRange(min=0),
    default=MAX_BYTES,
    metavar="N",
    help="Maximum number of bytes to read of a .log file.",
)
@offline_verb_options
@reports_errors
def dump_log(
    files: tuple[Path, ...],
    print_data_log: bool,
    deep_iteration: bool,
    cluster_metadata_decoder: bool,
    skip_record_metadata: bool,
    verify_index_only: bool,
    index_sanity_check: bool,
    max_bytes: int,
    output: str,
    directory: Path,
    bootstrap_server: str | None,
) -> None:
    """Show the batches, index entries and producers that FILE... hold.

    Takes .log, .index, .timeindex, .snapshot and .checkpoint files (snapshots of the metadata log); the indexes are
    checked against the .log file beside them. Only reads, so the broker may be running.
    """
    del directory, bootstrap_server  # every verb takes them; the files are named here
    options = DumpOptions(
        cluster_metadata_decoder=cluster_metadata_decoder,
        print_data_log=print_data_log,
        deep_iteration=deep_iteration,
        verify_index_only=verify_index_only,
        index_sanity_check=index_sanity_check,
        skip_record_metadata=skip_record_metadata,
        max_bytes=max_bytes,
    )
    problems = Problems()
    for path in files:
        if output == "text":
            print_line(f"Dumping {path}")
        for item in dump_file(path, options, problems):
            if output == "json":
                print_json(_json_of(path, item))
            else:
                (print_text if sys.stdout.isatty() else click.echo)(item.text)
    for line in problems.lines:
        say(line)
    checked = verify_index_only or index_sanity_check
    raise SystemExit(EXIT_FAILED if problems.lines and checked else EXIT_OK)


def _json_of(path: Path, item: DumpItem) -> dict[str, object]:
    fields = {name: _text_of(value) if isinstance(value, bytes) else value for name, value in item.fields.items()}
    return {"file": str(path), "kind": item.kind, **fields}


def _text_of(value: bytes) -> object:
    """Return a UTF-8 value as text, else as base64, as ``consume`` does."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}

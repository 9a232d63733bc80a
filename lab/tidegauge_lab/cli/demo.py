"""``tidegauge demo``: the whole system on real data, in about a minute and a half."""

from __future__ import annotations

import asyncio
import shutil
import signal
import tempfile
from pathlib import Path

import click

from tidegauge.cli import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, print_json, reports_errors, say, verb_options
from tidegauge_lab.demo.screen import keep_stdout_for_json, tell
from tidegauge_lab.demo.story import FIRST_ROWS, STREAM_SECONDS, Demo


async def _run(demo: Demo) -> list[str]:
    """Run the demo, and end it in order at the first Ctrl-C, SIGTERM or SIGHUP.

    A further signal changes nothing: ending takes seconds, and an end that is interrupted leaves processes behind.

    Raises:
        asyncio.CancelledError: it was interrupted, and has ended what it had started.
    """
    task = asyncio.current_task()
    assert task is not None

    def interrupt() -> None:
        if not task.cancelling():
            say("Interrupted: ending Spark, the brokers and ZooKeeper.")
            task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, interrupt)
    return await demo.run()


@click.command()
@verb_options
@click.option("--keep", is_flag=True, help="Keep the demo's directory, which else only a failed demo leaves.")
@click.option("--rows", type=click.IntRange(FIRST_ROWS + 1), help="Only the first N rows of the data set.")
@click.option(
    "--seconds", type=click.FloatRange(1), default=STREAM_SECONDS, show_default=True, help="How long the stream lasts."
)
@reports_errors
def demo(
    output: str, directory: Path, bootstrap_server: str | None, *, keep: bool, rows: int | None, seconds: float
) -> None:
    """Stream 336,776 flights through a cluster that loses a broker, into Parquet, and balance the books.

    It runs a cluster of its own in a new temporary directory; the one in --dir is not touched.
    """
    del directory, bootstrap_server
    if output == "json":
        keep_stdout_for_json()
    home = Path(tempfile.mkdtemp(prefix="tidegauge-demo-"))
    failed = True
    try:
        problems = asyncio.run(_run(Demo(home, rows, seconds)))
        failed = bool(problems)
    except asyncio.CancelledError:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # one more Ctrl-C would end the interpreter by a signal
        failed = False
        say("Nothing is left running.")
        raise SystemExit(EXIT_INTERRUPTED) from None
    finally:
        if (keep or failed) and any(home.iterdir()):
            say(f"The demo's files and logs are in {home}")
        else:
            shutil.rmtree(home, ignore_errors=True)
    for problem in problems:
        say(f"MISMATCH: {problem}")
    if not problems:
        tell("Every row once: source = acknowledged = Parquet.")
    if output == "json":
        print_json({"problems": problems})
    raise SystemExit(EXIT_FAILED if problems else EXIT_OK)

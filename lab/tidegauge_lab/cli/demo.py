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
    """Run the demo; SIGTERM ends it as Ctrl-C does, cleaning up."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await demo.run()


@click.command()
@verb_options
@click.option("--keep", is_flag=True, help="Keep the demo's directory (it is kept anyway when something failed).")
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
        say("Interrupted; nothing is left running.")
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

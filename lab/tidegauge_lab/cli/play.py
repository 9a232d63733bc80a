"""``tidegauge play``: a cluster in the browser, the brokers' own code as WebAssembly (docs/play.md).

Serves a page of static files on 127.0.0.1 until Ctrl-C; no broker, no ZooKeeper and no other port is opened. With
``--write`` the files are written to a directory instead, for any web server.
"""

from __future__ import annotations

import re
from pathlib import Path

import click

from tidegauge.cli import offline_verb_options, print_json, print_line, reports_errors
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.near_names import did_you_mean
from tidegauge_lab.play.runtime import missing

_SCHEDULE = re.compile(r"\d{1,6}~[a-z0-9]*~[a-z0-9.-]*", re.ASCII)


@click.command()
@click.option(
    "--port", type=click.IntRange(min=0, max=65535), default=0, help="Port on 127.0.0.1; 0 takes any that is free."
)
@click.option(
    "--write",
    "written",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write the page's files to this directory instead, for a web server of yours.",
)
@click.option("--story", metavar="NAME", help="Print an address that opens this story (docs/play.md).")
@click.option("--schedule", metavar="TEXT", help="Print an address that opens this schedule.")
@offline_verb_options
@reports_errors
def play(
    port: int,
    written: Path | None,
    story: str | None,
    schedule: str | None,
    output: str,
    directory: Path,
    bootstrap_server: str | None,
) -> None:
    """Run the brokers' own code in the browser: break a cluster with nothing but a page, on 127.0.0.1."""
    del directory, bootstrap_server  # every verb takes them; nothing is contacted here
    from tidegauge_lab.play.stories import stories  # noqa: PLC0415 - only this verb pays for it

    rest = _what_it_opens(story, schedule, [one["name"] for one in stories()])
    if sentence := missing():
        raise TidegaugeError(ErrorCode.INVALID_REQUEST, sentence)
    from tidegauge_lab.play.server import PlayServer  # noqa: PLC0415 - only this verb pays for it
    from tidegauge_lab.play.site import site_files, write_site  # noqa: PLC0415 - the same

    if written is not None:
        size = write_site(written)
        print_line(f"Wrote the page to {written}: {size / 1e6:.1f} MB. Serve it by HTTPS, or on 127.0.0.1.")
        return
    with PlayServer(port, site_files()) as server:
        url = f"http://127.0.0.1:{server.port}/{rest}"
        if output == "json":
            print_json({"url": url})
        else:
            print_line(f"{url}  (Ctrl-C ends it)")
        server.serve_forever()


def _what_it_opens(story: str | None, schedule: str | None, names: list[str]) -> str:
    """Return the end of the address: a story, a schedule, or nothing."""
    if story is not None and schedule is not None:
        raise TidegaugeError(ErrorCode.INVALID_REQUEST, "--story and --schedule exclude one another")
    if story is not None:
        if story not in names:
            hint = did_you_mean(story, names, f"; there are {', '.join(names)}")
            raise TidegaugeError(ErrorCode.INVALID_REQUEST, f"there is no story {story} in the browser{hint}")
        return f"?story={story}"
    if schedule is not None:
        if not _SCHEDULE.fullmatch(schedule):
            raise TidegaugeError(
                ErrorCode.INVALID_REQUEST,
                "a schedule is a version, settings and actions: 1~r0~p1-2-0.k0 (docs/play.md)",
            )
        return f"#{schedule}"
    return ""

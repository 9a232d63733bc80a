"""Types a verb of the command line, in this process: much quicker than a process of its own, the same otherwise."""

from __future__ import annotations

from typing import NamedTuple

from click.testing import CliRunner

from tidegauge_client.cli.main import run


class Typed(NamedTuple):
    """How a verb ended."""

    code: int
    stdout: str
    stderr: str


def typed(verb: str, *arguments: object, given: str = "") -> Typed:
    """Run a verb to its end as the entry point ``tidegauge`` does, with this standard input."""
    with CliRunner().isolation(given) as (out, err, _):
        try:
            code = run([verb, *map(str, arguments)])
        except SystemExit as ended:
            code = int(ended.code or 0)
    found = Typed(code, *(stream.getvalue().decode().replace("\r\n", "\n") for stream in (out, err)))
    assert "This is a fault in Tidegauge" not in found.stderr, found.stderr
    return found

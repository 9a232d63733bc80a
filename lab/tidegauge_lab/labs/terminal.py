"""A lab's page as a terminal shows it: prose wrapped, commands that can be pasted as they stand. Pure.

Rules:
    1. Commands begin at the left margin: an indented here-document would not end, an indented Python program not run.
    2. Prose among commands is in comments; a Python program is given to ``python`` in a here-document.
    3. English prose is wrapped; Chinese has no spaces to break lines at, and stays as it is.
    4. Where Kafka clients of this cluster connect stands in the commands, whatever ports the page has.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence

from tidegauge_lab.labs.texts import ENGLISH

WIDTH = 80
"""Columns of a line of prose, as in ``explain``."""
FIRST_KAFKA_PORT = 9092
FIRST_ADDRESS = f"127.0.0.1:{FIRST_KAFKA_PORT}"
_PAGES_ADDRESS = re.compile(r"127\.0\.0\.1:(909[2-9])\b")
_FENCE = "```"


def wrapped(text: str, *, first: str = "", rest: str = "") -> list[str]:
    """Return a paragraph in lines of ``WIDTH`` columns, with what begins the first line and the others."""
    return textwrap.wrap(
        text, WIDTH, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )


def page(source: str, language: str) -> str:
    """Return a page in Markdown with its prose wrapped; headings and blocks stay as they are."""
    lines: list[str] = []
    for is_block, part in _parts(source):
        lines += part if is_block or part[0].startswith("#") else _paragraph(part, language, "")
    return "\n".join(lines) + "\n"


def prose(section: str, language: str) -> str:
    """Return a section without blocks, wrapped."""
    return page(section, language).rstrip("\n")


def commands(section: str, language: str, addresses: Sequence[str]) -> str:
    """Return what is to do: prose as comments, blocks without fences and outputs, without the start of the lab.

    Args:
        section: of the page, in Markdown.
        language: of its prose.
        addresses: where the cluster's brokers listen for Kafka clients, by their place.
    """
    lines: list[str] = []
    for is_block, part in _parts(section):
        if not is_block:
            lines += _paragraph(part, language, "# ") if part[0] else part
            continue
        kind, body = part[0].removeprefix(_FENCE), part[1:-1]
        body = [line for line in body if not line.startswith("tidegauge lab start ")]
        if kind == "text" or not body:
            continue
        lines += ["python - <<'END'", *body, "END"] if kind == "python" else body
    text = "\n".join(_without_gaps(lines)).strip("\n")
    return _PAGES_ADDRESS.sub(lambda found: _address(int(found[1]), addresses) or found[0], text)


def _address(port: int, addresses: Sequence[str]) -> str | None:
    place = port - FIRST_KAFKA_PORT
    return addresses[place] if place < len(addresses) else None


def _paragraph(lines: Iterable[str], language: str, begin: str) -> list[str]:
    lines = list(lines)
    if language != ENGLISH or not "".join(lines):
        return [f"{begin}{line}" for line in lines]
    return wrapped(" ".join(lines), first=begin, rest=begin)


def _parts(text: str) -> Iterator[tuple[bool, list[str]]]:
    """Yield blocks with their fences (True), and paragraphs, headings and empty lines (False)."""
    part: list[str] = []
    in_block = False
    for line in text.splitlines():
        is_fence = line.startswith(_FENCE)
        if in_block:
            part.append(line)
            if is_fence:
                yield True, part
                part, in_block = [], False
            continue
        if part and (is_fence or not line or line.startswith("#")):
            yield False, part
            part = []
        if is_fence:
            part, in_block = [line], True
        elif not line or line.startswith("#"):
            yield False, [line]
        else:
            part.append(line)
    if part:
        yield False, part


def _without_gaps(lines: Sequence[str]) -> list[str]:
    """Return lines with at most one empty line between others."""
    return [line for place, line in enumerate(lines) if line or (place and lines[place - 1])]

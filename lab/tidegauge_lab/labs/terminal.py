"""A lab's page as a terminal shows it: prose wrapped, commands that can be pasted unchanged. Pure.

Rules:
    1. Commands begin at the left margin: an indented here-document would not end, an indented Python program not run.
    2. Prose among commands is in comments; a Python program is given to ``python`` in a here-document.
    3. English prose is wrapped; Chinese has no spaces to break lines at, and stays as it is.
    4. The commands have this cluster's addresses for Kafka clients, whatever ports the page has.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence

import click

from tidegauge_client.languages import ENGLISH

WIDTH = 80
"""Columns of a line of prose, as in ``explain``."""
FIRST_KAFKA_PORT = 9092
FIRST_ADDRESS = f"127.0.0.1:{FIRST_KAFKA_PORT}"
_PAGES_ADDRESS = re.compile(r"127\.0\.0\.1:(909[2-9])\b")
_FENCE = "```"
_LINK = re.compile(r"\[([^]\n]+)\]\([^)\n]+\)")
_CODE = re.compile(r"`([^`\n]+)`")
_BEGIN, _END = "\x01", "\x02"
_MARKED = re.compile(f"{_BEGIN}([^{_END}]*){_END}")


def wrapped(text: str, *, first: str = "", rest: str = "") -> list[str]:
    """Return a paragraph in lines of ``WIDTH`` columns with these prefixes."""
    return textwrap.wrap(
        text, WIDTH, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )


def page(source: str, language: str) -> str:
    """Return a page in Markdown with its prose wrapped; headings and blocks stay."""
    lines: list[str] = []
    for is_block, part in _parts(source):
        lines += part if is_block or part[0].startswith("#") else _paragraph(part, language, "")
    return "\n".join(lines) + "\n"


def rendered(source: str, language: str) -> str:
    """Return a page in Markdown with a terminal's bold and colours.

    Commands stay at the left margin without their fences (rule 1), what they print is indented, a heading is bold, a
    link is its text, and ``code`` has a colour.
    """
    lines: list[str] = []
    for is_block, part in _parts(source):
        if is_block:
            is_output = part[0].removeprefix(_FENCE) == "text"
            lines += [f"    {line}" if line else "" for line in part[1:-1]] if is_output else map(_command, part[1:-1])
        elif part[0].startswith("#"):
            lines.append(click.style(part[0].lstrip("#").strip(), bold=True))
        else:
            lines += _with_colours(_paragraph(map(_with_marks, part), language, ""))
    return "\n".join(lines) + "\n"


def _command(line: str) -> str:
    return click.style(line, fg="green") if line else line


def _with_marks(line: str) -> str:
    """Replace Markdown within a line: a link by its text, code by marks of no width."""
    return _CODE.sub(rf"{_BEGIN}\1{_END}", _LINK.sub(r"\1", line))


def _with_colours(lines: Iterable[str]) -> list[str]:
    """Replace the marks in wrapped lines by colours; code that a line break divides has them on both lines."""
    shown, is_code = [], False
    for line in lines:
        text = (_BEGIN if is_code else "") + line
        is_code = text.count(_BEGIN) > text.count(_END)
        shown.append(_MARKED.sub(lambda found: click.style(found[1], fg="cyan"), text + (_END if is_code else "")))
    return shown


def prose(section: str, language: str) -> str:
    """Return a section without blocks, wrapped."""
    return page(section, language).rstrip("\n")


def commands(section: str, language: str, addresses: Sequence[str]) -> str:
    """Return a section as a script: prose as comments, blocks without fences and outputs.

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

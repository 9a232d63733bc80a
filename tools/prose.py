#!/usr/bin/env python3
"""Counts turns of phrase that a reader has to translate, per file: they may fall and never rise.

Usage::

    python tools/prose.py            the totals by part of the repository
    python tools/prose.py --worst 20 the files with most of them
    python tools/prose.py --write    lower the baseline to the counts; fails if a count has risen
    python tools/prose.py --reset    write the counts, risen ones too, after a merge of work that did not know it

``tests/unit/repo/test_prose.py`` compares each file with ``tests/unit/repo/prose_baseline.txt``. A file that the
baseline does not have may have none.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
BASELINE = ROOT / "tests/unit/repo/prose_baseline.txt"
MOST_WORDS = 12
"""Words of a first line after "Return": a longer one hides two sentences."""
PATTERNS: Mapping[str, re.Pattern[str]] = {
    "what-is": re.compile(r"\b(?:what|whatever)(?: |\n *#? ?)(?:is|are|was|were|has|have|had)\b", re.IGNORECASE),
    "where-if": re.compile(
        r"\bwhere(?: |\n *#? ?)(?:there|it|they|that|this|these|those|one|none|no|nothing|not|such)\b", re.IGNORECASE
    ),
    "headless": re.compile(
        r'(?:(?<=[.:;] )|(?<=""")|(?<=\| )|(?<=- )|^ *#? ?)(?:What|Who|Whoever|Whatever) [^?\n]*(?:$|\.)', re.MULTILINE
    ),
    "those-of": re.compile(r"\b(?:those|that)(?: |\n *#? ?)of\b", re.IGNORECASE),
    "stands": re.compile(r"\b(?:stands?|stood)\b(?!-| (?:for|in for|alone|out|by|up|still)\b)", re.IGNORECASE),
    "see-module": re.compile(r"\bSee the module\b"),
    "semicolons": re.compile(r'[^.?!;`\n|"]+;(?: |\n *#? ?)[^.?!;`|"]+;(?: |\n)[^.?!;`|"]+[.\n]'),
    "test-name": re.compile(
        r"def test_\w*?_(?:what_(?:is|was|has|are)|who|those_of|that_of|stands?|where_(?:there|it|they|no|none))_"
    ),
}
"""Counted patterns, by the name in the baseline."""
_RETURN = re.compile(r'"""Returns? ([^\n]*)')
_GENERATED = re.compile(
    r"proto/tidegauge/(?:v1|kafka/messages|kafka/coordinator|kafka/kraft/messages|kafka/kraft/control_messages"
    r"|kafka/metadata_records)/|.*/sync(?:_admin|_cluster)?\.py$|.*_snapshot\.|docs/zh/|docs/adr/|docs/gallery/"
    r"|lab/tidegauge_lab/(?:scenario|watch|labs|accountant)/(?:texts|sentences|findings)_zh|client/tidegauge_client/explanations_zh"
    r"|tests/unit/repo/prose_baseline|tools/prose\.py|tests/unit/repo/test_prose\.py"
)
_BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def counted(text: str) -> Counter[str]:
    """Return how often each pattern is in a text."""
    found = Counter({name: len(pattern.findall(text)) for name, pattern in PATTERNS.items()})
    found["long-return"] = sum(len(line.split()) > MOST_WORDS for line in _RETURN.findall(text))
    return +found


def files() -> Iterator[str]:
    """Yield the files with prose that people write, as git knows them."""
    listed = subprocess.run(
        ["git", "ls-files", "*.py", "*.md", "*.yaml", "*.js", "*.html", "*.proto", "Makefile"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    return (name for name in listed if not _GENERATED.match(name) and (ROOT / name).exists())


def of_repository() -> dict[str, Counter[str]]:
    """Return the counts of all files that have any."""
    found = {}
    for name in files():
        text = (ROOT / name).read_text(encoding="utf-8")
        counts = counted(_BLOCK.sub("", text) if name.endswith(".md") else text)
        if name.endswith((".js", ".html")):
            del counts["semicolons"]  # the language's own
        if counts:
            found[name] = counts
    return found


def read(text: str) -> dict[str, Counter[str]]:
    """Return the counts in a baseline's text."""
    found = {}
    for line in text.splitlines():
        name, *counts = line.split()
        found[name] = Counter({key: int(value) for key, _, value in (one.partition("=") for one in counts)})
    return found


def written(counts: Mapping[str, Counter[str]]) -> str:
    """Return the text of a baseline."""
    lines = (
        " ".join([name, *(f"{key}={value}" for key, value in sorted(of_file.items()))])
        for name, of_file in sorted(counts.items())
    )
    return "".join(f"{line}\n" for line in lines)


def risen(baseline: Mapping[str, Counter[str]], counts: Mapping[str, Counter[str]]) -> list[str]:
    """Return the counts that are above the baseline, a sentence each."""
    return [
        f"{name}: {key} {value}, at most {baseline.get(name, Counter())[key]}"
        for name, of_file in sorted(counts.items())
        for key, value in sorted(of_file.items())
        if value > baseline.get(name, Counter())[key]
    ]


def part_of(name: str) -> str:
    """Return the part of the repository to which a file belongs."""
    first, *others = name.split("/")
    return first if others else "(root)"


def totals(counts: Mapping[str, Counter[str]]) -> Iterator[str]:
    """Return the table of totals by part."""
    names = [*PATTERNS, "long-return"]
    parts: dict[str, Counter[str]] = {}
    for name, of_file in counts.items():
        parts.setdefault(part_of(name), Counter()).update(of_file)
    yield f"{'':12}" + "".join(f"{name:>12}" for name in (*names, "all"))
    rows = [*sorted(parts.items()), ("all", sum(parts.values(), Counter()))]
    for part, of_part in rows:
        yield f"{part:12}" + "".join(f"{value:>12}" for value in [*(of_part[name] for name in names), of_part.total()])


def main() -> int:
    """Count, and print or write; return 1 if a count has risen that was to be written."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--write", action="store_true", help="lower the baseline to what is counted")
    parser.add_argument("--reset", action="store_true", help="write what is counted, risen counts too")
    parser.add_argument("--worst", type=int, metavar="N", help="list the N files with most")
    options = parser.parse_args()
    counts = of_repository()
    if options.write and (found := risen(read(BASELINE.read_text(encoding="utf-8")), counts)):
        print(*found, sep="\n")
        return 1
    if options.write or options.reset:
        BASELINE.write_text(written(counts), encoding="utf-8")
    if options.worst:
        worst = sorted(counts.items(), key=lambda one: -one[1].total())[: options.worst]
        print(*(f"{of_file.total():5} {name}  {dict(of_file)}" for name, of_file in worst), sep="\n")
    else:
        print(*totals(counts), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

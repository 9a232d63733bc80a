"""Every page: its links lead somewhere, its commands and their options exist, its blocks are run or say why not."""

import re
import shlex
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import click
import pytest
from tests.documents import blocks

from tidegauge_client.cli.main import may_be_meant

ROOT = Path(__file__).parents[3]
PAGES = sorted(
    path
    for path in [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("spark_jobs/*.md"),
        *ROOT.glob("examples/*.md"),
    ]
    if "tidegauge-data" not in path.parts
)
CHAPTERS = sorted(ROOT.glob("docs/guide/[0-9]*.md"))
LINK = re.compile(r"\]\(([^)#\s]+)?(?:#([^)\s]+))?\)")
COMMAND = re.compile(r"(?:^|`)\s*(tidegauge [a-z][^`#|]*?)\s*(?=`|$|#|\|)", re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """The names that a heading gets."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path):
    text = re.sub(r"```.*?```|!\[[^]]*\]\([^)]*\)", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    dead = []
    for path, anchor in LINK.findall(text):
        if "://" in path:
            continue
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            dead.append(f"{path}#{anchor}")
    assert dead == []


def options_of(verb: click.Command) -> set[str]:
    own = {name for parameter in verb.params for name in [*parameter.opts, *parameter.secondary_opts]}
    below = set().union(*map(options_of, verb.commands.values())) if isinstance(verb, click.Group) else set()
    return own | below | {"-h", "--help", "--version"}


def test_commands_and_options_that_pages_name_exist():
    named = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["tidegauge.verbs"]
    verbs = {name: EntryPoint(name, target, "tidegauge.verbs") for name, target in named.items()}
    wrong, seen = [], 0
    for page in PAGES:
        for found in COMMAND.finditer(page.read_text(encoding="utf-8")):
            words = shlex.split(found[1].replace("\\\n", " ").replace("'", ""))
            if not re.fullmatch(r"[a-z]+(-[a-z]+)*", words[1]):
                continue
            seen += 1
            if words[1] not in verbs:
                wrong.append(f"{page.relative_to(ROOT)}: {found[1]}")
                continue
            known = options_of(verbs[words[1]].load())
            given = {word.split("=")[0] for word in words[2:] if re.match(r"--?[a-zA-Z]", word)}
            if given - known:
                wrong.append(f"{page.relative_to(ROOT)}: {found[1]}: {sorted(given - known)}")
    assert wrong == []
    assert seen > 30


def test_readme_first_steps_and_chapters_are_run_or_say_why_not():
    """A command in a block without a language would be read, and never run."""
    hidden = [
        f"{page.name}:{block.line}"
        for page in [ROOT / "README.md", ROOT / "docs/first-steps.md", *CHAPTERS]
        for block in blocks(page.read_text(encoding="utf-8"))
        if block.language not in {"sh", "python", "yaml"}
        and re.search(r"^(?:\$ )?tidegauge ", block.text, re.MULTILINE)
    ]
    assert hidden == []


def test_the_guide_lists_its_chapters():
    index = (ROOT / "docs/guide/README.md").read_text(encoding="utf-8")
    assert len(CHAPTERS) == 28
    assert [page.name for page in CHAPTERS if f"({page.name})" not in index] == []


def test_labs_are_run_or_say_why_not():
    hidden = [
        f"{page.name}:{block.line}"
        for page in ROOT.glob("docs/labs/[0-9]*.md")
        for block in blocks(page.read_text(encoding="utf-8"))
        if block.language not in {"sh", "python"} and re.search(r"^(?:\$ )?tidegauge ", block.text, re.MULTILINE)
    ]
    assert hidden == []


def test_the_index_has_every_page():
    index = (ROOT / "docs/README.md").read_text(encoding="utf-8")
    pages = [page.name for page in ROOT.glob("docs/*.md") if page.name != "README.md"]
    pages += [f"guide/{page.name}" for page in ROOT.glob("docs/guide/[a-z]*.md")]
    assert [page for page in pages if f"({page})" not in index] == []


def test_the_command_line_page_has_every_verb_and_every_tool_of_kafkas_a_verb_that_exists():
    page = (ROOT / "docs/command-line.md").read_text(encoding="utf-8")
    verbs = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["tidegauge.verbs"])
    table = page.partition("## The verbs")[2]
    assert sorted(verb for verb in verbs if f"`{verb}`" not in table and f"`{verb} " not in table) == []
    sheet = (ROOT / "docs/kafka-tools.md").read_text(encoding="utf-8")
    tools = sheet.partition("## Tool by tool")[2].partition("## ")[0]
    cells = [line.split("|")[2] for line in tools.splitlines() if line.startswith("| `")]
    named = {word.split()[0] for cell in cells for word in re.findall(r"`([a-z][^`]*)`", cell)} - {"bench/"}
    assert named - verbs == set()
    assert len(cells) >= 20


def test_the_name_of_a_tool_of_kafkas_leads_to_a_verb_of_its_row():
    """The cheat sheet's promise: given such a name, `tidegauge` names the verbs for it."""
    verbs = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["tidegauge.verbs"]
    sheet = (ROOT / "docs/kafka-tools.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1:3] for line in sheet.splitlines() if line.startswith(("| `kafka-", "| `kcat"))]
    led, tried = [], 0
    for tools, there in rows:
        named = {word.split()[0] for word in re.findall(r"`(?:tidegauge )?([a-z][^`]*)`", there)} & set(verbs)
        for tool in set(re.findall(r"kafka-[a-z-]+\.sh|\bkcat\b", tools)) if named else ():
            tried += 1
            if not named & set(may_be_meant(tool, sorted(verbs))):
                led.append((tool, may_be_meant(tool, sorted(verbs)), named))
    assert led == []
    assert tried > 40

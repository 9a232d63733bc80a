"""A lab's page in a terminal: prose within 80 columns, and commands that can be pasted unchanged."""

from __future__ import annotations

import ast
import subprocess

import click
import pytest
from tests.documents import blocks

from tidegauge_client.languages import CHINESE, ENGLISH, LANGUAGES
from tidegauge_lab.labs import terminal
from tidegauge_lab.labs.catalogue import LABS
from tidegauge_lab.labs.model import Lab
from tidegauge_lab.labs.texts import text_of

each_lab = pytest.mark.parametrize("lab", LABS, ids=lambda lab: lab.name)
each_language = pytest.mark.parametrize("language", LANGUAGES)
USUAL = [f"127.0.0.1:{terminal.FIRST_KAFKA_PORT + number}" for number in range(4)]

SECTION = """
Hold the followers, write, and read. This line of prose is longer than a terminal of eighty columns is wide, so it is
wrapped:

```sh
tidegauge lab start x
```

```sh
cat > move.json <<'END'
{"servers": "127.0.0.1:9093"}
END
```

```text
not shown
```

```python
def f():
    return "127.0.0.1:9092, 127.0.0.1:9099, 127.0.0.1:19092"


f()
```
"""


def test_prose_is_comments_blocks_begin_at_the_margin_and_addresses_are_the_clusters() -> None:
    assert terminal.commands(SECTION, ENGLISH, ["127.0.0.1:9300", "127.0.0.1:9301"]).splitlines() == [
        "# Hold the followers, write, and read. This line of prose is longer than a",
        "# terminal of eighty columns is wide, so it is wrapped:",
        "",
        "cat > move.json <<'END'",
        '{"servers": "127.0.0.1:9301"}',
        "END",
        "",
        "python - <<'END'",
        "def f():",
        '    return "127.0.0.1:9300, 127.0.0.1:9099, 127.0.0.1:19092"',
        "",
        "f()",
        "END",
    ]


def test_chinese_prose_stays_as_it_is() -> None:
    """It has no spaces to break a line at, and the terminal breaks it anywhere."""
    sentence = "先写一条所有副本都有的消息" * 10
    assert terminal.prose(sentence, CHINESE) == sentence
    assert terminal.commands(sentence, CHINESE, USUAL) == f"# {sentence}"


@each_lab
@each_language
def test_what_a_start_shows_is_a_program_of_the_shell(lab: Lab, language: str) -> None:
    """Bash reads it to the end, here-documents too, and every command of the page is in it."""
    text = text_of(lab, language)
    shown = terminal.commands(text.sections["Do"], language, USUAL)
    read = subprocess.run(["bash", "-n"], input=shown, capture_output=True, text=True, check=False)
    assert (read.returncode, read.stderr) == (0, ""), "an unfinished here-document is a warning"
    for block in blocks(text.sections["Do"]):
        if block.language == "sh":
            wanted = [line for line in block.text.splitlines() if line and not line.startswith("tidegauge lab start ")]
            assert set(wanted) <= set(shown.splitlines())
    programs = shown.split("python - <<'END'\n")[1:]
    assert len(programs) == sum(block.language == "python" for block in blocks(text.sections["Do"]))
    for program in programs:
        ast.parse(program.partition("\nEND")[0])


@each_lab
def test_english_prose_fits_into_80_columns_and_no_word_is_lost(lab: Lab) -> None:
    text = text_of(lab)
    shown = terminal.page(text.shown, ENGLISH)
    assert shown.split() == text.shown.split()
    prose = [line for number, part in enumerate(shown.split("```")) if number % 2 == 0 for line in part.splitlines()]
    assert max(len(line) for line in prose if not line.startswith("#")) <= terminal.WIDTH
    assert [block.text for block in blocks(shown)] == [block.text for block in blocks(text.shown)]


@each_lab
@each_language
def test_a_page_is_shown_without_markdown_and_its_commands_can_be_pasted(lab: Lab, language: str) -> None:
    """Fences, links and quotes of code are for a page in a browser; a terminal has colours."""
    text = text_of(lab, language)
    shown = click.unstyle(terminal.rendered(text.shown, language))
    assert "```" not in shown
    assert "](" not in shown
    assert not [line for line in shown.splitlines() if line.startswith("## ")]
    assert "\x01" not in shown
    assert "\x02" not in shown
    for block in blocks(text.shown):
        indent = "    " if block.language == "text" else ""
        assert "\n".join(f"{indent}{line}" if line else "" for line in block.text.splitlines()) in shown


def test_code_that_a_line_break_divides_is_coloured_on_both_lines() -> None:
    words = "word " * 14
    shown = terminal.rendered(f"{words}`tidegauge lab start`\n", ENGLISH).splitlines()
    assert shown[0].endswith(click.style("tidegauge", fg="cyan"))
    assert shown[1] == click.style("lab start", fg="cyan")

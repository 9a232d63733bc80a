"""The recording of a terminal in docs/images (tools/pictures.py)."""

from __future__ import annotations

import re

from tools.pictures import COLUMNS, Line, svg


def test_every_line_of_the_recording_appears_at_its_time_though_one_before_it_is_wrapped() -> None:
    """A wrapped line is two lines of the picture: without a rule of its own each would be visible from the begin."""
    picture = svg([Line(1.0, "word " * (COLUMNS // 4)), Line(1.5, ""), Line(2.0, "last")])
    times = dict(re.findall(r'url\(#terminal-line-(\d+)\)"\]\{animation:come 1ms ([\d.]+)s', picture))
    assert times == {"0": "1.00", "1": "1.00", "3": "2.00"}

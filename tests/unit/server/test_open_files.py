"""A broker raises its limit of open files: a thousand logs must not meet the common soft limit of 1,024."""

from __future__ import annotations

import subprocess
import sys

LOOK = """
import resource
from tidegauge_broker.server.verb import allow_many_files
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
allow_many_files()
print(resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard))
"""


def test_the_soft_limit_is_raised_to_the_hard_one():
    reported = subprocess.run([sys.executable, "-c", LOOK], capture_output=True, text=True, check=True)
    assert reported.stdout == "True\n"

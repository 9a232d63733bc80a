"""Ctrl-C while a search starts its processes: they don't get it, and it is not lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tidegauge_proof.simulator.search import without_ctrl_c

BLOCKS = "import signal; print(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, []))"


def test_ctrl_c_while_processes_start_counts_when_they_have_started() -> None:
    """It was ignored, and a search of hours went on as if nothing had been pressed."""
    has_started = False
    with pytest.raises(KeyboardInterrupt), without_ctrl_c():
        os.kill(os.getpid(), signal.SIGINT)
        has_started = True
    assert has_started


def test_processes_that_are_started_do_not_get_it_and_the_search_does_afterwards() -> None:
    before = signal.getsignal(signal.SIGINT)
    with without_ctrl_c():
        started = subprocess.run([sys.executable, "-c", BLOCKS], capture_output=True, text=True, check=True)
    assert started.stdout == "True\n"
    assert signal.getsignal(signal.SIGINT) is before
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])

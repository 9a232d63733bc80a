"""Checks the lab whose cluster is in a directory: the one way for the command line and for the page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tidegauge.cluster_directory import command_for
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge_lab.labs.gathering import gather
from tidegauge_lab.labs.model import Finding, Lab, judged, passes
from tidegauge_lab.labs.running import lab_in


class Checked(NamedTuple):
    """The result of a check of a lab's cluster."""

    lab: Lab
    findings: Sequence[Finding]

    @property
    def passed(self) -> bool:
        """Whether everything is as the lab wants it."""
        return passes(list(self.findings))

    @property
    def verdict(self) -> str:
        """The last sentence: done, or what to do next."""
        if self.passed:
            return f"{self.lab.name}: done. Compare with your prediction, then `tidegauge lab show {self.lab.name}`."
        failed = next(one for one in self.findings if not one.holds)
        return f"{self.lab.name}: not yet. Next: {failed.next or 'see above'}."

    def as_json(self) -> dict[str, object]:
        """For ``-o json``."""
        return {
            "lab": self.lab.name,
            "passed": self.passed,
            "findings": [{"holds": one.holds, "text": one.text, "next": one.next} for one in self.findings],
        }


def check(directory: Path, wanted: Lab | None = None) -> Checked:
    """Let the cluster in a directory say which steps of its lab are done, and which are not.

    Args:
        directory: the cluster's.
        wanted: the lab that is meant; None: whichever has its cluster there.

    Raises:
        TidegaugeError: INVALID_REQUEST, there is no lab's cluster in the directory, or another lab's.
    """
    running = lab_in(directory)
    if running is None:
        name = "NAME" if wanted is None else wanted.name
        raise TidegaugeError(
            ErrorCode.INVALID_REQUEST,
            f"there is no lab's cluster in {directory.absolute()}; "
            f"{command_for(directory, f'lab start {name}')} starts one",
        )
    if wanted is not None and wanted is not running:
        raise TidegaugeError(
            ErrorCode.INVALID_REQUEST,
            f"the cluster in {directory.absolute()} belongs to lab {running.name}; "
            f"{command_for(directory, 'lab stop')} ends it",
        )
    return Checked(running, judged(running, gather(directory)))

"""When the steps of a scenario are played: at once, or when the viewer asks for the next one."""

from __future__ import annotations

from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.scenario.outcome import Outcome


class Pace:
    """Each step at once; a subclass may wait, and look at the played steps.

    All methods run in the player's thread. An exception of one of them ends the run: the cluster is taken down.
    """

    later_ms = 120_000
    """How long a produce may be without its response where the story goes on meanwhile."""

    def on_stage(self, cluster: LocalCluster) -> None:
        """Do nothing: the cluster is up, and no topic is there yet."""

    def before(self, number: int) -> float:
        """Wait until a step may be played.

        Args:
            number: of the step, from 0 on.

        Returns:
            The seconds waited, which do not count for the scenario's limit.
        """
        del number
        return 0.0

    def after(self, outcome: Outcome) -> None:
        """Do nothing: the last of the outcome's steps has been played, and the outcome says whether it failed."""

    def at_end(self, outcome: Outcome) -> None:
        """Do nothing: no step follows; the cluster is taken down after this."""


AT_ONCE = Pace()

"""Every lab, done by a learner in an empty directory: its commands do what its page shows, and the cluster agrees.

Right after the start each check must refuse: nothing was done yet. The quickest lab is part of each run.
"""

from pathlib import Path

import pytest
from tests.integration.conftest import free_base_port
from tests.lab_pages import PORTS, LabReader

from tidegauge_lab.labs.catalogue import LABS
from tidegauge_lab.labs.model import Lab

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
QUICK = {"high-watermark"}


def of(lab: Lab) -> object:
    marks = [pytest.mark.timeout(1200)] if lab.name in QUICK else [pytest.mark.long, pytest.mark.timeout(1500)]
    return pytest.param(lab, marks=marks, id=lab.name)


@pytest.mark.parametrize("lab", [of(lab) for lab in LABS])
def test_a_lab_leads_where_its_page_says_and_not_before(lab: Lab, tmp_path: Path) -> None:
    reader = LabReader(tmp_path, free_base_port(PORTS))
    try:
        reader.follow(ROOT / "docs" / "labs" / lab.page)
        assert reader.before is not None
        assert not reader.before["passed"], "the check passed before anything was done"
        assert not (tmp_path / "tidegauge-data").exists(), "`lab stop` leaves nothing"
    finally:
        reader.close()


def test_the_quick_lab_is_there() -> None:
    assert {lab.name for lab in LABS} >= QUICK

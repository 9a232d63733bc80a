"""Each of Jepsen's published anomalies of Kafka and its kin is convicted; what Kafka permits is not."""

from __future__ import annotations

import pytest
from tests.planted_anomalies import PLANTED
from tests.unit.accountant.transaction_histories import Writer


@pytest.mark.parametrize("name", PLANTED)
def test_the_accountant_convicts(name, tmp_path):
    history = Writer()
    PLANTED[name].write(history)
    assert history.kinds(tmp_path) == PLANTED[name].found

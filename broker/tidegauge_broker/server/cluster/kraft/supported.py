"""The features that a broker here supports, with their levels.

Missing features are supported at level 0 alone: a cluster that has finalised another level refuses the
registration, so that no client is promised a feature that is missing.
Source: ``BrokerFeatures.defaultSupportedFeatures``.
"""

from __future__ import annotations

from tidegauge.kafka.kraft.features import (
    ELR_VERSION,
    FEATURES,
    GROUP_VERSION,
    KRAFT_VERSION,
    METADATA_VERSION,
    SHARE_VERSION,
    TRANSACTION_VERSION,
)
from tidegauge_controller.metadata.versions import LATEST_METADATA_VERSION, OLDEST_METADATA_VERSION

_HIGHEST = {ELR_VERSION: 1, GROUP_VERSION: 1, KRAFT_VERSION: 1, SHARE_VERSION: 1, TRANSACTION_VERSION: 2}
SUPPORTED: dict[str, tuple[int, int]] = {
    METADATA_VERSION: (OLDEST_METADATA_VERSION, LATEST_METADATA_VERSION),
    **{name: (0, _HIGHEST.get(name, 0)) for name in FEATURES},
}
"""The lowest and the highest level by the feature's name."""

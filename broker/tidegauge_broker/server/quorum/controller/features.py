"""The features that a controller supports: its own metadata's features, and features that only its brokers act by."""

from __future__ import annotations

from tidegauge.kafka.kraft.features import FEATURES, KRAFT_VERSION
from tidegauge_controller.metadata.decisions.features import SUPPORTED_FEATURES
from tidegauge_controller.metadata.image import FeatureRange

FEATURE_RANGES = {name: FeatureRange(0, one.highest) for name, one in FEATURES.items()} | dict(SUPPORTED_FEATURES)
"""Levels by name, kraft.version among them (``QuorumFeatures.defaultSupportedFeatureMap``)."""
FINALIZED_HERE = {name: levels for name, levels in FEATURE_RANGES.items() if name != KRAFT_VERSION}
"""Levels of the features whose finalised level is a metadata record; kraft.version's is a control record."""

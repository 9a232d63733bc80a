"""Facts that all components of Tidegauge share: wire messages, errors, znodes, settings, the batch header."""

__version__ = "0.1.0"

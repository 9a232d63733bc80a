"""The documentation site (``make docs``): README and docs/ as they are, and a reference from docstrings and schemas."""

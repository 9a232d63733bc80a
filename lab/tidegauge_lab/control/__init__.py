"""A running cluster steered over HTTP, from any language (docs/steering.md)."""

"""Keep the metadata that the controller sends."""

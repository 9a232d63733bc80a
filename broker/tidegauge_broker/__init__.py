"""The broker: pure replication core, purgatory, log on disk, and the server shell around them."""

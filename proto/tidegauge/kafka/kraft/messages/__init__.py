"""One module per API of a KRaft quorum: requests and responses."""

"""Keep settings current with what the cluster keeps."""

"""A broker's access to its cluster's metadata: ``ports``, an implementation for each mode, and the choice of one."""

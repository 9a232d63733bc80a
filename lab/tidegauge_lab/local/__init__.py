"""Run a cluster on this machine: processes, ports, directories, start-up and takedown."""

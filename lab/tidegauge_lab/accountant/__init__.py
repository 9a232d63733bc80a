"""The accountant (row B6): compares what producers were told with what the cluster kept. Pure; no I/O in here."""

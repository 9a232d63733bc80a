"""The accountant: compares the responses that producers got with what the cluster kept. Pure; no I/O in here."""

"""A cluster of the real pure cores under simulated time, network and controller: random histories, and replay."""

"""The controllers of the simulated cluster: a kind of them is a parameter of the world."""

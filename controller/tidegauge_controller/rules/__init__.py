"""Rules of a controller that are the same whatever keeps its state: pure, and free of any store."""

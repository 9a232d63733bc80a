"""Rules of a controller that are the same for every store of its state: pure, and free of any store."""

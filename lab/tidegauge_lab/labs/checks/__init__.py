"""What each lab's check says, from the evidence alone: pure."""

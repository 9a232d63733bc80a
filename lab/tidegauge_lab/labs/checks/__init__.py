"""The findings of each lab's check, from the evidence alone: pure."""

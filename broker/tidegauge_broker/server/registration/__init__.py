"""A broker's requests to the controller."""

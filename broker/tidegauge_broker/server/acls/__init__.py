"""What a request may do by the access control lists."""

"""What the tests share. No test imports another."""

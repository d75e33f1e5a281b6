"""Makes the model itself smaller: fewer tokens, fewer layers."""

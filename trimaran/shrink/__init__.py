"""Makes the model itself smaller: fewer tokens."""

"""Makes the model itself smaller: fewer tokens, fewer layers, or a BiLSTM in its place."""

"""The public HTTP interface. Triton stays on the loopback behind it."""

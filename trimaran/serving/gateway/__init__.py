"""The only thing to expose: public HTTP in front of a Triton that stays on the loopback."""

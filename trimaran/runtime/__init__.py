"""The files that travel with a deployed model: what was proven here is, byte for byte, what serves there.

Nothing in this folder imports the rest of trimaran. The official Triton container needs only numpy, tokenizers
and the engine's own library to run it.
"""

"""Proven models in this process: `trimaran.load`, without Triton."""

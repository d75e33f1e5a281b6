"""Trained transformer encoders into production: exported, quantised, proven, measured and served by Triton."""

__version__ = "0.1.0"

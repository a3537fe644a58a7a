"""Weights & Biases: logging, dashboard, upload."""

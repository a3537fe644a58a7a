"""The run folder, declared once: configuration, result, checkpoints, metrics."""

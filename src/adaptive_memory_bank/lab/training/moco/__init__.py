"""The task `moco`: momentum contrast."""

"""The commands of `amb` that train and use trained runs: one module each."""

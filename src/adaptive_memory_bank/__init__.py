"""A memory bank whose stored embeddings follow the encoder as it trains."""

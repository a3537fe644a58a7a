"""The task `retrieval`: supervised-contrastive training with a memory."""

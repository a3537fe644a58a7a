"""Trainers on Lightning: supervised-contrastive retrieval (`retrieval.run`) and MoCo (`moco.run`)."""

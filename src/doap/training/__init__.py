"""The training loop, its recipe, its checkpoints and its log."""

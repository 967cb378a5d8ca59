"""Sets of patches: made, kept, sampled."""

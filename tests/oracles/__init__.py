"""Slow, obvious versions of what doap computes fast. Loops on purpose: they are to be believed by reading."""

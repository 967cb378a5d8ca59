"""The same loop with a loss of pytorch-metric-learning in the place of ours: nothing else changes.

python examples/their_loss.py
"""

from __future__ import annotations

# The file beside this one.
from own_loop import train
from pytorch_metric_learning.losses import FastAPLoss

if __name__ == "__main__":
    before, after = train(FastAPLoss(num_bins=25))
    print(f"FastAPLoss: mean AP of unseen points {before:.3f} before, {after:.3f} after")

"""Train with the same loop as `custom_loop.py` and a loss of pytorch-metric-learning.

pip install 'doap[examples]'
python examples/third_party_loss.py
"""

from __future__ import annotations

from custom_loop import train
from pytorch_metric_learning.losses import FastAPLoss

if __name__ == "__main__":
    before, after = train(FastAPLoss(num_bins=25))
    print(f"FastAPLoss: mean AP on held-out points {before:.3f} before, {after:.3f} after")

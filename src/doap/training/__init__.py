"""Training: `train` runs a recipe and is resumable."""

from doap.training.config import Config, read_recipe
from doap.training.log import read_log
from doap.training.loop import train
from doap.training.page import headline, write_training_page

__all__ = ["Config", "headline", "read_log", "read_recipe", "train", "write_training_page"]

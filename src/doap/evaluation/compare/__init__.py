"""Should I switch? One descriptor against others on somebody's own photos, of which nothing is known."""

from doap.evaluation.compare.comparison import Comparison
from doap.evaluation.compare.run import compare_photos

__all__ = ["Comparison", "compare_photos"]

"""Pages that need nothing else: one HTML file with its style, its charts and its pictures inside."""

from doap.html.axes import Axis
from doap.html.charts import Dot, Line, Whisker, dot_chart, histogram_chart, line_chart, scatter_chart
from doap.html.page import data_uri, picture_cards, setting_tables, write_html

__all__ = [
    "Axis",
    "Dot",
    "Line",
    "Whisker",
    "data_uri",
    "dot_chart",
    "histogram_chart",
    "line_chart",
    "picture_cards",
    "scatter_chart",
    "setting_tables",
    "write_html",
]

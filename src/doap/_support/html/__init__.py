"""Self-contained HTML pages: one file each, with its style sheet, SVG charts and pictures inside."""

from doap._support.html.axes import Axis
from doap._support.html.charts import Dot, Line, Whisker, dot_chart, histogram_chart, line_chart, scatter_chart
from doap._support.html.page import data_uri, patch_grid, setting_tables, write_html

__all__ = [
    "Axis",
    "Dot",
    "Line",
    "Whisker",
    "data_uri",
    "dot_chart",
    "histogram_chart",
    "line_chart",
    "patch_grid",
    "scatter_chart",
    "setting_tables",
    "write_html",
]

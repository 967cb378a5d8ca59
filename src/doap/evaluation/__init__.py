"""Judge: a descriptor → a benchmark → a result → a report."""

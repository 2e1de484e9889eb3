"""Two runs beside each other: the same tasks, paired by key, and what may be said of the difference."""

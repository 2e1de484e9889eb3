"""The report: one HTML file that holds a run, or two beside each other, and needs nothing else."""

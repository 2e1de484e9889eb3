"""The sides of a speed comparison: one long-lived child process each, asked over pipes."""

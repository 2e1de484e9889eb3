"""The coordinator: who runs when, and the directory in which all of it is kept."""

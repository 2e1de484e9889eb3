"""The inference server: HTTP in Python over an engine in C++; `python -m server MODEL` runs it."""

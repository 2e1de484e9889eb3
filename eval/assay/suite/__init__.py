"""Suites: named lists of jobs over targets, in TOML (`eval/configs/suites/<name>.toml`), as frozen values."""

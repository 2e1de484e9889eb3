"""How a verb is told which suite or profile is meant."""

from __future__ import annotations

import argparse

from assay.errors import ConfigurationError
from assay.profile import load_profiles
from assay.suite.read import Asked, names, read_suite, split


def add_choice(parser: argparse.ArgumentParser) -> None:
    """Add the arguments `PROFILE [ENTRY]`, `--suite` and `--check-runtime`."""
    parser.add_argument("profile", metavar="PROFILE", nargs="?", help="a profile")
    parser.add_argument("entry", metavar="ENTRY", nargs="?", help="one entry of the profile (default: all)")
    parser.add_argument(
        "--suite",
        metavar="FILE[:LIST]",
        help="a suite's TOML file, or the name of one in eval/configs/suites, and one of its lists",
    )
    parser.add_argument(
        "--check-runtime",
        action="store_true",
        help="look for the keys, environments and data that it needs",
    )


def chosen(arguments: argparse.Namespace) -> Asked:
    """The suite that the arguments name.

    Raises:
        ConfigurationError: they name none, or two, or it cannot be used.
    """
    profile, entry, suite = arguments.profile, arguments.entry, arguments.suite
    if (profile is None) == (suite is None):
        raise ConfigurationError(
            "which suite or profile?" if profile is None else "a profile and a suite were named",
            f"suites: {', '.join(names())}; profiles: {', '.join(load_profiles())}",
            "give one: PROFILE [ENTRY], or --suite FILE[:LIST]",
        )
    if suite is not None:
        return read_suite(suite)
    if profile not in load_profiles() and split(profile)[0] in names():
        raise ConfigurationError(f'"{profile}" is a suite, and no profile', "", f"--suite {profile}")
    return read_suite(profile if entry is None else f"{profile}/{entry}")

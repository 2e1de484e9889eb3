"""Families and parameters that the tests draw from."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

Family = dict[str, Any]

GCD: Family = {
    "name": "gcd",
    "size": 8,
    "parameters": {"min_numbers": 2, "max_numbers": 2, "min_value": 1, "max_value": 20},
}
RANSOM_NOTE: Family = {
    "name": "ransom_note",
    "size": 6,
    "parameters": {
        "min_note_length": 1,
        "max_note_length": 10,
        "min_magazine_length": 2,
        "max_magazine_length": 30,
        "p_solvable": 0.5,
    },
}
WORD_SORTING: Family = {
    "name": "word_sorting",
    "size": 6,
    "parameters": {
        "min_words": 3,
        "max_words": 4,
        "min_word_length": 3,
        "max_word_length": 12,
        "transformation": "lowercase",
    },
}


def selection(*families: Family, **changes: object) -> dict[str, Any]:
    """A whole selection of those families."""
    usual = {"prompt": "direct", "seed": 0, "example_seed": 999, "hash_seed": 0, "n_shot": 4}
    return {**usual, **changes, "families": list(families)}


def _digits(name: str) -> st.SearchStrategy[Family]:
    return st.builds(
        lambda terms, digits, size: {
            "name": name,
            "size": size,
            "parameters": {
                "min_terms": 2,
                "max_terms": terms,
                "min_digits": 1,
                "max_digits": digits,
                "allow_negation": False,
            },
        },
        terms=st.integers(2, 4),
        digits=st.integers(1, 3),
        size=st.integers(1, 60),
    )


ANY_FAMILY = st.one_of(
    _digits("products"),
    _digits("chain_sum"),
    st.builds(
        lambda top, size: {**GCD, "size": size, "parameters": {**GCD["parameters"], "max_value": top}},
        top=st.integers(12, 200),
        size=st.integers(1, 40),
    ),
    st.builds(
        lambda longest, size: {
            "name": "spell_backward",
            "size": size,
            "parameters": {"min_word_len": 3, "max_word_len": longest, "data_file": "words3to10.txt"},
        },
        longest=st.integers(3, 10),
        size=st.integers(1, 40),
    ),
    st.builds(
        lambda chance, size: {
            **RANSOM_NOTE,
            "size": size,
            "parameters": {**RANSOM_NOTE["parameters"], "p_solvable": chance},
        },
        chance=st.sampled_from([0.0, 0.25, 1.0]),
        size=st.integers(1, 40),
    ),
)
"""Cheap families whose small parameters make questions repeat and collide with examples."""

"""A radix tree over the token sequences that slots hold: who shares the longest prefix with a prompt?

Contract: a slot is in the tree at most once. A node stands for a sequence of tokens and knows every slot
whose sequence passes through it, so a lookup costs the length of the match and nothing for the number of
slots. Tokens are kept as bytes, four each, so that runs are compared at the speed of memory.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

_TOKEN_BYTES = 4


@dataclass(eq=False, slots=True)
class _Node:
    label: bytes  # the tokens between the parent and this node
    slots: set[int]
    children: dict[bytes, _Node] = field(default_factory=dict)  # by first token


class RadixTree:
    """Sequences of tokens by slot."""

    def __init__(self) -> None:
        """Make an empty tree."""
        self._root = _Node(b"", set())
        self._held: dict[int, bytes] = {}

    def __contains__(self, slot: int) -> bool:
        return slot in self._held

    def length(self, slot: int) -> int:
        """Return how many tokens a slot is known to hold."""
        return len(self._held.get(slot, b"")) // _TOKEN_BYTES

    def insert(self, slot: int, tokens: Sequence[int]) -> None:
        """A slot now holds these tokens, and what was known of it before is forgotten."""
        self.remove(slot)
        data = _pack(tokens)
        self._held[slot] = data
        node, at = self._root, 0
        while at < len(data):
            child = node.children.get(data[at : at + _TOKEN_BYTES])
            if child is None:
                node.children[data[at : at + _TOKEN_BYTES]] = _Node(data[at:], {slot})
                return
            shared = _common(child.label, data[at:])
            if shared < len(child.label):
                child = _split(node, child, shared)
            child.slots.add(slot)
            node, at = child, at + shared

    def remove(self, slot: int) -> None:
        """Forget a slot; one that is not there is left alone."""
        data = self._held.pop(slot, b"")
        node, at = self._root, 0
        while at < len(data):
            first = data[at : at + _TOKEN_BYTES]
            child = node.children[first]
            child.slots.discard(slot)
            if not child.slots:
                del node.children[first]
                return
            node, at = child, at + len(child.label)

    def longest(
        self, tokens: Sequence[int], usable: Callable[[int, int], bool] = lambda slot, length: True
    ) -> tuple[int, int]:
        """Return a slot that shares the most first tokens, and how many; (-1, 0) when none shares any.

        Of several the lowest slot is taken.

        Args:
            tokens: what to look for.
            usable: whether a slot can give so many of its first tokens.
        """
        data = _pack(tokens)
        node, at = self._root, 0
        best = (-1, 0)
        while at < len(data):
            child = node.children.get(data[at : at + _TOKEN_BYTES])
            if child is None:
                break
            shared = _common(child.label, data[at:])
            node, at = child, at + shared
            length = at // _TOKEN_BYTES
            best = min(((each, length) for each in node.slots if usable(each, length)), default=best)
            if shared < len(child.label):
                break
        return best


def common_tokens(a: Sequence[int], b: Sequence[int]) -> int:
    """Return how many first tokens two sequences share."""
    return _common(_pack(a), _pack(b)) // _TOKEN_BYTES


def _split(parent: _Node, child: _Node, at: int) -> _Node:
    """Put a node between a parent and a child, `at` bytes along the child's label."""
    middle = _Node(child.label[:at], set(child.slots), {child.label[at : at + _TOKEN_BYTES]: child})
    parent.children[child.label[:_TOKEN_BYTES]] = middle
    child.label = child.label[at:]
    return middle


def _pack(tokens: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(tokens)}I", *tokens)


def _common(a: bytes, b: bytes) -> int:
    """Return how many first bytes are shared, in whole tokens."""
    low, high = 0, min(len(a), len(b)) // _TOKEN_BYTES
    while low < high:  # the first `low` tokens are equal, more than `high` are not
        middle = (low + high + 1) // 2
        if a[low * _TOKEN_BYTES : middle * _TOKEN_BYTES] == b[low * _TOKEN_BYTES : middle * _TOKEN_BYTES]:
            low = middle
        else:
            high = middle - 1
    return low * _TOKEN_BYTES

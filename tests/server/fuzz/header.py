"""A GGUF header taken apart into fields that can each be made a lie, and put together again.

`parse` and `encode` are inverse for a whole file. `edited` applies one edit; `edits` draws them: the
structure-aware part of the fuzz. An edit never repairs what depends on the field it changes.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, replace

from hypothesis import strategies as st

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
WIDTHS = {U8: 1, I8: 1, U16: 2, I16: 2, U32: 4, I32: 4, F32: 4, BOOL: 1, U64: 8, I64: 8, F64: 8}


@dataclass(frozen=True)
class Entry:
    """One metadata entry; `value` is everything behind the type, an array's item type and count included."""

    key: bytes
    type: int
    value: bytes
    key_size: int | None = None  # what the header claims; None: the truth

    def encode(self) -> bytes:
        size = len(self.key) if self.key_size is None else self.key_size
        return struct.pack("<Q", size) + self.key + struct.pack("<I", self.type) + self.value


@dataclass(frozen=True)
class Place:
    """One tensor's description."""

    name: bytes
    shape: tuple[int, ...]
    type: int
    offset: int
    dimensions: int | None = None  # what the header claims; None: the truth

    def encode(self) -> bytes:
        dimensions = len(self.shape) if self.dimensions is None else self.dimensions
        head = struct.pack("<Q", len(self.name)) + self.name + struct.pack("<I", dimensions)
        shape = b"".join(struct.pack("<Q", extent) for extent in self.shape)
        return head + shape + struct.pack("<IQ", self.type, self.offset)


@dataclass(frozen=True)
class Header:
    """A model file; the counts are what the header claims (None: the truth)."""

    entries: tuple[Entry, ...]
    tensors: tuple[Place, ...]
    data: bytes = field(repr=False)
    magic: bytes = b"GGUF"
    version: int = 3
    tensor_count: int | None = None
    entry_count: int | None = None
    alignment: int = 32

    def encode(self) -> bytes:
        tensors = len(self.tensors) if self.tensor_count is None else self.tensor_count
        entries = len(self.entries) if self.entry_count is None else self.entry_count
        out = self.magic + struct.pack("<IQQ", self.version, tensors, entries)
        out += b"".join(part.encode() for part in (*self.entries, *self.tensors))
        return out + bytes(-len(out) % self.alignment) + self.data

    def value(self, key: bytes) -> Entry:
        return next(entry for entry in self.entries if entry.key == key)

    def with_entries(self, *new: Entry) -> Header:
        """The same file with these entries in place of those of their keys, or behind all."""
        names = {entry.key for entry in new}
        return replace(self, entries=(*(old for old in self.entries if old.key not in names), *new))


def text(value: str | bytes) -> bytes:
    """A string value."""
    data = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(data)) + data


def array(item_type: int, items: list[bytes], count: int | None = None) -> bytes:
    """An array value of encoded items."""
    return struct.pack("<IQ", item_type, len(items) if count is None else count) + b"".join(items)


def parse(data: bytes) -> Header:
    """Take a whole file apart."""
    magic, version, tensor_count, entry_count = struct.unpack_from("<4sIQQ", data)
    at = 24

    def number(form: str) -> int:
        nonlocal at
        (value,) = struct.unpack_from(form, data, at)
        at += struct.calcsize(form)
        return int(value)

    def words() -> bytes:
        nonlocal at
        size = number("<Q")
        at += size
        return data[at - size : at]

    def skip(kind: int, count: int) -> None:
        nonlocal at
        for _ in range(count if kind == STRING else 0):
            words()
        at += WIDTHS.get(kind, 0) * count

    entries = []
    for _ in range(entry_count):
        key, kind, begin = words(), number("<I"), at
        if kind == ARRAY:
            item_type, count = number("<I"), number("<Q")
            skip(item_type, count)
        else:
            skip(kind, 1)
        entries.append(Entry(key, kind, data[begin:at]))
    tensors = []
    for _ in range(tensor_count):
        name, dimensions = words(), number("<I")
        shape = tuple(number("<Q") for _ in range(dimensions))
        tensors.append(Place(name, shape, number("<I"), number("<Q")))
    at += -at % 32
    return Header(tuple(entries), tuple(tensors), data[at:], magic, version)


EDGES = sorted(
    {base + step for power in (0, 8, 16, 20, 31, 32, 62, 63) for base in (1 << power,) for step in (-1, 0, 1)}
)
WORDS64 = st.one_of(
    st.sampled_from([*EDGES, 2**64 - 1, 2**64 - 32]), st.integers(0, 4096), st.integers(0, 2**64 - 1)
)
WORDS32 = WORDS64.map(lambda value: value & 0xFFFFFFFF)
TYPES = st.one_of(st.integers(0, 13), WORDS32)
NAMES = st.one_of(
    st.sampled_from(
        [b"", b"\0", b"\xff\xfe", b"x" * 65535, b"x" * 65536, b"general.architecture", b"output.weight"]
    ),
    st.binary(max_size=12),
)
FLOATS = st.sampled_from([0.0, -0.0, -1.0, 1e-45, 3e38, float("inf"), float("-inf"), float("nan"), 1e5])
SCALARS = st.one_of(
    st.tuples(st.sampled_from([U8, BOOL, I8]), st.binary(min_size=1, max_size=1)),
    st.tuples(st.sampled_from([U32, I32]), WORDS32.map(lambda value: struct.pack("<I", value))),
    st.tuples(st.sampled_from([U64, I64, F64]), WORDS64.map(lambda value: struct.pack("<Q", value))),
    st.tuples(st.just(F32), FLOATS.map(lambda value: struct.pack("<f", value))),
    st.tuples(st.just(STRING), NAMES.map(text)),
)
ARRAYS = st.one_of(
    st.tuples(WORDS32, WORDS64, st.binary(max_size=64)).map(lambda t: struct.pack("<IQ", t[0], t[1]) + t[2]),
    st.lists(NAMES.map(text), max_size=5).map(lambda items: array(STRING, items)),
    st.lists(SCALARS, max_size=4).map(lambda items: array(U32, [value for _, value in items])),
    # An array whose items are arrays, some levels deep.
    st.integers(1, 2000).map(lambda depth: struct.pack("<IQ", ARRAY, 1) * depth + array(U8, [b"\1"])),
)


@st.composite
def _entry_edit(draw: st.DrawFn, header: Header) -> Header:
    index = draw(st.integers(0, len(header.entries) - 1))
    old = header.entries[index]
    new = draw(
        st.one_of(
            SCALARS.map(lambda pair: (Entry(old.key, *pair),)),
            ARRAYS.map(lambda value: (Entry(old.key, ARRAY, value),)),
            TYPES.map(lambda kind: (replace(old, type=kind),)),
            NAMES.map(lambda key: (replace(old, key=key),)),
            WORDS64.map(lambda size: (replace(old, key_size=size),)),
            WORDS64.map(lambda size: (replace(old, value=struct.pack("<Q", size) + old.value[8:]),)),
            WORDS64.map(
                lambda size: (replace(old, value=old.value[:4] + struct.pack("<Q", size) + old.value[12:]),)
            ),
            st.just(()),
            st.just((old, old)),
            st.sampled_from(header.entries).map(lambda other: (replace(old, key=other.key),)),
        )
    )
    return replace(header, entries=(*header.entries[:index], *new, *header.entries[index + 1 :]))


@st.composite
def _tensor_edit(draw: st.DrawFn, header: Header) -> Header:
    index = draw(st.integers(0, len(header.tensors) - 1))
    old = header.tensors[index]
    shapes = st.lists(WORDS64, max_size=6).map(tuple)
    new = draw(
        st.one_of(
            shapes.map(lambda shape: (replace(old, shape=shape),)),
            WORDS32.map(lambda count: (replace(old, dimensions=count),)),
            WORDS64.map(lambda extent: (replace(old, shape=(extent, *old.shape[1:])),)),
            WORDS64.map(lambda extent: (replace(old, shape=(*old.shape[:-1], extent)),)),
            st.one_of(st.integers(0, 42), st.integers(999, 1003), WORDS32).map(
                lambda kind: (replace(old, type=kind),)
            ),
            WORDS64.map(lambda offset: (replace(old, offset=offset),)),
            st.integers(0, 1 << 15).map(lambda offset: (replace(old, offset=offset // 32 * 32),)),
            NAMES.map(lambda name: (replace(old, name=name),)),
            st.sampled_from(header.tensors).map(lambda other: (replace(old, name=other.name),)),
            st.sampled_from(header.tensors).map(lambda other: (replace(old, offset=other.offset),)),
            st.just(()),
            st.just((old, old)),
        )
    )
    return replace(header, tensors=(*header.tensors[:index], *new, *header.tensors[index + 1 :]))


@st.composite
def _whole_edit(draw: st.DrawFn, header: Header) -> Header:
    return draw(
        st.one_of(
            WORDS32.map(lambda version: replace(header, version=version)),
            st.binary(min_size=4, max_size=4).map(lambda magic: replace(header, magic=magic)),
            WORDS64.map(lambda count: replace(header, tensor_count=count)),
            WORDS64.map(lambda count: replace(header, entry_count=count)),
            st.sampled_from([1, 8, 16, 64, 4096, 1 << 21]).map(lambda size: replace(header, alignment=size)),
            WORDS32.map(
                lambda size: header.with_entries(Entry(b"general.alignment", U32, struct.pack("<I", size)))
            ),
            st.sampled_from([b"llama.expert_count", b"llama.rope.scaling.type", b"llama.vocab_size"]).flatmap(
                lambda key: SCALARS.map(lambda pair: header.with_entries(Entry(key, *pair)))
            ),
            st.integers(0, len(header.data)).map(lambda size: replace(header, data=header.data[:size])),
            st.permutations(header.tensors).map(lambda order: replace(header, tensors=tuple(order))),
        )
    )


@st.composite
def edited(draw: st.DrawFn, whole: Header) -> Header:
    """A file with one to four edits."""
    header = whole
    for _ in range(draw(st.integers(1, 4))):
        kinds = [_whole_edit, _entry_edit, _entry_edit, _tensor_edit, _tensor_edit]
        kind = draw(st.sampled_from(kinds))
        if (kind is _entry_edit and not header.entries) or (kind is _tensor_edit and not header.tensors):
            continue
        header = draw(kind(header))
    return header

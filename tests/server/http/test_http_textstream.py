"""Stop strings and split characters, against a plain reading of the whole text."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from server.textstream import TextStream

ALPHABET = "abé日😀\n"


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted({place % (len(data) + 1) for place in places}), len(data)]
    return [data[begin:end] for begin, end in pairwise(edges)]


@given(
    st.text(ALPHABET, max_size=40),
    st.lists(st.text(ALPHABET, min_size=1, max_size=4), max_size=5),
    st.lists(st.integers(0, 200), max_size=30),
)
def test_any_split_gives_the_text_before_the_stop_that_is_complete_first(
    text: str, stops: list[str], places: list[int]
) -> None:
    found = [(text.find(stop) + len(stop), text.find(stop)) for stop in stops if stop in text]
    expected = text[: min(found)[1]] if found else text
    stream = TextStream([stop.encode() for stop in stops])
    seen = ""
    for piece in cut(text.encode(), places):
        seen += stream.feed(piece)
        assert expected.startswith(seen), "something leaked that is not of the answer"
        if stream.stopped:
            break
    seen += stream.finish()
    assert seen == expected
    assert stream.stopped == bool(found)


@given(st.binary(max_size=40), st.lists(st.integers(0, 200), max_size=30))
def test_bytes_that_are_no_text_are_read_as_the_whole_would_be(data: bytes, places: list[int]) -> None:
    stream = TextStream()
    seen = "".join(stream.feed(piece) for piece in cut(data, places)) + stream.finish()
    whole = data.decode("utf-8", "replace")
    # An incomplete last character is dropped, where the whole text shows one replacement character.
    assert seen in (whole, whole[:-1])
    assert seen == whole or whole.endswith("\ufffd")


def test_a_stop_inside_the_beginning_of_another_ends_the_text() -> None:
    for pieces in ([b"-ab"], [b"-", b"a", b"b"]):
        stream = TextStream([b"a", b"-ab"])
        assert "".join(stream.feed(piece) for piece in pieces if not stream.stopped) == "-"


def test_what_may_begin_a_stop_is_held_until_it_cannot() -> None:
    stream = TextStream([b"</s>"])
    assert [stream.feed(piece) for piece in (b"a<", b"/", b"b", b"<", b"/s", b">", b"x")][:4] == [
        "a",
        "",
        "</b",
        "",
    ]
    assert stream.stopped
    assert stream.finish() == ""

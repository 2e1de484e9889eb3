"""What `beside` says of the tests is true of them: a name that nothing has would move nothing, silently."""

from __future__ import annotations

import beside


def test_every_group_of_minutes_is_a_room_or_a_file() -> None:
    rooms = {beside.ENGINE, *beside.ROOMS.values()}
    assert [
        name for name in beside.LONGEST if name not in rooms and not (beside.TESTS / name).is_file()
    ] == []


def test_every_room_that_is_one_group_is_there() -> None:
    assert [room for room in beside.ROOMS if not (beside.TESTS / room).is_dir()] == []

"""Who makes room in a full table: checked against looking at all that is in it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mercury.mediator import Room

MOST, MOST_OF_CLIENT = 8, 4
SOURCES = ("client:a", "client:b", "client:c", "service:x", "broker:y")


class Plain:
    """The same, with a list."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, str, int]] = []  # key, source, priority

    def add(self, key: int, source: str, priority: int) -> list[int]:
        self.entries.append((key, source, priority))
        gone = []
        own = [one for one in self.entries if one[1] == source]
        if source.startswith("client:") and len(own) > MOST_OF_CLIENT:
            gone.append(self._remove(min(own, key=lambda one: one[2])))
        while len(self.entries) > MOST:
            least = self._least()
            if least is None:
                break
            gone.append(self._remove(least))
        return gone

    def _least(self) -> tuple[int, str, int] | None:
        def urgency(one: tuple[int, str, int]) -> tuple[int, bool]:
            return one[2], not one[1].startswith("client:")

        candidates = [one for one in self.entries if one[2] < 9]
        if not candidates:
            return None
        lowest = min(map(urgency, candidates))
        candidates = [one for one in candidates if urgency(one) == lowest]
        held = [one[1] for one in candidates]
        most = max(held.count(source) for source in held)
        return next(one for one in candidates if held.count(one[1]) == most)

    def _remove(self, one: tuple[int, str, int]) -> int:
        self.entries.remove(one)
        return one[0]


@given(
    st.lists(
        st.one_of(st.tuples(st.sampled_from(SOURCES), st.integers(0, 9)), st.integers(0, 30)),
        max_size=60,
    )
)
def test_the_least_urgent_of_who_has_most_goes(steps: list[tuple[str, int] | int]) -> None:
    room, plain = Room(MOST, MOST_OF_CLIENT), Plain()
    for key, step in enumerate(steps):
        if isinstance(step, int):
            room.remove(step)
            plain.entries = [one for one in plain.entries if one[0] != step]
            continue
        source, priority = step
        gone = room.add(key, source, priority)
        entries = [*plain.entries, (key, source, priority)]
        expected = plain.add(key, source, priority)
        # Where several sources have as many, any of them may be the one.
        traits = {one[0]: (one[2], one[1].startswith("client:")) for one in entries}
        assert [traits[one] for one in gone] == [traits[one] for one in expected]
        plain.entries = [one for one in entries if one[0] not in gone]
        assert len(room) == len(plain.entries)
        assert sorted(room._entries) == [one[0] for one in plain.entries]
        held = [one[1] for one in plain.entries]
        assert room._held == {
            source: held.count(source) for source in held if source.startswith("client:")
        }


def test_an_emergency_never_goes() -> None:
    room = Room(2, 1)
    for key in range(5):
        assert room.add(key, "broker:one", 9) == []
    assert room.add(5, "client:a", 7) == [5]
    assert len(room) == 5


def test_it_costs_no_more_when_there_are_many() -> None:
    room = Room(100_000, 10)
    for key in range(300_000):
        room.add(key, f"client:{key % 150_000}", key % 8)
    assert len(room) == 100_000
    assert {rank for rank, _ in room._entries.values()} <= {10, 12, 14}

"""Which files are taken when: those that have settled, once, and in time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pipeline.watching.arrivals import Arrivals, FoundFile

SIZE = 1_000


def found(name: str, version: object = 1, size: int = SIZE) -> FoundFile:
    return FoundFile(0, name, size, str(version), {})


def names(arrivals: Arrivals, now: float, bytes_per_record: float = 1) -> list[str]:
    return [arrival.file.url for arrival in arrivals.due(now, bytes_per_record)]


def look(arrivals: Arrivals, now: float, *files: FoundFile) -> list[str]:
    arrivals.look({file.key: file for file in files}, now)
    return names(arrivals, now)


def test_a_file_is_taken_when_it_has_stood_still():
    arrivals = Arrivals(settle=30, min_records=1, max_delay=0)
    assert look(arrivals, 0, found("a", 1)) == []
    assert look(arrivals, 29, found("a", 2)) == []
    assert look(arrivals, 58, found("a", 2)) == []
    assert look(arrivals, 59, found("a", 2), found("b")) == ["a"]


def test_a_file_that_vanished_begins_again():
    arrivals = Arrivals(settle=30, min_records=1, max_delay=0)
    look(arrivals, 0, found("a"))
    assert look(arrivals, 20) == []
    assert look(arrivals, 40, found("a")) == []
    assert look(arrivals, 70, found("a")) == ["a"]


def test_small_files_wait_for_each_other():
    arrivals = Arrivals(settle=0, min_records=20, max_delay=600)
    one, two = found("one"), found("two")
    arrivals.look({one.key: one}, 0)
    assert names(arrivals, 0, bytes_per_record=100) == []
    arrivals.look({one.key: one, two.key: two}, 1)
    assert names(arrivals, 1, bytes_per_record=101) == []
    assert names(arrivals, 1, bytes_per_record=100) == ["one", "two"]
    assert names(arrivals, 600, bytes_per_record=101) == ["one", "two"]


def test_a_file_of_two_sources_waits_for_each():
    arrivals = Arrivals(settle=0, min_records=1, max_delay=0)
    first, second = found("a"), FoundFile(1, "a", SIZE, "1", {})
    arrivals.look({first.key: first, second.key: second}, 0)
    assert [arrival.file.source for arrival in arrivals.due(0, 1)] == [0, 1]


@given(
    changes=st.lists(st.tuples(st.integers(0, 200), st.sampled_from("abcde")), max_size=25),
    every=st.integers(1, 20),
    settle=st.integers(0, 40),
    min_records=st.integers(1, 4 * SIZE),
    max_delay=st.integers(0, 60),
)
def test_each_file_is_taken_once_as_it_is_in_the_end_and_in_time(changes, every, settle, min_records, max_delay):
    """Files change at any times; a dataset takes what is due; a version that is taken is not listed again."""
    arrivals = Arrivals(settle, min_records, max_delay)
    taken: list[tuple[str, str]] = []
    last_change = {name: max(time for time, other in changes if other == name) for _, name in changes}
    latest = max(last_change.values(), default=0) + settle + max_delay + 2 * every
    for now in range(0, latest + every, every):
        versions = {name: str(max(t for t, other in changes if other == name and t <= now))
                    for name in sorted({name for t, name in changes if t <= now})}  # fmt: skip
        listed = [found(name, version) for name, version in versions.items() if (name, version) not in taken]
        arrivals.look({file.key: file for file in listed}, now)
        for arrival in arrivals.due(now, 1):
            name = arrival.file.url
            assert not any(other == name and now - settle < time <= now for time, other in changes)
            taken.append((name, arrival.file.version))
    assert len(taken) == len(set(taken))
    assert {(name, str(time)) for name, time in last_change.items()} <= set(taken)

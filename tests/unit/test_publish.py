"""Publishing a file, while others read it or publish it too."""

from __future__ import annotations

import threading

from transforms.storage.writing import publish


def test_a_file_that_is_published_again_is_never_missing_for_its_readers(tmp_path):
    attempts = [tmp_path / f"attempt-{number}" for number in range(2)]
    for attempt in attempts:
        attempt.write_bytes(b"the same")
    final = tmp_path / "final" / "shard"
    publish(str(attempts[0]), str(final))
    ended, read = threading.Event(), []

    def read_again_and_again() -> None:
        try:
            while not ended.is_set():
                read.append(final.read_bytes())
        except OSError as error:
            read.append(error)

    reader = threading.Thread(target=read_again_and_again)
    reader.start()
    for number in range(4_000):
        publish(str(attempts[number % 2]), str(final))
    ended.set()
    reader.join()
    assert set(read) == {b"the same"}
    assert [path.name for path in final.parent.iterdir()] == ["shard"]

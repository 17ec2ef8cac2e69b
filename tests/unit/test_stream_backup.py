"""Backups and stream files: files noted by a backup stay unchanged until it ends."""

from __future__ import annotations

from .stream_house import HOME, StreamHouse


def test_retention_waits_for_a_backup() -> None:
    house = StreamHouse()
    house.declare(**{"x-max-length-bytes": 1})
    house.fill(10)
    ((path, size),) = house.streams.hold()
    house.fill(10)
    house.fill(10)
    assert house.natives() == [0, 10, 20]
    assert house.disk.size(path) == size
    house.streams.release()
    house.run()
    assert house.natives() == [20]


def test_what_is_written_during_a_backup_is_not_noted() -> None:
    house = StreamHouse()
    house.declare(**{"x-stream-max-segment-size-bytes": 1_000_000})
    house.fill(10)
    ((path, size),) = house.streams.hold()
    house.fill(10)
    assert house.disk.size(path) > size
    assert house.archive().files.segments[0].size > size


def test_the_files_of_a_stream_that_is_deleted_wait_for_a_backup() -> None:
    house = StreamHouse()
    house.declare()
    house.fill(10)
    ((path, size),) = house.streams.hold()
    house.delete()
    house.run()
    assert not house.streams.archives
    assert house.disk.size(path) == size
    house.streams.release()
    house.run()
    assert house.disk.list_names(HOME) == []

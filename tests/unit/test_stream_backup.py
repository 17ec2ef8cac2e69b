"""Backups and stream files: files noted by a backup stay unchanged until it ends."""

from __future__ import annotations

from .stream_rig import HOME, StreamRig


def test_retention_waits_for_a_backup() -> None:
    rig = StreamRig()
    rig.declare(**{"x-max-length-bytes": 1})
    rig.fill(10)
    ((path, size),) = rig.streams.hold()
    rig.fill(10)
    rig.fill(10)
    assert rig.natives() == [0, 10, 20]
    assert rig.disk.size(path) == size
    rig.streams.release()
    rig.run()
    assert rig.natives() == [20]


def test_what_is_written_during_a_backup_is_not_noted() -> None:
    rig = StreamRig()
    rig.declare(**{"x-stream-max-segment-size-bytes": 1_000_000})
    rig.fill(10)
    ((path, size),) = rig.streams.hold()
    rig.fill(10)
    assert rig.disk.size(path) > size
    assert rig.archive().files.segments[0].size > size


def test_the_files_of_a_stream_that_is_deleted_wait_for_a_backup() -> None:
    rig = StreamRig()
    rig.declare()
    rig.fill(10)
    ((path, size),) = rig.streams.hold()
    rig.delete()
    rig.run()
    assert not rig.streams.archives
    assert rig.disk.size(path) == size
    rig.streams.release()
    rig.run()
    assert rig.disk.list_names(HOME) == []

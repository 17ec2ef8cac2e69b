"""Spark's session for a command, without Spark."""

from __future__ import annotations

import socket
from types import SimpleNamespace

import pytest
from pyspark import SparkContext, accumulators

from leveret.pipelines import engine


@pytest.mark.parametrize("is_quiet", [True, False])
def test_spark_s_accumulators_print_nothing_where_java_ends_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], is_quiet: bool
) -> None:
    server = accumulators._start_update_server("token", False)
    monkeypatch.setattr(SparkContext, "_active_spark_context", SimpleNamespace(_accumulatorServer=server))
    if is_quiet:
        engine._quieten_accumulators()
    with socket.create_connection(server.server_address) as java:
        java.sendall(b"token")
        java.shutdown(socket.SHUT_WR)
        assert java.recv(1) == b""  # its handler has failed
    server.shutdown()
    assert ("EOFError" in capsys.readouterr().err) == (not is_quiet)

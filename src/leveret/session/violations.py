"""What is answered to frames that are none, or come at the wrong time: codes, texts and ids of RabbitMQ 3.10.8."""

from __future__ import annotations

from mypy_extensions import i64

from leveret.wire import dump
from leveret.wire.errors import FRAME_ERROR, UNEXPECTED_FRAME, ProtocolError


def frame_too_large(kind: i64, size: i64, frame_max: i64) -> ProtocolError:
    """A payload of `size` octets was announced; it is not waited for."""
    text = f"type {kind}, all octets = <<>>: {{frame_too_large,{size},{frame_max - 8}}}"
    return ProtocolError(FRAME_ERROR, text)


def wrong_end(raw: bytes) -> ProtocolError:
    """A frame that does not end in 0xCE; raw is all of it."""
    text = f"type {raw[0]}, {dump.snippet(raw[7:-1])}: {{invalid_frame_end_marker,{raw[-1]}}}"
    return ProtocolError(FRAME_ERROR, text)


def unknown_frame(raw: bytes) -> ProtocolError:
    """A frame of no known type, or too short for its type."""
    return ProtocolError(FRAME_ERROR, f"type {raw[0]}, {dump.snippet(raw[7:-1])}: unknown_frame")


def unexpected_frame(raw: bytes) -> ProtocolError:
    """A frame that may not come now, or not on this channel."""
    return ProtocolError(UNEXPECTED_FRAME, f"type {raw[0]}, {dump.snippet(raw[7:-1])}")


def expected_method() -> ProtocolError:
    """Content that no publish announced."""
    return ProtocolError(UNEXPECTED_FRAME, "expected method frame, got non method frame instead")


def expected_header() -> ProtocolError:
    """Something else between a publish and its content header."""
    text = "expected content header for class 60, got non content header frame instead"
    return ProtocolError(UNEXPECTED_FRAME, text, 60, 40)


def expected_class(class_id: int) -> ProtocolError:
    """The content header of another class."""
    text = f"expected content header for class 60, got one for class {class_id} instead"
    return ProtocolError(UNEXPECTED_FRAME, text, 60, 40)


def expected_body() -> ProtocolError:
    """Something else between a content header and the end of its body."""
    text = "expected content body, got non content body frame instead"
    return ProtocolError(UNEXPECTED_FRAME, text, 60, 40)

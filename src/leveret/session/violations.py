"""The errors for invalid or misplaced frames: codes, texts and ids of RabbitMQ 3.10.8."""

from __future__ import annotations

from mypy_extensions import i64

from leveret.wire import dump
from leveret.wire.errors import FRAME_ERROR, UNEXPECTED_FRAME, ProtocolError


def frame_too_large(kind: i64, size: i64, frame_max: i64) -> ProtocolError:
    """A frame announces a payload of `size` bytes, which is too large; its end is not awaited."""
    text = f"type {kind}, all octets = <<>>: {{frame_too_large,{size},{frame_max - 8}}}"
    return ProtocolError(FRAME_ERROR, text)


def wrong_end(raw: bytes) -> ProtocolError:
    """A frame does not end in 0xCE; raw is the whole frame."""
    text = f"type {raw[0]}, {dump.snippet(raw[7:-1])}: {{invalid_frame_end_marker,{raw[-1]}}}"
    return ProtocolError(FRAME_ERROR, text)


def unknown_frame(raw: bytes) -> ProtocolError:
    """A frame is of no known type, or too short for its type."""
    return ProtocolError(FRAME_ERROR, f"type {raw[0]}, {dump.snippet(raw[7:-1])}: unknown_frame")


def unexpected_frame(raw: bytes) -> ProtocolError:
    """A frame may not come now, or not on this channel."""
    return ProtocolError(UNEXPECTED_FRAME, f"type {raw[0]}, {dump.snippet(raw[7:-1])}")


def expected_method() -> ProtocolError:
    """A content comes that no publish has announced."""
    return ProtocolError(UNEXPECTED_FRAME, "expected method frame, got non method frame instead")


def expected_header() -> ProtocolError:
    """Another frame comes between a publish and its content header."""
    text = "expected content header for class 60, got non content header frame instead"
    return ProtocolError(UNEXPECTED_FRAME, text, 60, 40)


def expected_class(class_id: int) -> ProtocolError:
    """A content header of another class comes."""
    text = f"expected content header for class 60, got one for class {class_id} instead"
    return ProtocolError(UNEXPECTED_FRAME, text, 60, 40)


def expected_body() -> ProtocolError:
    """Another frame comes between a content header and the end of its body."""
    text = "expected content body, got non content body frame instead"
    return ProtocolError(UNEXPECTED_FRAME, text, 60, 40)

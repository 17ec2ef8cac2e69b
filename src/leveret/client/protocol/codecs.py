"""Codecs: how an object becomes the body of a message, and a body an object.

    ORDERS = pydantic_model(Order)
    channel.publish(ORDERS.encode(order), routing_key="orders")
    order = delivery.decode(ORDERS)

msgspec is imported at the first use of MSGPACK or msgspec_struct(), pydantic by the program that has a model.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, Self, TypeVar

__all__ = ["JSON", "MSGPACK", "Codec", "EncodedBody", "msgspec_struct", "pydantic_model"]

T = TypeVar("T")
JSON_TYPE: Final = "application/json"


class EncodedBody(bytes):
    """The body of a message that is to be published, with the content type that it gets if its properties have none.

    Attributes:
        content_type (str): MIME type of the body.
    """

    content_type: str

    def __new__(cls, body: bytes, content_type: str) -> Self:
        encoded = super().__new__(cls, body)
        encoded.content_type = content_type
        return encoded


@dataclass(frozen=True)
class Codec(Generic[T]):
    """Encodes objects of one type as bodies, and decodes bodies. Programs may make their own.

    Attributes:
        name: What errors call it.
        content_type: MIME type of the bodies (property content_type).
        encoder: Returns the body of an object; raises any exception if it cannot be encoded.
        decoder: Returns the object of a body; raises any exception if it cannot be decoded.
    """

    name: str
    content_type: str
    encoder: Callable[[T], bytes]
    decoder: Callable[[bytes], T]

    def encode(self, value: T) -> EncodedBody:
        """Return the body of an object, to be published as any other.

        Raises:
            TypeError: The object cannot be encoded.
        """
        try:
            return EncodedBody(self.encoder(value), self.content_type)
        except ImportError:
            raise
        except Exception as error:
            raise TypeError(f"{self.name} cannot encode an object of type {type(value).__name__}: {error}") from error


class PydanticModel(Protocol):
    """What pydantic_model() needs of a model; every model of pydantic 2 has it."""

    def model_dump_json(self, *, by_alias: bool) -> str: ...

    @classmethod
    def model_validate_json(cls, json_data: bytes, /) -> Self: ...


M = TypeVar("M", bound=PydanticModel)


def pydantic_model(model: type[M]) -> Codec[M]:
    """Return the codec of a pydantic model: JSON with the aliases of its fields, validated when it is decoded.

    Raises:
        TypeError: It is no model of pydantic 2.
    """
    if not hasattr(model, "model_validate_json"):
        raise TypeError(f"{model!r} is no pydantic model: it must be a subclass of BaseModel of pydantic 2 or later")
    check = _checked(model)
    return Codec(
        f"pydantic model {model.__name__}",
        JSON_TYPE,
        lambda value: check(value).model_dump_json(by_alias=True).encode(),
        model.model_validate_json,
    )


def msgspec_struct(struct: type[T]) -> Codec[T]:
    """Return the codec of a msgspec Struct, or of a dataclass: JSON, with its types checked when it is decoded.

    Raises:
        ImportError: msgspec is not installed.
        TypeError: msgspec does not support the type.
    """
    library = _msgspec("msgspec_struct")
    check, encode = _checked(struct), library.json.encode
    return Codec(
        f"msgspec struct {struct.__name__}",
        JSON_TYPE,
        lambda value: encode(check(value)),
        library.json.Decoder(struct).decode,
    )


def _checked(expected: type[T]) -> Callable[[T], T]:
    """Return a function that returns its argument, or raises TypeError if that has another type."""

    def check(value: T) -> T:
        if not isinstance(value, expected):
            raise TypeError(f"it must be of type {expected.__name__}")
        return value

    return check


def _msgspec(user: str) -> Any:
    try:
        return importlib.import_module("msgspec")
    except ImportError as error:
        raise ImportError(f"{user} needs the package msgspec: pip install msgspec") from error


def _encode_json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def _encode_msgpack(value: Any) -> bytes:
    encoded: bytes = _msgspec("MSGPACK").msgpack.encode(value)
    return encoded


def _decode_msgpack(body: bytes) -> Any:
    return _msgspec("MSGPACK").msgpack.decode(body)


JSON: Final[Codec[Any]] = Codec("JSON", JSON_TYPE, _encode_json, json.loads)
"""JSON in UTF-8 (RFC 8259), of what the module json encodes; NaN and the infinities are no JSON."""

MSGPACK: Final[Codec[Any]] = Codec("MSGPACK", "application/msgpack", _encode_msgpack, _decode_msgpack)
"""MessagePack, of what msgspec encodes."""

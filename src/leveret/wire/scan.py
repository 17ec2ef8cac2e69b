"""A fast scan of a content header: where the properties are that a broker needs, without decoding the others."""

from __future__ import annotations

from librt.strings import read_i16_be, read_i32_be
from mypy_extensions import i64


class HeaderScan:
    """The result of a scan, reused for every publish.

    Offsets are into the scanned data, at the property's length byte; 0 = absent.
    """

    def __init__(self) -> None:
        self.delivery_mode: i64 = -1  # -1 = absent
        self.headers_at: i64 = 0
        self.reply_to_at: i64 = 0
        self.expiration_at: i64 = 0
        self.user_id_at: i64 = 0

    def scan(self, data: bytes, start: i64, end: i64) -> bool:
        """Scan the header payload data[start:end] (at least 14 bytes). False if its properties do not fill it exactly.
        """
        self.delivery_mode = -1
        self.headers_at = 0
        self.reply_to_at = 0
        self.expiration_at = 0
        self.user_id_at = 0
        flags: i64 = i64(read_i16_be(data, start + 12)) & 0xFFFF
        at = start + 14
        if flags == 0:
            return at == end
        if flags & 3:
            return False
        bit: i64 = 15
        while bit > 1:
            if flags >> bit & 1:
                if at >= end:
                    return False
                if bit == 13:
                    if at + 4 > end:
                        return False
                    size: i64 = i64(read_i32_be(data, at))
                    if size < 0:
                        return False
                    self.headers_at = at
                    at += 4 + size
                elif bit == 12:
                    self.delivery_mode = i64(data[at])
                    at += 1
                elif bit == 11:
                    at += 1
                elif bit == 6:
                    at += 8
                else:
                    if bit == 9:
                        self.reply_to_at = at
                    elif bit == 8:
                        self.expiration_at = at
                    elif bit == 4:
                        self.user_id_at = at
                    at += 1 + i64(data[at])
            bit -= 1
        return at == end


def priority_of(content: bytes) -> i64:
    """The priority in stored content frames whose header was scanned before; 0 if absent."""
    flags: i64 = i64(read_i16_be(content, 19)) & 0xFFFF
    if flags & 0x0800 == 0:
        return 0
    at: i64 = 21
    if flags & 0x8000 != 0:
        at += 1 + i64(content[at])
    if flags & 0x4000 != 0:
        at += 1 + i64(content[at])
    if flags & 0x2000 != 0:
        at += 4 + i64(read_i32_be(content, at))
    if flags & 0x1000 != 0:
        at += 1
    return i64(content[at])

"""The types of settings: validation of TOML values, and parsing of option and environment texts."""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from leveret.net.quantity import octets

OFF: Final = "off"
SWITCH: Final = {
    "true": True,
    "yes": True,
    "on": True,
    "1": True,
    "false": False,
    "no": False,
    "off": False,
    "0": False,
}


class Kind(Protocol):
    """A type of settings."""

    @property
    def metavar(self) -> str:
        """The placeholder of a value in the command's help."""

    @property
    def description(self) -> str:
        """What a value must be, as in "port must be …"."""

    def check(self, value: object) -> object:
        """Return the broker's value for a TOML value. Raises ValueError, whose text is not shown."""

    def parse(self, text: str) -> object:
        """Parse the text of an option or variable. Raises ValueError as `check` does."""


class Whole(NamedTuple):
    """An integer from `low` to `high` (None: unbounded), or the word `word`."""

    low: int = 0
    high: int | None = None
    word: str = ""

    @property
    def metavar(self) -> str:
        return f"N|{self.word}" if self.word else "N"

    @property
    def description(self) -> str:
        bounds = f"from {self.low} to {self.high}" if self.high is not None else f"of at least {self.low}"
        return f"a whole number {bounds}" + (f", or {self.word!r}" if self.word else "")

    def check(self, value: object) -> object:
        if self.word and value == self.word:
            return value
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(value)
        if value < self.low or (self.high is not None and value > self.high):
            raise ValueError(value)
        return value

    def parse(self, text: str) -> object:
        return self.check(text if self.word and text == self.word else int(text))


class Text(NamedTuple):
    """Non-empty text, such as a path or a name."""

    metavar: str = "TEXT"
    description: str = "a non-empty string"

    def check(self, value: object) -> object:
        if not isinstance(value, str) or not value:
            raise ValueError(value)
        return value

    def parse(self, text: str) -> object:
        return self.check(text)


class Choice(NamedTuple):
    """One of several words."""

    words: tuple[str, ...]

    @property
    def metavar(self) -> str:
        return "|".join(self.words)

    @property
    def description(self) -> str:
        return f"one of {', '.join(self.words)}"

    def check(self, value: object) -> object:
        if value not in self.words:
            raise ValueError(value)
        return value

    def parse(self, text: str) -> object:
        return self.check(text)


class Names(NamedTuple):
    """A list of texts. A single text need not be a list; variables separate texts by commas."""

    metavar: str = "TEXT"
    description: str = "a list of strings"

    def check(self, value: object) -> object:
        found = [value] if isinstance(value, str) else value
        if not isinstance(found, list) or not all(isinstance(each, str) and each for each in found):
            raise ValueError(value)
        return found

    def parse(self, text: str) -> object:
        return self.check([each.strip() for each in text.split(",") if each.strip()])


class BooleanKind(NamedTuple):
    """A boolean."""

    metavar: str = "true|false"
    description: str = "true or false"

    def check(self, value: object) -> object:
        if not isinstance(value, bool):
            raise ValueError(value)
        return value

    def parse(self, text: str) -> object:
        if text.lower() not in SWITCH:
            raise ValueError(text)
        return SWITCH[text.lower()]


class Amount(NamedTuple):
    """An amount of memory or disk in bytes; see leveret.net.quantity."""

    metavar: str = "AMOUNT"
    description: str = "an amount: a number of bytes, 50MB, 1GiB, or 0.4 for a fraction of the machine's memory"

    def check(self, value: object) -> object:
        octets(value, 0)
        return value

    def parse(self, text: str) -> object:
        return self.check(text)

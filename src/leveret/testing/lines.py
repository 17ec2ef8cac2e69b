"""Lines out of a pipe, for several readers: one that waits for them, and whoever wants to know what came so far."""

import codecs
import io
import os
import select
import threading
from typing import IO, Final

READ_SIZE: Final = 1 << 16


class Lines:
    """What a process writes into a pipe. `take` never waits, and leaves nothing in the pipe that was written before.

    Attributes:
        have_ended: whether nobody can write any more, and all that was written is taken.
    """

    def __init__(self, pipe: IO[bytes]) -> None:
        os.set_blocking(pipe.fileno(), False)
        self._pipe = pipe
        self._lock = threading.Lock()
        self._decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder("utf-8")("replace"), translate=True)
        self._begun = ""
        self.have_ended = False

    def wait(self) -> None:
        """Wait until there is something to take, or the end."""
        watch = select.poll()
        watch.register(self._pipe, select.POLLIN)
        watch.poll()

    def take(self) -> list[str]:
        """The lines that came since the last call, each with its newline, but perhaps the very last."""
        with self._lock:
            text = [self._begun]
            while not self.have_ended:
                try:
                    piece = os.read(self._pipe.fileno(), READ_SIZE)
                except BlockingIOError:
                    break
                text.append(self._decoder.decode(piece, final=not piece))
                self.have_ended = not piece
            *lines, self._begun = "".join(text).split("\n")
            taken = [f"{line}\n" for line in lines]
            if self.have_ended and self._begun:
                taken.append(self._begun)
                self._begun = ""
            return taken

"""Lines from a pipe, for several readers: one that waits for lines, and others that take what has arrived."""

import codecs
import io
import os
import select
import threading
from typing import IO, Final

READ_SIZE: Final = 1 << 16


class Lines:
    """The lines that a process writes into a pipe. `take` does not wait, and takes everything written before the call.

    Attributes:
        have_ended: whether the pipe's writers have closed it, and everything was taken.
    """

    def __init__(self, pipe: IO[bytes]) -> None:
        os.set_blocking(pipe.fileno(), False)
        self._pipe = pipe
        self._lock = threading.Lock()
        self._decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder("utf-8")("replace"), translate=True)
        self._begun = ""
        self.have_ended = False

    def wait(self) -> None:
        """Wait until `take` has something to return, or for the end."""
        watch = select.poll()
        watch.register(self._pipe, select.POLLIN)
        watch.poll()

    def take(self) -> list[str]:
        """Return the lines since the last call, each with its newline (which only the very last may lack)."""
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

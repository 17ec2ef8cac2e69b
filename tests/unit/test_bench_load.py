"""How `leveret bench` starts its processes."""

import signal
import subprocess
import sys

from leveret.cli.bench.load import interrupts_held

INTERRUPTED = "import os, signal; os.kill(os.getpid(), signal.SIGINT); print('goes on')"


def test_who_is_started_hears_of_no_interrupt_and_we_do_again() -> None:
    with interrupts_held():
        child = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, check=False)
    assert (child.stdout, child.stderr) == ("goes on\n", "")
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])

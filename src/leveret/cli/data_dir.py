"""Which data directory the commands mean that are not told one."""

from __future__ import annotations

import os


def default_data_dir() -> str:
    """$LEVERET_DATA_DIR, else $XDG_DATA_HOME/leveret, else ~/.local/share/leveret."""
    chosen = os.environ.get("LEVERET_DATA_DIR")
    return chosen or os.path.join(os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share"), "leveret")

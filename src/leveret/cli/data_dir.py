"""The default data directory of the commands."""

from __future__ import annotations

import os


def default_data_dir() -> str:
    """Return $LEVERET_DATA_DIR, else $XDG_DATA_HOME/leveret, else ~/.local/share/leveret."""
    chosen = os.environ.get("LEVERET_DATA_DIR")
    return chosen or os.path.join(os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share"), "leveret")

"""Writes the files generated from the table of settings: settings_page.py [--check]. With --check it reports whether
they are up to date, and changes nothing."""

from __future__ import annotations

import sys
from pathlib import Path

from leveret.cli.configuration.printing import example_file, page

ROOT = Path(__file__).parents[1]
FILES = {ROOT / "docs" / "reference" / "configuration.md": page, ROOT / "deploy" / "leveret.toml": example_file}

if __name__ == "__main__":
    for path, text in FILES.items():
        if sys.argv[1:] != ["--check"]:
            path.write_text(text())
        elif path.read_text() != text():
            sys.exit(f"{path} is not what tools/settings_page.py writes")

"""``python -m leveret``: the same as the command ``leveret``."""

from leveret.cli.main import main

main(prog_name="leveret")

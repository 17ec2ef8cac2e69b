#!/usr/bin/env python3
"""Runs a command with the compiled or the interpreted core of leveret.

    tools/with_core.py best|compiled|interpreted COMMAND [ARGUMENT ...]

`best` compiles where that is possible and says why where it is not; `compiled` fails then. The compiled copy of the
package lies in build/compiled/, so that no binary ever lies among the sources; PYTHONPATH decides which of the two
the command imports. LEVERET_EXPECT_CORE tells the tests which core they must find.
"""

import compileall
import fcntl
import hashlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
SRC = TOP / "src"
COMPILED = TOP / "build" / "compiled"
STAMP = TOP / "build" / "compiled.stamp"
LOG = TOP / "build" / "compiled.log"

sys.path.insert(0, str(TOP))


def fingerprint(sources: list[str]) -> str:
    """What the binaries depend on: the sources, how they are built, this Python and this mypyc."""
    digest = hashlib.sha256(f"{sys.version} {importlib.metadata.version('mypy')}".encode())
    for name in ["setup.py", *sources]:
        digest.update(name.encode() + b"\0" + (TOP / name).read_bytes())
    return digest.hexdigest()


def compile_core(stamp: str) -> bool:
    """Builds the whole package into build/compiled/, the extension modules in their packages. True if it worked."""
    shutil.rmtree(COMPILED, ignore_errors=True)
    STAMP.unlink(missing_ok=True)
    print(f"core: compiling with mypyc (a minute or two; {LOG.relative_to(TOP)})", file=sys.stderr, flush=True)
    command = [sys.executable, "setup.py", "build", "--build-lib", str(COMPILED), "--build-temp", "build/objects"]
    with LOG.open("w") as log:
        done = subprocess.run(command, cwd=TOP, stdout=log, stderr=subprocess.STDOUT, check=False)
    if done.returncode != 0:
        sys.stderr.write(LOG.read_text()[-6000:])
        return False
    STAMP.write_text(stamp)
    return True


def mirror(sources: list[str]) -> None:
    """Brings the uncompiled files of the copy up to date, and takes away the sources of the compiled ones.

    Without the latter Python would fall back to a source whose binary is missing, and nobody would notice. Modules are
    stored as bytecode, as pip does it: else each start would compile them where PYTHONDONTWRITEBYTECODE is set.
    """
    compiled = {SRC.parent / name for name in sources}
    wanted = {
        COMPILED / path.relative_to(SRC): path
        for path in SRC.rglob("*")
        if path.is_file() and path not in compiled and "__pycache__" not in path.parts and ".egg-info" not in str(path)
    }
    for path in list(COMPILED.rglob("*")):
        if path.is_file() and path.suffix not in (".so", ".pyc") and path not in wanted:
            path.unlink()
    for copy, path in wanted.items():
        if not copy.exists() or copy.read_bytes() != path.read_bytes():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
    compileall.compile_dir(COMPILED, quiet=1)


def compiled_path(required: bool) -> Path | None:
    """The directory with the compiled core, built if need be; None if it cannot be built here."""
    try:
        from setup import core_sources, obstacle
    except ImportError as error:
        reason: str | None = f"no setuptools ({error})"
    else:
        reason = obstacle()
    if reason is None and not built(core_sources()):
        reason = "the compilation failed"
    if reason is None:
        return COMPILED
    print(f"core: cannot be compiled: {reason}", file=sys.stderr)
    if required:
        sys.exit(1)
    return None


def built(sources: list[str]) -> bool:
    """Brings build/compiled/ up to date, one process at a time. False if the compilation failed."""
    STAMP.parent.mkdir(exist_ok=True)
    with (TOP / "build" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = fingerprint(sources)
        if (not STAMP.exists() or STAMP.read_text() != stamp) and not compile_core(stamp):
            return False
        mirror(sources)
    return True


def main() -> None:
    if len(sys.argv) < 3 or sys.argv[1] not in ("best", "compiled", "interpreted"):
        sys.exit(__doc__)
    kind, command = sys.argv[1], sys.argv[2:]
    here = Path.cwd()
    os.chdir(TOP)
    path = compiled_path(required=kind == "compiled") if kind != "interpreted" else None
    name = "compiled" if path is not None else "interpreted"
    print(f"core: {name}", file=sys.stderr, flush=True)
    environment = {**os.environ, "PYTHONPATH": str(path or SRC), "LEVERET_EXPECT_CORE": name}
    os.chdir(here)
    os.execvpe(command[0], command, environment)


if __name__ == "__main__":
    main()

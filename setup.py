"""Builds the package. Compiles its core (wire/, session/, broker/ and the hot path of links) with mypyc if possible.

    python setup.py core      # in a checkout: into build/core/, where `import leveret` finds it

pip and `python -m build` compile in the same way. The environment variable LEVERET_CORE decides: `best` (the default)
compiles if possible, `compiled` fails if that is not possible, `interpreted` leaves the package pure Python. The reason
why a core was not compiled is stored in the package (core.json), because pip hides the output of builds.
LEVERET_OBJECTS names a directory of object files to share between builds; CFLAGS are passed to the C compiler last.
Everything else about the package is in pyproject.toml.
"""

import contextlib
import fcntl
import hashlib
import importlib.metadata
import io
import json
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, ClassVar

from setuptools import Command, Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

TOP = Path(__file__).resolve().parent
PACKAGE = TOP / "src" / "leveret"
ROOMS = ("wire", "session", "broker")
SINGLE = tuple(f"src/leveret/federation/{name}.py" for name in ("rewriting", "transfer", "window"))
SUFFIX = str(sysconfig.get_config_var("EXT_SUFFIX"))
GROUP = "leveret"
WORK = TOP / "build" / "core" / SUFFIX.split(".")[1]
"""One directory for each kind of Python: `core.json`, C files, and a directory of extension modules for each of the
last builds. A directory of modules never changes, because processes may run from it."""
BUILDS_KEPT = 2
OBJECTS_KEPT = 2000
# The core needs no types from outside of it, and an isolated build has none of these packages.
MYPY_CONFIG = "[mypy]\nignore_missing_imports = True\n[mypy-leveret.endpoint.*]\nfollow_imports = skip\n"


class NotCompiled(Exception):
    """The core could not be compiled; the text says in one line why, and what to do."""


def core_sources() -> list[str]:
    """Return the modules to compile, relative to this file. A package's __init__ stays Python: it only re-exports."""
    found = [path.relative_to(TOP) for room in ROOMS for path in sorted((PACKAGE / room).rglob("*.py"))]
    return [*(str(path) for path in found if path.name != "__init__.py"), *SINGLE]


def module_of(source: str) -> str:
    return ".".join(Path(source).with_suffix("").parts[1:])


def wanted_core() -> str:
    """Return best, compiled or interpreted. LEVERET_PURE=1 is the older spelling of interpreted."""
    wanted = "interpreted" if os.environ.get("LEVERET_PURE") else os.environ.get("LEVERET_CORE") or "best"
    if wanted not in ("best", "compiled", "interpreted"):
        sys.exit(f"LEVERET_CORE={wanted}: it is one of best, compiled, interpreted")
    return wanted


def obstacle() -> str | None:
    """Return why the core cannot be compiled here and what to do about it, or None."""
    if wanted_core() == "interpreted":
        return "LEVERET_CORE=interpreted is set"
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[0]
    if shutil.which(compiler) is None:
        return f"no C compiler ({compiler}); Debian's is in the package gcc"
    if not Path(sysconfig.get_paths()["include"], "Python.h").exists():
        return "no Python.h, the headers of this Python; Debian's are in the package python3-dev"
    try:
        import mypyc.build  # noqa: F401
    except ImportError:
        return "no mypyc; it comes with `pip install mypy`"
    return None


def say(text: str, is_last: bool = False) -> None:
    """Print a line of progress. On a terminal it replaces the line before."""
    start, end = ("\r\x1b[K", "\n" if is_last else "") if sys.stderr.isatty() else ("", "\n")
    print(f"{start}core: {text}", end=end, file=sys.stderr, flush=True)


def digest(parts: Iterable[bytes]) -> str:
    """Return one hash of all parts, which also depends on where each one ends."""
    found = hashlib.sha256()
    for part in parts:
        found.update(hashlib.sha256(part).digest())
    return found.hexdigest()


class Compiler:
    """The C compiler that this Python was built with, unless CC, CFLAGS and LDSHARED name another one."""

    def __init__(self) -> None:
        from distutils.ccompiler import new_compiler
        from distutils.sysconfig import customize_compiler

        tool: Any = new_compiler()
        customize_compiler(tool)
        self.compile: list[str] = [*tool.compiler_so]
        self.link: list[str] = list(tool.linker_so)
        # after mypyc's own flags, which would otherwise override them
        self.last = shlex.split(os.environ.get("CFLAGS", ""))
        try:
            said = subprocess.run([self.compile[0], "--version"], capture_output=True, text=True, check=True).stdout
        except (OSError, subprocess.CalledProcessError) as error:
            raise NotCompiled(f"the C compiler {self.compile[0]} does not run: {error}") from None
        self.version = said.partition("\n")[0]

    def try_out(self) -> None:
        """Compile one line. Raises NotCompiled with the reason if that fails, before mypyc has translated anything."""
        with tempfile.TemporaryDirectory() as directory:
            source = Path(directory, "tried.c")
            source.write_text("#include <Python.h>\n")
            include = f"-I{sysconfig.get_paths()['include']}"
            call([*self.compile, include, *self.last, "-c", str(source), "-o", str(source.with_suffix(".o"))])


def call(command: list[str]) -> None:
    """Run a command of the compiler. Raises NotCompiled with the first error that it prints."""
    done = subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines() or [""]
        raise NotCompiled(f"{command[0]} exited with {done.returncode}: {lines[0]}")


def fingerprint(compiler: Compiler) -> str:
    """Return what the extension modules depend on: sources, build options, this Python, mypyc and the C compiler."""
    told = [sys.version, importlib.metadata.version("mypy"), compiler.version, *compiler.compile, *compiler.last]
    files = [TOP / "setup.py", *(TOP / name for name in core_sources())]
    return digest([*(text.encode() for text in told), *(bytes(path) + path.read_bytes() for path in files)])


def translate(directory: Path) -> list[Extension]:
    """Write the C files. One group, so that calls between modules are plain C calls; one C file for each module."""
    from mypyc.build import mypycify

    directory.mkdir(parents=True, exist_ok=True)
    config = directory / "mypy.ini"
    config.write_text(MYPY_CONFIG)
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), contextlib.chdir(TOP):
            extensions: list[Extension] = mypycify(
                [f"--config-file={config}", *core_sources()],
                opt_level="3", debug_level="0", multi_file=True, group_name=GROUP, target_dir=str(directory),
            )  # fmt: skip
    except SystemExit:
        errors = [line for line in said.getvalue().splitlines() if " error: " in line] or [said.getvalue().strip()]
        raise NotCompiled(f"mypyc: {errors[0]}") from None
    return extensions


class Build:
    """One compilation: each C file to an object file, cached by its content; then the links."""

    def __init__(self, compiler: Compiler, directory: Path) -> None:
        self.compiler = compiler
        self.directory = directory
        self.objects = Path(os.environ.get("LEVERET_OBJECTS") or WORK.parent / "objects")
        self.generated = WORK / "c"
        self.processors = len(os.sched_getaffinity(0))
        self.objects.mkdir(parents=True, exist_ok=True)

    def run(self) -> None:
        say(f"mypyc translates {len(core_sources())} modules to C; that takes some 10 s")
        extensions = translate(self.generated)
        objects = self._compile(extensions)
        links = [(extension, [objects[source] for source in extension.sources]) for extension in extensions]
        self._side_by_side("linking", [(lambda each=each: self._link(*each), len(each[1])) for each in links])
        by_age = sorted(self.objects.glob("*.*o"), key=lambda path: path.stat().st_mtime, reverse=True)
        for path in by_age[OBJECTS_KEPT:]:
            path.unlink(missing_ok=True)

    def _compile(self, extensions: list[Extension]) -> dict[str, Path]:
        """Return the object file of each C file, reusing those whose C file and headers are unchanged."""
        headers = sorted({*self.generated.glob("*.h"), *self.generated.glob("**/*.h")})
        common = digest([importlib.metadata.version("mypy").encode(), *(path.read_bytes() for path in headers)])
        found: dict[str, Path] = {}
        work: list[tuple[Callable[[], None], int]] = []
        for extension in extensions:
            flags = [*(flag for flag in extension.extra_compile_args if flag != "-Werror"), *self.compiler.last]
            include = [f"-I{each}" for each in (sysconfig.get_paths()["include"], *extension.include_dirs)]
            told = [sys.version, self.compiler.version, *self.compiler.compile, *flags]
            if extension.name == f"{GROUP}__mypyc":
                told.append(common)
            for source in extension.sources:
                text = Path(source).read_bytes()
                command = [*self.compiler.compile, *include, *flags]
                key = digest([text, *(each.encode() for each in told)])
                found[source] = target = self.objects / f"{key}.o"
                if target.exists():
                    os.utime(target)
                else:
                    work.append((lambda s=source, t=target, c=command: self._object(c, s, t), 2000 + len(text)))
        self._side_by_side(f"compiling with {Path(self.compiler.compile[0]).name}", work)
        return found

    def _object(self, command: list[str], source: str, target: Path) -> None:
        made = target.with_suffix(f".{os.getpid()}.tmp")
        call([*command, "-c", source, "-o", str(made)])
        made.rename(target)

    def _link(self, extension: Extension, objects: list[Path]) -> None:
        target = self.directory / (extension.name.replace(".", "/") + SUFFIX)
        target.parent.mkdir(parents=True, exist_ok=True)
        told = [self.compiler.version, *self.compiler.link, *(each.name for each in objects)]
        linked = self.objects / f"{digest(each.encode() for each in told)}.so"
        if not linked.exists():
            made = linked.with_suffix(f".{os.getpid()}.tmp")
            call([*self.compiler.link, *map(str, objects), "-o", str(made)])
            made.rename(linked)
        os.utime(linked)
        shutil.copy(linked, target)

    def _side_by_side(self, what: str, work: list[tuple[Callable[[], None], int]]) -> None:
        """Do all of `work`, pairs of a function and its size, in parallel, the longest first, and print progress."""
        total, done, begun, said = sum(weight for _, weight in work), 0, time.monotonic(), 0.0
        with ThreadPoolExecutor(self.processors) as pool:
            futures = {pool.submit(job): weight for job, weight in sorted(work, key=lambda each: -each[1])}
            try:
                for future in as_completed(futures):
                    future.result()
                    done += futures[future]
                    now = time.monotonic()
                    if now - said > (0.2 if sys.stderr.isatty() else 10) and now - begun > 1:
                        said = now
                        left = (now - begun) * (total - done) / done
                        share = f"{100 * done // total} % of {len(work)} files"
                        say(f"{what}: {share} on {self.processors} processors, {left:.0f} s left")
            except NotCompiled:
                pool.shutdown(cancel_futures=True)
                raise


def compile_core() -> dict[str, Any]:
    """Bring build/core/ up to date, one process at a time. Returns the content of core.json.

    Raises:
        NotCompiled: With the reason, which is also in core.json.
    """
    WORK.mkdir(parents=True, exist_ok=True)
    with (WORK / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            if reason := obstacle():
                raise NotCompiled(reason)
            return _compiled()
        except NotCompiled as error:
            _keep({"core": "interpreted", "reason": str(error)})
            raise


def _compiled() -> dict[str, Any]:
    compiler = Compiler()
    mark = fingerprint(compiler)
    directory = WORK / mark[:16]
    begun = time.monotonic()
    if not directory.exists():
        compiler.try_out()
        made = directory.with_suffix(".new")
        shutil.rmtree(made, ignore_errors=True)
        Build(compiler, made).run()
        made.rename(directory)
        say(f"compiled in {time.monotonic() - begun:.0f} s", is_last=True)
    os.utime(directory)
    sources = {module_of(name): _state(TOP / name) for name in core_sources()}
    facts = {"core": "compiled", "compiler": compiler.version, "directory": directory.name, "sources": sources}
    _keep(facts)
    builds = sorted((each for each in WORK.iterdir() if len(each.name) == 16), key=lambda each: each.stat().st_mtime)
    for old in builds[:-BUILDS_KEPT]:
        shutil.rmtree(old, ignore_errors=True)
    return facts


def _state(path: Path) -> list[Any]:
    """Return how an import recognises a compiled source: length, mtime, digest."""
    about = path.stat()
    return [about.st_size, about.st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest()]


def read_facts() -> dict[str, Any]:
    """Return the content of core.json from the last compilation here."""
    facts: dict[str, Any] = json.loads((WORK / "core.json").read_bytes())
    return facts


def _keep(facts: dict[str, Any]) -> None:
    made = WORK / "core.json.new"
    made.write_text(json.dumps(facts, indent=0))
    made.rename(WORK / "core.json")


def modules() -> list[Extension]:
    """Return the extension modules of the package, which are compiled already; none if that is not possible."""
    try:
        compile_core()
    except NotCompiled as error:
        if wanted_core() == "compiled":
            sys.exit(f"leveret: LEVERET_CORE=compiled, and the core can't be compiled: {error}")
        print(f"leveret: the core stays interpreted: {error}", file=sys.stderr)
        return []
    return [Extension(name, []) for name in [f"{GROUP}__mypyc", *map(module_of, core_sources())]]


class CopyModules(build_ext):
    """Puts the extension modules, which are compiled already, into the package."""

    def build_extension(self, ext: Extension) -> None:
        target = Path(self.get_ext_fullpath(ext.name))
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(WORK / read_facts()["directory"] / (ext.name.replace(".", "/") + SUFFIX), target)


class BuildPackage(build_py):
    """Adds core.json, which tells an installed package which core it has, and why."""

    def run(self) -> None:
        # otherwise files of an earlier build would be packaged although their sources are gone
        if Path(self.build_lib).resolve().is_relative_to(TOP / "build"):
            shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()
        if not self.editable_mode:
            facts = read_facts() | {"python": sys.version.split()[0]}
            told = {name: facts[name] for name in ("core", "reason", "compiler", "python") if name in facts}
            if facts["core"] == "compiled":
                told["modules"] = [*map(module_of, core_sources())]
            Path(self.build_lib, "leveret", "core.json").write_text(json.dumps(told))


class CompileCore(Command):
    """`python setup.py core`: compiles the core of a checkout, unless it is up to date."""

    description = "compile the core of this checkout into build/core/"
    user_options: ClassVar[list[tuple[str, str | None, str]]] = []

    def initialize_options(self) -> None:
        """There are no options."""

    def finalize_options(self) -> None:
        """There are no options."""

    def run(self) -> None:
        if wanted_core() == "interpreted":
            return
        try:
            compile_core()
        except NotCompiled as error:
            if wanted_core() == "compiled":
                sys.exit(f"core: LEVERET_CORE=compiled, and the core can't be compiled: {error}")
            print(f"core: stays interpreted: {error}", file=sys.stderr)


def is_building() -> bool:
    """Return whether files are built: metadata needs none, and an editable installation uses build/core/."""
    return any(command.startswith(("build", "bdist", "install")) for command in sys.argv[1:])


if __name__ == "__main__":
    setup(
        ext_modules=modules() if is_building() else [],
        cmdclass={"build_ext": CopyModules, "build_py": BuildPackage, "core": CompileCore},
    )

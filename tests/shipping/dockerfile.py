"""Builds a Dockerfile without Docker: runs its instructions in empty roots, one for each stage.

A root contains only the skeleton of a base image. What the image python:VERSION-slim would bring is mounted into it,
read-only, from this machine: the system's programs and libraries, and a Python. The mount namespace ends with the
command, so nothing is left behind. Where the kernel does not allow mounts, as in some containers, the same commands run
in a prefix instead: with an empty environment, and their paths put below a directory.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from fnmatch import fnmatch
from importlib.metadata import distribution
from pathlib import Path
from typing import Final

from .pythons import WHEELHOUSE

INSTRUCTIONS: Final = frozenset({
    "ARG", "FROM", "RUN", "WORKDIR", "COPY", "ENV", "VOLUME", "EXPOSE", "USER", "STOPSIGNAL", "HEALTHCHECK",
    "ENTRYPOINT", "CMD",
})  # fmt: skip
PROGRAMS: Final = ("usr", "lib", "lib32", "lib64", "libx32", "bin", "sbin")
MADE: Final = ("/opt/leveret", "/wheels", "/source", "/var/lib/leveret")
"""Where the image keeps what it builds; in a prefix, below its directory."""


def instructions(text: str) -> list[tuple[str, str]]:
    """Return (name, rest) of each instruction, with continued lines joined."""
    lines = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    found = []
    for line in lines.replace("\\\n", " ").splitlines():
        if line.strip():
            name, rest = line.strip().split(None, 1)
            assert name in INSTRUCTIONS, f"what is {name}?"
            found.append((name, rest))
    return found


def ignored(path: str, patterns: list[str]) -> bool:
    """Whether .dockerignore excludes a path: the last matching pattern decides."""
    is_out = False
    for pattern in patterns:
        bare = pattern.removeprefix("!")
        names = [path, *(str(parent) for parent in Path(path).parents if str(parent) != ".")]
        if bare.startswith("**/"):
            fits = any(fnmatch(part, bare[3:]) for part in Path(path).parts)
        else:
            fits = any(fnmatch(name, bare) for name in names)
        if fits:
            is_out = not pattern.startswith("!")
    return is_out


def can_bind() -> bool:
    """Whether this process may create mounts."""
    return (
        os.getuid() == 0
        and subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True).returncode == 0
    )


def base_python(directory: Path) -> Path:
    """Return a Python with pip, as in the base image; this machine's own may have none, or be read-only."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", directory], check=True)
    [packages] = directory.glob("lib/python*/site-packages")
    # not imported: after that setuptools can't be, in the same process
    shutil.copytree(Path(str(distribution("pip").locate_file("pip"))), packages / "pip")
    (directory / "bin/pip").write_text(f'#!/bin/sh\nexec {directory}/bin/python -m pip "$@"\n')
    (directory / "bin/pip").chmod(0o755)
    return directory


@dataclass
class Image:
    """One stage: its root, and what the Dockerfile says about it."""

    root: Path
    python: Path
    environment: dict[str, str] = field(default_factory=dict)
    workdir: str = "/"
    user: str = "root"
    said: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("etc", "tmp", "var/lib", "opt", "home", "dev", "proc"):
            (self.root / name).mkdir(parents=True)
        (self.root / "tmp").chmod(0o1777)
        (self.root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
        (self.root / "etc/group").write_text("root:x:0:\n")
        for name in ("resolv.conf", "hosts", "nsswitch.conf", "localtime"):
            if Path("/etc", name).exists():
                shutil.copy(Path("/etc", name), self.root / "etc" / name)
        self.environment = {"PATH": f"{self.python}/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": "/tmp"}
        self._variables = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(WHEELHOUSE)}

    def command(self, words: list[str], **environment: str) -> list[str]:
        """Return the command line that runs these words in the image, as its user."""
        variables = self._variables | self.environment | environment
        if not can_bind():
            return self._in_prefix(words, variables)
        lines = ["set -e"]
        for name in PROGRAMS:
            if (path := Path("/", name)).is_symlink():
                lines.append(f"[ -L {self.root}/{name} ] || ln -s {os.readlink(path)} {self.root}/{name}")
            elif path.exists():
                lines.append(self._bound(str(path), "ro"))
        base = os.path.realpath(sys.base_prefix)
        places = [str(self.python), "/dev", "/proc", "/etc/ssl", "/etc/ld.so.cache", str(WHEELHOUSE)]
        lines += [self._bound(place) for place in [*places, *([] if base.startswith("/usr") else [base])]]
        settings = shlex.join(f"{name}={text}" for name, text in variables.items())
        script = f"cd {self.workdir} && exec {shlex.join(words)}"
        inside = f"/usr/bin/env -i {settings} /bin/sh -c {shlex.quote(script)}"
        lines.append(f"exec chroot --userspec={self._ids()} {self.root} {inside}")
        return ["unshare", "--mount", "sh", "-c", "\n".join(lines)]

    def _bound(self, place: str, how: str = "") -> str:
        target = shlex.quote(f"{self.root}{place}")
        made = f"mkdir -p {target}" if os.path.isdir(place) else f"mkdir -p $(dirname {target}); touch {target}"
        again = f"; mount -o remount,bind,{how} {target}" if how else ""
        return f"{made}; mount --bind {shlex.quote(place)} {target}{again}"

    def _ids(self) -> str:
        for line in (self.root / "etc/passwd").read_text().splitlines():
            name, _, user, group, *_ = line.split(":")
            if name == self.user:
                return f"{user}:{group}"
        raise AssertionError(f"there is no user {self.user}")

    def _in_prefix(self, words: list[str], variables: dict[str, str]) -> list[str]:
        def below(text: str) -> str:
            return re.sub("|".join(MADE), lambda found: f"{self.root}{found[0]}", text)

        stubs = self.root / "stubs"
        stubs.mkdir(exist_ok=True)
        for name in ("groupadd", "useradd", "chown"):
            (stubs / name).write_text("#!/bin/sh\n")
            (stubs / name).chmod(0o755)
        settings = [f"{name}={below(text)}" for name, text in variables.items()]
        settings.append(f"PATH={stubs}:{below(variables['PATH'])}")
        script = f"cd {below(self.workdir)} && exec {shlex.join([below(word) for word in words])}"
        return ["/usr/bin/env", "-i", *settings, "/bin/sh", "-c", script]

    def run(self, words: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
        """Run these words to their end."""
        command = self.command(words, **environment)
        return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


class Build:
    """A Dockerfile and its stages.

    Args:
        context: The directory that is sent.
        python: The Python of the base image.
        arguments: Those of `docker build --build-arg`.
    """

    def __init__(self, dockerfile: Path, context: Path, work: Path, python: Path, arguments: dict[str, str]) -> None:
        self._context = context
        self._work = work
        self._given = arguments
        self._stages: dict[str, Image] = {}
        lines = (context / ".dockerignore").read_text().splitlines()
        self._ignored = [line for line in lines if line and not line.startswith("#")]
        self._python = python
        self._arguments: dict[str, str] = {}
        self.image = Image.__new__(Image)
        for name, rest in instructions(dockerfile.read_text()):
            getattr(self, f"_{name.lower()}")(rest)

    def _expanded(self, text: str) -> str:
        known = self._arguments | getattr(self.image, "environment", {})
        return re.sub(r"\$\{?(\w+)\}?", lambda found: known.get(found[1], found[0]), text)

    def _arg(self, rest: str) -> None:
        name, _, default = rest.partition("=")
        self._arguments[name] = self._given.get(name, default)

    def _from(self, rest: str) -> None:
        base, *named = self._expanded(rest).split()
        assert re.fullmatch(r"python:3\.\d+-slim", base), f"this is a stand-in for no other base than Python's: {base}"
        name = named[1] if named else "last"
        self.image = self._stages[name] = Image(self._work / name, self._python)

    def _run(self, rest: str) -> None:
        done = self.image.run(["/bin/sh", "-c", rest], **self._arguments)
        assert done.returncode == 0, f"RUN {rest}\n{done.stdout}{done.stderr}"

    def _workdir(self, rest: str) -> None:
        self.image.workdir = self._expanded(rest)
        self._at(rest).mkdir(parents=True, exist_ok=True)

    def _copy(self, rest: str) -> None:
        *sources, target = rest.split()
        if sources[0].startswith("--from="):
            shutil.copytree(
                self._at(sources[1], self._stages[sources[0].partition("=")[2]]), self._at(target), symlinks=True
            )
            return
        for source in sources:
            path = self._context / source
            place = self._at(target) / path.name if target.endswith("/") else self._at(target)
            if path.is_dir():
                shutil.copytree(path, self._at(target), ignore=self._left_out, dirs_exist_ok=True)
            else:
                assert not ignored(source, self._ignored), f".dockerignore keeps {source} out"
                shutil.copy(path, place)

    def _left_out(self, directory: str, names: list[str]) -> list[str]:
        above = Path(directory).relative_to(self._context)
        return [name for name in names if ignored(str(above / name), self._ignored)]

    def _at(self, path: str, image: Image | None = None) -> Path:
        image = image or self.image
        return image.root / os.path.join(image.workdir, self._expanded(path)).lstrip("/")

    def _env(self, rest: str) -> None:
        for word in shlex.split(rest):
            name, _, text = word.partition("=")
            self.image.environment[name] = self._expanded(text)

    def _user(self, rest: str) -> None:
        self.image.user = rest

    def _entrypoint(self, rest: str) -> None:
        self.image.said["ENTRYPOINT"] = rest

    def _cmd(self, rest: str) -> None:
        self.image.said["CMD"] = rest

    def _healthcheck(self, rest: str) -> None:
        self.image.said["HEALTHCHECK"] = rest.partition("CMD ")[2]

    def _volume(self, rest: str) -> None:
        self.image.said["VOLUME"] = rest

    def _expose(self, rest: str) -> None:
        self.image.said["EXPOSE"] = rest

    def _stopsignal(self, rest: str) -> None:
        self.image.said["STOPSIGNAL"] = rest

    def words(self, *names: str) -> list[str]:
        """Return the words of these instructions (ENTRYPOINT, CMD or HEALTHCHECK), concatenated."""
        return [word for name in names for word in json.loads(self.image.said[name])]

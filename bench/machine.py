"""Describes the machine and the software of a measurement."""

import importlib.metadata
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import leveret

HERE = Path(__file__).resolve().parent


def about() -> dict[str, str]:
    """Return the facts on the machine and its software for the document, a line each."""
    commit = first_line(["git", "-C", str(HERE), "describe", "--always", "--dirty", "--tags"])
    return {
        "leveret": f"{leveret.__version__}, {leveret.core()} core{f', commit {commit}' if commit else ''}",
        "RabbitMQ": first_line(["dpkg-query", "-W", "-f", "${Version}", "rabbitmq-server"]),
        "Erlang": first_line(["dpkg-query", "-W", "-f", "${Version}", "erlang-base"]),
        "GarageMQ": first_line(["dpkg-query", "-W", "-f", "${Version}", "garagemq"]),
        "Python": python(),
        "mypyc": importlib.metadata.version("mypy"),
        "C compiler of the load generator": first_line(["cc", "--version"]),
        "kernel": f"{platform.system()} {platform.release()}",
        "TCP's congestion control": Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip(),
        "processor": f"{processor()}, {os.cpu_count()} of them",
        "memory": f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.0f} GiB",
        "file system of the data": filesystem(HERE),
        "load before": f"{os.getloadavg()[0]:.2f}",
        "command": " ".join(["bench/" + Path(sys.argv[0]).name, *sys.argv[1:]]),
    }


def kind() -> dict[str, str]:
    """Return what must be the same for times of two runs to be comparable."""
    return {
        "Python": f"{python()}, {platform.python_compiler()}, {platform.machine()}",
        "core": f"{leveret.core()}, mypyc {importlib.metadata.version('mypy')}",
        "C library": " ".join(platform.libc_ver()),
        "processor": f"{processor()} x {os.cpu_count()}",
        "RabbitMQ": first_line(["dpkg-query", "-W", "-f", "${Version}", "rabbitmq-server"]),
    }


def python() -> str:
    return f"{platform.python_implementation()} {platform.python_version()}"


def processor() -> str:
    """Return the name of the processor as Linux reports it."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def filesystem(place: Path) -> str:
    """Return a directory's file system and its mount options."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    fitting = [mount for mount in mounts if place.is_relative_to(mount[1])]
    if not fitting:  # in a chroot the mount of the root is not listed
        return "unknown"
    best = max(fitting, key=lambda mount: len(mount[1]))
    return f"{best[2]} ({best[3]})"


def first_line(command: list[str]) -> str:
    """Return the first line that a command prints, or "" if it cannot be run."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.partition("\n")[0].strip() if done.returncode == 0 else ""


def stats() -> Iterator[list[str]]:
    """Yield the fields after the name in /proc/PID/stat of each process; [3] is the session."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = path.read_text()
        except OSError:
            continue  # the process has ended
        yield text.rpartition(")")[2].split()

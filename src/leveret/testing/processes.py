"""Brokers in processes of their own: leveret, and the brokers that it is compared with.

Each is a context manager with a private data directory and free ports on 127.0.0.1. Entering it waits until the broker
reports that it is ready; leaving it stops the broker and all its child processes. Brokers that already run on the
machine are not affected.

    with LeveretProcess() as broker:
        client = pika.BlockingConnection(pika.URLParameters(broker.url))
"""

import contextlib
import fcntl
import json
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from leveret.testing.lines import Lines

__all__ = ["GarageMQProcess", "LeveretProcess", "ProcessFailed", "RabbitMQProcess", "ServerProcess", "free_port"]

FIRST_PORT: Final = 16384
PORTS: Final = 16384
"""The number of ports in the range; Linux assigns clients ports from 32768 on."""
LOCKED_PORTS: Final = Path("/tmp/leveret-ports.lock")
"""One file for all processes of the machine, whatever their TMPDIR is."""
LINES_KEPT: Final = 400
"""How many lines of a server's output are kept for error messages."""


class ProcessFailed(Exception):
    """A server did not start, did not stop, or exited with a status other than 0. The text ends with its output."""


class Ports:
    """TCP ports on 127.0.0.1 that this process reserves until it ends, so that no two processes use the same.

    They are below the ports that Linux assigns to clients, and each is a byte of LOCKED_PORTS that this process has
    locked. A server can therefore be restarted on its port, which a port chosen by the kernel would not guarantee.
    """

    def __init__(self) -> None:
        self._taken: set[int] = set()
        self._file: int | None = None
        self._owner = 0
        self._turn = threading.Lock()

    def take(self) -> int:
        """Return a port that no other process has reserved or listens on."""
        with self._turn:
            if self._owner != os.getpid():  # a forked process does not inherit locks
                self._file, self._owner = self._opened(), os.getpid()
            while True:
                port = FIRST_PORT + secrets.randbelow(PORTS)
                if port not in self._taken and self._lock(port):
                    self._taken.add(port)
                    with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
                        return port

    def _lock(self, port: int) -> bool:
        assert self._file is not None
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
        except BlockingIOError:
            return False
        return True

    @staticmethod
    def _opened() -> int:
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            # without O_CREAT: in a sticky directory Linux refuses that for another user's file
            return os.open(LOCKED_PORTS, flags)
        except FileNotFoundError:
            file = os.open(LOCKED_PORTS, flags | os.O_CREAT, 0o666)
            os.fchmod(file, 0o666)  # shared by all users of the machine
            return file


_ports: Final = Ports()


def free_port() -> int:
    """Return a TCP port on 127.0.0.1 that nobody listens on, reserved for this process until it ends."""
    return _ports.take()


class ServerProcess:
    """A server in a process group of its own; it writes a line when it is ready.

    Attributes:
        port: its AMQP port on 127.0.0.1.
        data_dir: its directory; a temporary one, removed at the end, unless one was given.
        extra_environment: more environment variables for the next start.
    """

    name = "server"
    ready_pattern = re.compile(r"ready")
    start_timeout_s = 60.0
    stop_timeout_s = 60.0

    def __init__(self, data_dir: Path | None = None, port: int | None = None) -> None:
        """Prepare the server without starting it.

        Args:
            data_dir: kept after the end if given, so that a second process can start on it.
            port: None for a free one.
        """
        self.port = free_port() if port is None else port
        self._temporary = Path(tempfile.mkdtemp(prefix=f"{self.name}-")) if data_dir is None else None
        self.data_dir = data_dir or self._temporary or Path()
        self.extra_environment: dict[str, str] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._lines: Lines | None = None
        self._output: deque[str] = deque(maxlen=LINES_KEPT)
        self._news = threading.Condition()
        self._ready = False
        self._killed = False

    # -- for subclasses ------------------------------------------------------------------------------------------------

    def command(self) -> Sequence[str | Path]:
        """Return the command that runs the server in the foreground."""
        return [self.name]

    def environment(self) -> Mapping[str, str]:
        """Return the server's environment variables in addition to this process's."""
        return {}

    def prepare(self) -> None:
        """Write files and start helpers that the server needs; called before each start."""

    def clean_up(self) -> None:
        """Stop what `prepare` started."""

    # -- public interface ----------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """The connection URL, for user guest and virtual host "/"."""
        return f"amqp://guest:guest@127.0.0.1:{self.port}/%2F"

    @property
    def pid(self) -> int:
        """The process id of the server (in RabbitMQ's case a script, whose descendants do the work)."""
        return self._running().pid

    @property
    def is_running(self) -> bool:
        """Whether the server was started and has not ended since."""
        return self._process is not None and self._process.poll() is None

    @property
    def output(self) -> str:
        """The last lines of the server's standard output and error up to now."""
        with self._news:
            self._hear(self._lines)
            return "".join(self._output)

    def account(self) -> str:
        """Return the output and the ends of log files, to explain a failure."""
        return self.output

    def said(self, text: str, timeout_s: float = 60.0) -> str:
        """Wait for a line of the output that contains `text`, and return it. Raises ProcessFailed after the timeout."""
        with self._news:
            if not self._news.wait_for(lambda: any(text in line for line in self._output), timeout_s):
                raise ProcessFailed(f"{self.name} did not print {text!r}:\n{''.join(self._output)}")
            return next(line for line in self._output if text in line)

    def __enter__(self) -> Self:
        """Start the server and wait until it is ready. Raises ProcessFailed if it does not start."""
        try:
            return self.start()
        except BaseException:
            self._remove()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the server. Raises ProcessFailed if its exit status is not 0, unless it was killed."""
        if error is not None:
            error.add_note(f"{self.name} on port {self.port} printed:\n{self.account()}")
        try:
            status = self.stop()
            if status != 0 and not self._killed and error is None:
                raise ProcessFailed(f"{self.name} stopped with exit status {status}:\n{self.output}")
        finally:
            self._remove()

    def start(self) -> Self:
        """Start the server (again, after `stop` or `kill`) and wait until it is ready."""
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self._killed = False
        self.prepare()
        process = subprocess.Popen(
            self.command(),
            env={**os.environ, **self.environment(), **self.extra_environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            # its own group, so that signals reach all of it, and Ctrl-C on the terminal none of it
            start_new_session=True,
        )
        assert process.stdout is not None
        lines = Lines(process.stdout)
        with self._news:
            self._hear(self._lines)
            self._process, self._lines, self._ready = process, lines, False
        threading.Thread(target=self._listen, args=(lines,), daemon=True, name=f"{self.name}-output").start()
        with self._news:
            self._news.wait_for(lambda: self._ready or lines.have_ended, self.start_timeout_s)
        if not self._ready:
            reason = "ended" if lines.have_ended else f"was not ready after {self.start_timeout_s:.0f} s"
            self.kill()
            raise ProcessFailed(f"{self.name} {reason}:\n{self.output}")
        return self

    def wait(self) -> int:
        """Wait for a server that ends by itself. Return its exit status.

        Raises:
            ProcessFailed: it still ran after `stop_timeout_s`, and was killed.
        """
        try:
            return self._running().wait(self.stop_timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ProcessFailed(f"{self.name} did not end within {self.stop_timeout_s:.0f} s:\n{self.output}") from None

    def stop(self) -> int:
        """Stop the server (SIGTERM) and wait for its end. Return its exit status; negative for a signal.

        Raises:
            ProcessFailed: it still ran after `stop_timeout_s`, and was killed.
        """
        process = self._running()
        if process.poll() is None:
            self._terminate(process)
        try:
            return self.wait()
        finally:
            self._signal_group(signal.SIGKILL)
            self.clean_up()

    def kill(self) -> None:
        """End the server like a crash: SIGKILL to all of its processes."""
        self._killed = True
        self._signal_group(signal.SIGKILL)
        self._running().wait()
        self.clean_up()

    # -- internals -----------------------------------------------------------------------------------------------------

    def _running(self) -> "subprocess.Popen[bytes]":
        if self._process is None:
            raise ProcessFailed(f"{self.name} was not started")
        return self._process

    def _terminate(self, process: "subprocess.Popen[bytes]") -> None:
        process.send_signal(signal.SIGTERM)

    def _signal_group(self, number: signal.Signals) -> None:
        try:
            os.killpg(self._running().pid, number)
        except ProcessLookupError:
            pass  # all of its processes are gone

    def _listen(self, lines: Lines) -> None:
        while not lines.have_ended:
            lines.wait()
            self._hear(lines)

    def _hear(self, lines: Lines | None) -> None:
        """Take the output so far. Readers call this too, since the listening thread may lag behind."""
        with self._news:
            for line in lines.take() if lines else ():
                self._output.append(line)
                # the last output of a killed process may arrive while its successor is being started
                self._ready = self._ready or (lines is self._lines and bool(self.ready_pattern.search(line)))
            self._news.notify_all()

    def _remove(self) -> None:
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)


class LeveretProcess(ServerProcess):
    """``leveret serve``, with the core that this process would import unless `source` names another."""

    name = "leveret"
    ready_pattern = re.compile(r"listening on ")

    def __init__(
        self,
        data_dir: Path | None = None,
        port: int | None = None,
        arguments: Sequence[str] = (),
        source: Path | None = None,
        admin: bool = False,
    ) -> None:
        """Prepare a broker.

        Args:
            data_dir: see ServerProcess.
            port: see ServerProcess.
            arguments: more options of ``leveret serve``.
            source: the directory to import leveret from; decides whether the core is compiled.
            admin: enable the HTTP API, on the free port `admin_port`.
        """
        super().__init__(data_dir, port)
        self._arguments = tuple(arguments)
        self._source = Path(__file__).parents[2] if source is None else source
        self.admin_port = free_port() if admin else 0

    @property
    def admin_url(self) -> str:
        """The base URL of the HTTP API."""
        return f"http://127.0.0.1:{self.admin_port}"

    def command(self) -> Sequence[str | Path]:
        where = ["--host", "127.0.0.1", "--port", str(self.port), "--data-dir", str(self.data_dir)]
        return [sys.executable, "-m", "leveret.cli.main", "serve", *where, *self._arguments]

    def environment(self) -> Mapping[str, str]:
        return {
            "PYTHONPATH": str(self._source),
            "PYTHONUNBUFFERED": "1",
            "LEVERET_ADMIN_PORT": str(self.admin_port),
        }


class RabbitMQProcess(ServerProcess):
    """A single RabbitMQ node with its own name, ports, cookie and epmd, run by the current user."""

    name = "rabbitmq"
    ready_pattern = re.compile(r"completed with \d+ plugins")
    start_timeout_s = 180.0
    stop_timeout_s = 120.0
    # Debian's /usr/sbin/rabbitmq-server is a wrapper that requires the user rabbitmq and the system's directories.
    DEBIAN: Final = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")

    def __init__(
        self, data_dir: Path | None = None, port: int | None = None, plugins: Sequence[str] = (), settings: str = ""
    ) -> None:
        """Prepare a node.

        Args:
            data_dir: see ServerProcess.
            port: see ServerProcess.
            plugins: names of the plugins to enable.
            settings: more lines of rabbitmq.conf.
        """
        super().__init__(data_dir, port)
        self._plugins = ",".join(plugins)
        self._settings = settings
        self._mapper: subprocess.Popen[bytes] | None = None
        self._mapper_port = free_port()
        self._dist_port = free_port()

    @classmethod
    def program(cls) -> str | None:
        """Return the path of the server's start script, or None if RabbitMQ is not installed."""
        return str(cls.DEBIAN) if cls.DEBIAN.exists() else shutil.which("rabbitmq-server")

    def prepare(self) -> None:
        mapper = shutil.which("epmd")
        if self.program() is None or mapper is None:
            raise ProcessFailed("RabbitMQ is not installed (rabbitmq-server and epmd are needed)")
        settings = [f"listeners.tcp.default = 127.0.0.1:{self.port}", "log.console = false", self._settings]
        (self.data_dir / "rabbitmq.conf").write_text("\n".join(settings) + "\n")
        (self.data_dir / "enabled_plugins").write_text(f"[{self._plugins}].\n")
        # without an epmd, the node would start one that outlives it; so wait until this one listens
        self._mapper = subprocess.Popen(
            [mapper, "-port", str(self._mapper_port), "-address", "127.0.0.1"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._await_mapper(self._mapper)

    def _await_mapper(self, mapper: "subprocess.Popen[bytes]") -> None:
        while mapper.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self._mapper_port)).close()
            except ConnectionRefusedError:
                time.sleep(0.005)
            else:
                return
        raise ProcessFailed(f"epmd did not start on port {self._mapper_port}")

    def clean_up(self) -> None:
        if self._mapper is not None:
            self._mapper.kill()
            self._mapper.wait()
            self._mapper = None

    def command(self) -> Sequence[str | Path]:
        return [self.program() or "rabbitmq-server"]

    def account(self) -> str:
        logs = [path.read_text(errors="replace").splitlines() for path in sorted(self.data_dir.glob("log/*.log"))]
        return "\n".join([self.output, *(line for log in logs for line in log[-LINES_KEPT // 10 :])])

    def environment(self) -> Mapping[str, str]:
        home = self.data_dir
        return {
            "HOME": str(home),
            "ERL_CRASH_DUMP": str(home / "erl_crash.dump"),
            "RABBITMQ_NODENAME": f"leveret-test-{self.port}@localhost",
            "RABBITMQ_DIST_PORT": str(self._dist_port),
            "RABBITMQ_CONFIG_FILE": str(home / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": str(home / "no-such-file"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(home / "no-such-file"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(home / "mnesia"),
            "RABBITMQ_LOG_BASE": str(home / "log"),
            "RABBITMQ_PID_FILE": str(home / "rabbitmq.pid"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1} -start_epmd false",
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self._mapper_port),
        }

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the node; with a temporary directory kill it, as a stop takes seconds to save data that is deleted."""
        if self._temporary is not None and self.is_running:
            self.kill()
        super().__exit__(kind, error, trace)

    def _terminate(self, process: "subprocess.Popen[bytes]") -> None:
        # the whole group: the start script alone would call rabbitmqctl, which takes seconds; Erlang stops by itself
        self._signal_group(signal.SIGTERM)


class GarageMQProcess(ServerProcess):
    """GarageMQ, for measurements, with its default settings except for directories and ports."""

    name = "garagemq"
    ready_pattern = re.compile(r"Server started")

    def prepare(self) -> None:
        settings = {
            "proto": "amqp-rabbit",
            # MD5 of "guest"
            "users": [{"username": "guest", "password": "084e0343a0486ff05530df6c705c8bb4"}],
            "tcp": {
                "ip": "127.0.0.1",
                "port": self.port,
                "nodelay": False,
                "readBufSize": 196608,
                "writeBufSize": 196608,
            },
            "admin": {"ip": "127.0.0.1", "port": free_port()},
            "queue": {"shardSize": 8192, "maxMessagesInRam": 131072},
            "db": {"defaultPath": str(self.data_dir / "db"), "engine": "badger"},
            "vhost": {"defaultPath": "/"},
            "security": {"passwordCheck": "md5"},
            "connection": {"channelsMax": 4096, "frameMaxSize": 65536},
        }
        # JSON is valid YAML
        (self.data_dir / "config.yaml").write_text(json.dumps(settings))

    def command(self) -> Sequence[str | Path]:
        return [self.name, "--config", self.data_dir / "config.yaml"]

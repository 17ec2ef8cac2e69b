"""`leveret ctl` on a running broker: what it does, prints and returns. tests/interop compares it with rabbitmqctl."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pika
import pika.exceptions
import pytest
from click.testing import CliRunner, Result

from leveret.cli.ctl.group import command
from leveret.testing.processes import LeveretProcess

SOURCE = str(Path(__file__).parents[2] / "src")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LeveretProcess]:
    with LeveretProcess(tmp_path_factory.mktemp("data")) as process:
        yield process


class Ctl:
    """Calls `leveret ctl` as a script would."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir

    def run(self, *arguments: str, input: str = "") -> Result:
        """Return the result, whether it succeeded or not."""
        environment = {"LEVERET_DATA_DIR": str(self.data_dir)}
        return CliRunner().invoke(command, list(arguments), input=input, env=environment, prog_name="ctl")

    def __call__(self, *arguments: str, input: str = "") -> str:
        """Return the output of a command that must succeed."""
        result = self.run(*arguments, input=input)
        assert (result.exit_code, result.stderr) == (0, "")
        return result.stdout

    def refused(self, code: int, *arguments: str, input: str = "") -> str:
        """Return the error text of a command that must end with this exit code."""
        result = self.run(*arguments, input=input)
        assert result.exit_code == code, result.output
        assert "Traceback" not in result.output
        return result.stderr


@pytest.fixture
def ctl(broker: LeveretProcess) -> Ctl:
    return Ctl(broker.data_dir)


def connect(broker: LeveretProcess, user: str = "guest", password: str = "guest") -> pika.BlockingConnection:
    credentials = pika.PlainCredentials(user, password)
    return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.port, credentials=credentials))


# -- what it prints ----------------------------------------------------------------------------------------------------


def test_a_table_is_for_scripts_where_no_terminal_is(ctl: Ctl) -> None:
    assert ctl("list_users") == "Listing users ...\nuser\ttags\nguest\t[administrator]\n"
    assert ctl("-q", "list_users") == ctl("list_users", "-q") == "user\ttags\nguest\t[administrator]\n"
    assert ctl("list_users", "--silent") == "guest\t[administrator]\n"
    assert ctl("-q", "list_users", "--no-table-headers") == "guest\t[administrator]\n"


def test_json_and_csv_are_documents_of_their_own(ctl: Ctl) -> None:
    assert ctl("list_users", "--json") == ctl("list_users", "--formatter=json")
    assert json.loads(ctl("list_users", "--json")) == [{"user": "guest", "tags": ["administrator"]}]
    assert ctl("list_users", "--formatter", "csv") == '"user","tags"\n"guest","[administrator]"\n'


def test_people_get_lines_around_it(ctl: Ctl) -> None:
    assert "│ guest │ [administrator] │" in ctl("list_users", "--formatter", "pretty_table")


def test_options_stand_where_they_like(ctl: Ctl) -> None:
    expected = "user\tconfigure\twrite\tread\nguest\t.*\t.*\t.*\n"
    assert ctl("-q", "-p", "/", "-n", "rabbit@x", "list_permissions") == expected
    assert ctl("--node=rabbit@x", "list_permissions", "--vhost", "/", "--quiet", "-t", "9") == expected


# -- users and permissions ---------------------------------------------------------------------------------------------


def test_a_user_from_the_cradle_to_the_grave(broker: LeveretProcess, ctl: Ctl) -> None:
    assert ctl("add_user", "u", "one").startswith('Adding user "u" ...\nDone.')
    assert ctl.refused(70, "add_user", "u", "two") == 'Error:\nUser "u" already exists\n'
    ctl("set_user_tags", "u", "monitoring", "management")
    assert "u\t[monitoring, management]\n" in ctl("list_users")
    ctl("set_permissions", "u", "^u-", "", ".*")
    connect(broker, "u", "one").close()
    assert ctl("-q", "list_user_permissions", "u") == "vhost\tconfigure\twrite\tread\n/\t^u-\t\t.*\n"
    assert ctl("authenticate_user", "u", "one") == 'Authenticating user "u" ...\nSuccess\n'
    ctl("change_password", "u", input="two\n")
    assert "invalid credentials" in ctl.refused(65, "authenticate_user", "u", "one")
    connect(broker, "u", "two").close()
    ctl("clear_password", "u")
    ctl.refused(65, "authenticate_user", "u", "two")
    ctl("clear_permissions", "u")
    assert ctl("-q", "list_user_permissions", "u") == "\n"
    ctl("delete_user", "u")
    assert ctl.refused(67, "delete_user", "u") == 'Error:\nUser "u" does not exist\n'


def test_a_hash_lets_in_whom_its_password_lets_in(ctl: Ctl) -> None:
    password_hash = ctl("-q", "hash_password", "sesame").strip()
    ctl("add_user", "hashed", "--pre-hashed-password", password_hash)
    ctl("authenticate_user", "hashed", "sesame")
    ctl("delete_user", "hashed")
    assert "not base64" in ctl.refused(65, "add_user", "hashed", "--pre-hashed-password", "?")


def test_a_password_from_standard_input_or_none(ctl: Ctl) -> None:
    assert "Password: " in ctl("add_user", "asked", input="secret\n")
    ctl("authenticate_user", "asked", "secret")
    ctl("delete_user", "asked")
    assert "Password is not provided" in ctl.refused(65, "add_user", "asked")
    assert "Password is not provided" in ctl.refused(70, "change_password", "guest")


def test_topic_permissions(ctl: Ctl) -> None:
    ctl("set_topic_permissions", "guest", "amq.topic", "^a", "^b")
    assert ctl("-q", "list_topic_permissions") == "user\texchange\twrite\tread\nguest\tamq.topic\t^a\t^b\n"
    assert ctl("-q", "list_user_topic_permissions", "guest") == "/\tamq.topic\t^a\t^b\n"
    ctl("clear_topic_permissions", "guest", "nosuch")
    assert "amq.topic" in ctl("list_topic_permissions")
    ctl("clear_topic_permissions", "guest")
    assert ctl("-q", "list_topic_permissions") == "\n"


def test_who_does_not_exist(ctl: Ctl) -> None:
    for name in ("set_permissions", "set_topic_permissions"):
        pattern = ["amq.topic"] if "topic" in name else [".*"]
        assert 'User "x" does not exist' in ctl.refused(67, name, "x", *pattern, ".*", ".*")
    assert "Virtual host 'x' does not exist" in ctl.refused(69, "set_permissions", "-p", "x", "guest", "", "", "")
    ctl.refused(67, "set_user_tags", "x", "monitoring")
    ctl.refused(69, "list_user_permissions", "x")
    ctl.refused(65, "list_permissions", "-p", "x")
    assert "regular expression '[' is invalid" in ctl.refused(69, "set_permissions", "guest", "[", "", "")
    assert "guest\t.*\t.*\t.*" in ctl("list_permissions")


def test_virtual_hosts(ctl: Ctl) -> None:
    ctl("add_vhost", "v", "--description", "the v", "--tags", "a,b")
    ctl("add_vhost", "v", "--description", "another", "--tags", "a,b")
    assert "v\tanother\t[a, b]\n" in ctl("list_vhosts", "name", "description", "tags")
    ctl("add_vhost", "v")
    assert "v\tanother\t[a, b]\n" in ctl("list_vhosts", "name", "description", "tags")
    ctl("set_vhost_tags", "v", "c")
    assert "v\t[c]\n" in ctl("list_vhosts", "name", "tags")
    assert ctl("restart_vhost", "-p", "v").endswith(f"Vhost 'v' is already running on node 'leveret@{os.uname()[1]}'\n")
    ctl("delete_vhost", "v")
    ctl.refused(65, "delete_vhost", "v")
    ctl.refused(70, "restart_vhost", "-p", "v")


# -- queues, connections, settings -------------------------------------------------------------------------------------


def test_queues_are_purged_and_deleted(broker: LeveretProcess, ctl: Ctl) -> None:
    connection = connect(broker)
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare("q", durable=True)
    channel.basic_publish("", "q", b"1")
    assert ctl.refused(64, "delete_queue", "q", "--if-empty").endswith("Queue is not empty\n")
    assert ctl("purge_queue", "q") == "Purging queue 'q' in vhost '/' ...\n"
    assert channel.queue_declare("q", passive=True).method.message_count == 0
    channel.basic_publish("", "q", b"2")
    cancelled: list[object] = []
    channel.add_on_cancel_callback(cancelled.append)
    channel.basic_consume("q", lambda *_: None)
    channel.queue_declare("q", passive=True)
    assert ctl.refused(64, "delete_queue", "q", "--if-unused").endswith("Queue is in use\n")
    assert ctl("delete_queue", "q").endswith("Queue was successfully deleted with 0 ready messages\n")
    while not cancelled:
        connection.process_data_events(time_limit=1)
    ctl.refused(64, "delete_queue", "q")
    ctl.refused(69, "purge_queue", "q")
    connection.close()


def test_connections_are_closed(broker: LeveretProcess, ctl: Ctl) -> None:
    def closed(connection: pika.BlockingConnection) -> tuple[int, str]:
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as error:
            connection.channel().queue_declare("", exclusive=True)
        return error.value.reply_code, error.value.reply_text

    victim = connect(broker)
    ctl("close_all_user_connections", "guest", "because")
    assert closed(victim) == (320, "CONNECTION_FORCED - because")
    victims = [connect(broker) for _ in range(3)]
    assert ctl("close_all_connections", "--limit", "2", "one").endswith("Closed 2 connections\n")
    assert ctl("close_all_connections", "-p", "x", "two").endswith("Closed 0 connections\n")
    assert ctl("close_all_connections", "--global", "two").startswith("Closing all connections, reason: two...")
    assert [closed(victim)[1][-3:] for victim in victims] == ["one", "one", "two"]
    victims = [connect(broker) for _ in range(2)]
    (pid, name), (_, other) = (line.split("\t") for line in ctl("-s", "list_connections", "pid", "name").splitlines())
    assert " " not in pid
    ctl("close_connection", pid, "by pid")
    ctl("close_connection", other, "by name")
    assert [closed(victim)[1] for victim in victims] == ["CONNECTION_FORCED - by pid", "CONNECTION_FORCED - by name"]
    assert name != other
    assert "no connection 'x'" in ctl.refused(69, "close_connection", "x", "because")


def test_listeners_are_suspended_and_resumed(broker: LeveretProcess, ctl: Ctl) -> None:
    before = connect(broker)
    ctl("suspend_listeners")
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        connect(broker)
    before.channel().close()
    before.close()
    ctl("resume_listeners")
    ctl("resume_listeners")
    connect(broker).close()


def test_limits_that_publishers_feel(broker: LeveretProcess, ctl: Ctl) -> None:
    with connect(broker) as connection:
        blocked: list[str] = []
        connection.add_on_connection_blocked_callback(lambda _, frame: blocked.append(frame.method.reason))
        connection.add_on_connection_unblocked_callback(lambda *_: blocked.append("unblocked"))
        ctl("set_vm_memory_high_watermark", "absolute", "1MB")
        channel = connection.channel()
        channel.basic_publish("", "nowhere", b"")
        while not blocked:
            connection.process_data_events(time_limit=1)
        ctl("set_vm_memory_high_watermark", "0.9")
        while "unblocked" not in blocked:
            connection.process_data_events(time_limit=1)
        assert blocked[0] == "low on memory"
        ctl("set_disk_free_limit", "1")
    for arguments in (["x"], ["1.5"], ["absolute", "x"], ["absolute"]):
        ctl.refused(65, "set_vm_memory_high_watermark", *arguments)
    for arguments in (["x"], ["mem_relative", "x"], ["mem_relative"]):
        ctl.refused(65, "set_disk_free_limit", *arguments)


def test_the_name_that_clients_hear_outlives_a_restart(tmp_path: Path) -> None:
    with LeveretProcess(tmp_path) as own:
        Ctl(tmp_path)("set_cluster_name", "another")
        own.stop()
        own.start()
        with connect(own) as connection:
            assert connection._impl.server_properties["cluster_name"] == "another"


def test_the_log_level_and_the_audit(tmp_path: Path) -> None:
    with LeveretProcess(tmp_path) as own:
        ctl = Ctl(tmp_path)
        ctl("set_log_level", "none")
        ctl("add_user", "silent", "x")
        connect(own).close()
        ctl("set_log_level", "info")
        connect(own).close()
        assert "level x is not supported" in ctl.refused(69, "set_log_level", "x")
        own.stop()
        assert own.output.count("user 'guest' connected") == 1
        assert '"command": "add_user"' in own.output


def test_a_backup_is_a_data_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with LeveretProcess(tmp_path / "data") as own:
        Ctl(own.data_dir)("add_user", "kept", "x")
        monkeypatch.chdir(tmp_path)
        assert " files, " in Ctl(own.data_dir)("backup", "copy")
    with LeveretProcess(tmp_path / "copy") as copy:
        assert "kept\t[]" in Ctl(copy.data_dir)("list_users")


def test_logins_are_counted(tmp_path: Path) -> None:
    with LeveretProcess(tmp_path) as own:
        connect(own).close()
        header = "protocol\tauth_attempts\tauth_attempts_failed\tauth_attempts_succeeded\n"
        assert Ctl(tmp_path)("-q", "list_node_auth_attempt_stats") == f"{header}amqp091\t1\t0\t1\n"


# -- what does not run, and what does not exist ------------------------------------------------------------------------


def test_without_a_broker_it_says_what_to_do(tmp_path: Path) -> None:
    ctl = Ctl(tmp_path)
    text = ctl.refused(69, "list_users")
    assert f"no broker is running in {tmp_path}" in text
    assert f"leveret serve --data-dir {tmp_path}" in text
    assert ctl.refused(69, "await_startup", "-t", "0.2") == text


def test_a_socket_that_is_not_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("socket.socket.connect", refuse)
    assert "no permission to open the control socket" in Ctl(tmp_path).refused(77, "list_users")


def test_a_broker_that_does_not_answer_in_time(tmp_path: Path) -> None:
    import socket

    from leveret.control.calls.address import SOCKET_NAME

    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / SOCKET_NAME))
        silent.listen()
        assert "timed out" in Ctl(tmp_path).refused(75, "list_users", "-t", "0.1")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["list_usrs"], "Command 'list_usrs' not found.\nDid you mean 'list_users'?"),
        (["list_users", "extra"], "too many arguments."),
        (["add_user"], "not enough arguments."),
        (["list_users", "--bogus"], "Invalid options for this command:\n--bogus : "),
        (["--bogus", "list_users"], "Invalid options for this command:\n--bogus : "),
        (["list_vhosts", "name", "a", "b"], "Info key(s) a,b are not supported"),
        (["await_online_nodes", "x"], "'x' is not a valid integer"),
    ],
)
def test_wrong_usage(ctl: Ctl, arguments: list[str], text: str) -> None:
    assert text in ctl.refused(64, *arguments)


def test_what_has_no_meaning_here_says_why(ctl: Ctl) -> None:
    assert "does not run on Erlang" in ctl.refused(69, "eval", "1 + 1.")
    assert "single node" in ctl.refused(69, "join_cluster", "rabbit@elsewhere", "--quiet")
    assert "single node" in ctl.refused(70, "await_online_nodes", "2")


def test_help_is_by_subjects_and_names_every_command(ctl: Ctl) -> None:
    text = ctl("--help")
    assert "Access control:" in text
    assert "set_permissions" in text
    assert "join_cluster" not in text
    assert ctl("help", "set_permissions") == ctl("set_permissions", "--help")
    assert "USERNAME CONF WRITE READ" in ctl("set_permissions", "-?")
    assert ctl("autocomplete", "set_user") == "set_user_tags\nset_user_limits\n"


# -- as a process ------------------------------------------------------------------------------------------------------


@pytest.fixture
def link(tmp_path: Path) -> Path:
    """A link named rabbitmqctl to an executable that does the same as an installed `leveret`."""
    program = tmp_path / "leveret"
    program.write_text(f"#!{sys.executable}\nfrom leveret.cli.main import main\nmain()\n")
    program.chmod(0o755)
    path = tmp_path / "rabbitmqctl"
    path.symlink_to(program)
    return path


def call(program: Path, data_dir: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": os.environ.get("PYTHONPATH", SOURCE), "LEVERET_DATA_DIR": str(data_dir)}
    return subprocess.run(
        [program, *arguments], capture_output=True, text=True, timeout=60, env=environment | more, check=False
    )


def test_a_link_named_rabbitmqctl_serves_scripts(broker: LeveretProcess, link: Path) -> None:
    done = call(link, broker.data_dir, "-q", "list_users")
    assert (done.returncode, done.stdout, done.stderr) == (0, "user\ttags\nguest\t[administrator]\n", "")
    failed = call(link, broker.data_dir, "nonsense")
    assert (failed.returncode, failed.stdout) == (64, "")
    assert "'rabbitmqctl help' lists all commands" in failed.stderr
    alone = call(link, broker.data_dir)
    assert (alone.returncode, alone.stdout) == (64, "")
    assert "set_permissions" in alone.stderr


def test_a_terminal_gets_a_table_with_lines(broker: LeveretProcess, link: Path) -> None:
    ours, theirs = pty.openpty()
    environment = os.environ | {"PYTHONPATH": os.environ.get("PYTHONPATH", SOURCE), "COLUMNS": "80"}
    arguments = [link, "list_users", "--data-dir", broker.data_dir]
    subprocess.run(arguments, stdout=theirs, stdin=subprocess.DEVNULL, env=environment, check=True, timeout=60)
    os.close(theirs)
    shown = b""
    try:
        while piece := os.read(ours, 4096):
            shown += piece
    except OSError:
        pass  # Linux reports that nobody holds the other end any more
    os.close(ours)
    assert "│ guest │ [administrator] │" in shown.decode()


def test_the_shell_completes_commands_and_names_of_what_there_is(broker: LeveretProcess, link: Path) -> None:
    def completed(words: str, last: int) -> list[str]:
        variables = {"_RABBITMQCTL_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(last)}
        return [line.split(",")[1] for line in call(link, broker.data_dir, **variables).stdout.splitlines()]

    assert completed("rabbitmqctl set_user", 1) == ["set_user_tags", "set_user_limits"]
    assert completed("rabbitmqctl set_permissions g", 2) == ["guest"]
    assert completed("rabbitmqctl -p / set_permissions g", 4) == ["guest"]
    assert completed("rabbitmqctl list_users -p ", 3) == ["/"]
    assert "consumers" in completed("rabbitmqctl list_queues c", 2)


def test_stop_returns_when_the_process_has_gone(link: Path, tmp_path: Path) -> None:
    with LeveretProcess(tmp_path / "data") as own:
        pid = own.pid
        done = call(link, own.data_dir, "stop")
        assert (done.returncode, done.stderr) == (0, "")
        assert os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        assert own.stop() == 0
        assert "stopped" in own.output


def test_a_process_that_cannot_be_watched_is_waited_for_by_its_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(pid: int) -> int:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr("os.pidfd_open", refuse)
    with LeveretProcess(tmp_path) as own:
        Ctl(tmp_path)("stop")
        with pytest.raises(pika.exceptions.AMQPConnectionError):
            connect(own)
        ended = os.waitid(os.P_PID, own.pid, os.WEXITED | os.WNOWAIT)  # some moments later
        assert ended is not None
        assert ended.si_status == 0


def test_await_startup_returns_when_connections_are_accepted(link: Path, tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    environment = os.environ | {"PYTHONPATH": os.environ.get("PYTHONPATH", SOURCE), "LEVERET_DATA_DIR": str(data_dir)}
    waiting = subprocess.Popen([link, "await_startup"], env=environment)
    with LeveretProcess(data_dir) as own:
        assert waiting.wait(30) == 0
        connect(own).close()


def test_stop_app_and_start_app_are_a_restart_without_a_new_process(tmp_path: Path) -> None:
    with LeveretProcess(tmp_path) as own:
        ctl, pid = Ctl(tmp_path), own.pid
        with connect(own) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.queue_declare("kept", durable=True)
            channel.queue_declare("transient")
            for mode in (1, 2):
                channel.basic_publish("", "kept", b"%d" % mode, pika.BasicProperties(delivery_mode=mode))
            assert "is running and" not in ctl.refused(64, "reset")
            assert ctl("stop_app") == f"Stopping rabbit application on node leveret@{os.uname()[1]} ...\n"
            with pytest.raises(pika.exceptions.ConnectionClosedByBroker):
                channel.queue_declare("kept", passive=True)
        with pytest.raises(pika.exceptions.AMQPConnectionError):
            connect(own)
        assert "Start it with 'rabbitmqctl start_app'" in ctl.refused(64, "list_users")
        ctl("ping")
        ctl("stop_app")
        ctl("start_app")
        ctl("start_app")
        with connect(own) as connection:
            assert connection.channel().basic_get("kept", auto_ack=True)[2] == b"2"
            assert ctl("-q", "list_queues", "name", "messages") == "name\tmessages\nkept\t0\n"
        assert own.pid == pid
        own.stop()
        own.start()
        ctl("list_users")


def test_reset_forgets_everything(tmp_path: Path) -> None:
    with LeveretProcess(tmp_path) as own:
        ctl = Ctl(tmp_path)
        ctl("add_user", "u", "x")
        with connect(own) as connection:
            connection.channel().queue_declare("q", durable=True)
        ctl("stop_app")
        ctl("reset")
        ctl("start_app")
        assert ctl("-q", "list_users") == "user\ttags\nguest\t[administrator]\n"
        assert ctl("-q", "list_queues") == ""
        ctl("stop_app")
        ctl("stop")
        assert own.stop() == 0
        assert own.output.count('"command": "reset"') == 1

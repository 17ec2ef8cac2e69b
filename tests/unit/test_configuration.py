"""The table of settings, and its uses: reading, precedence, the printed file, the page."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from tests.each import check_each

from leveret.cli.configuration.chosen import DEFAULT, choose, misspelt
from leveret.cli.configuration.printing import example_file, in_effect
from leveret.cli.configuration.reload import LIVE
from leveret.cli.configuration.settings import SETTINGS, Setting
from leveret.cli.configuration.wanted import wanted
from leveret.cli.main import main

ROOT = Path(__file__).parents[2]


def refusal(tmp_path: Path, text: str = "", environment: dict[str, str] | None = None) -> str:
    path = tmp_path / "leveret.toml"
    path.write_text(text)
    with pytest.raises(click.UsageError) as refused:
        wanted(choose({}, path, environment or {}))
    return refused.value.message.replace(f"{path}: ", "FILE ")


def example_of(setting: Setting) -> Any:
    return setting.default if setting.default not in (None, []) else setting.example


def test_what_is_printed_sets_nothing_and_with_the_signs_taken_away_everything_to_its_default(tmp_path: Path) -> None:
    printed = CliRunner().invoke(main, ["serve", "--print-config"]).output
    assert printed == example_file()
    assert tomllib.loads(printed) == {}
    path = tmp_path / "leveret.toml"
    path.write_text(re.sub(r"(?m)^#(?=\w)", "", printed))
    chosen = choose({}, path, {})
    assert {name: chosen[name] for name in SETTINGS if not SETTINGS[name].is_secret} == {
        name: example_of(setting) for name, setting in SETTINGS.items() if not setting.is_secret
    }


def test_the_files_made_of_the_table_are_up_to_date() -> None:
    subprocess.run([sys.executable, ROOT / "tools" / "settings_page.py", "--check"], check=True)


def check_doc(setting: Setting) -> None:
    assert setting.doc.endswith(".")
    assert (setting.default is None) == bool(setting.absent)
    value = example_of(setting)
    if not setting.is_secret:
        assert setting.kind.check(value) == value
        text = ",".join(value) if isinstance(value, list) else str(value)
        assert setting.kind.parse(text) in (value, text)  # amounts stay as they are written
    assert setting.is_live == (setting.name in LIVE)


def test_a_setting_is_well_told() -> None:
    check_each(SETTINGS.values(), check_doc, lambda setting: setting.name)


def check_option_and_variable(setting: Setting) -> None:
    value = "secret" if setting.is_secret else example_of(setting)
    text = ",".join(value) if isinstance(value, list) else str(value)
    by_variable = choose({}, None, {setting.variable: text})
    assert by_variable.origins[setting.name] == setting.variable
    assert by_variable[setting.name] in (value, text)
    serve = main.get_command(click.Context(main), "serve")
    assert serve is not None
    options = [option for parameter in serve.params for option in parameter.opts]
    assert (setting.option in options) != setting.is_secret


def test_each_setting_can_be_given_by_option_and_variable() -> None:
    check_each(SETTINGS.values(), check_option_and_variable, lambda setting: setting.name)


def test_options_go_before_variables_and_these_before_the_file(tmp_path: Path) -> None:
    path = tmp_path / "leveret.toml"
    path.write_text('port = 1\nheartbeat_s = 2\nchannel_max = 3\nhost = "::1"')
    environment = {"LEVERET_PORT": "10", "LEVERET_HEARTBEAT_S": "20", "LEVERET_VERSION": ""}
    chosen = choose({"port": 100}, path, environment)
    names = ("port", "heartbeat_s", "channel_max", "host", "version")
    assert [(chosen[name], chosen.origins[name]) for name in names] == [
        (100, "--port"), (20, "LEVERET_HEARTBEAT_S"), (3, str(path)), (["::1"], str(path)), ("3.13.7", DEFAULT),
    ]  # fmt: skip


@pytest.mark.parametrize(("text", "reason"), [
    ("heartbeats = 5", "FILE unknown setting 'heartbeats'; did you mean 'heartbeat_s'?"),
    ("xyzzy = 5", "FILE unknown setting 'xyzzy'; `leveret serve --print-config` lists all settings"),
    ("heartbeat_s = 70000", "FILE heartbeat_s must be a whole number from 0 to 65535, not 70000"),
    ("heartbeat_s = true", "FILE heartbeat_s must be a whole number from 0 to 65535, not True"),
    ("heartbeat_s = 1.5", "FILE heartbeat_s must be a whole number from 0 to 65535, not 1.5"),
    ("host = [1]", "FILE host must be a list of strings, not [1]"),
    ('data_dir = ""', "FILE data_dir must be a non-empty string, not ''"),
    ('log_format = "xml"', "FILE log_format must be one of text, json, not 'xml'"),
    ('remote_user_required = "yes"', "FILE remote_user_required must be true or false, not 'yes'"),
    ("default_pass = 1234", "FILE default_pass must be a non-empty string, not ***"),
    ('default_user = "alice"', "default_user needs a password: default_pass, or $LEVERET_DEFAULT_PASS"),
    ('tls_key_password = "x"', "tls_key_password has no effect without --tls-port"),
    ('ssl_cert_login_from = "common_name"', "--ssl-cert-login-from has no effect without --tls-port"),
])  # fmt: skip
def test_a_wrong_file_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    assert refusal(tmp_path, text) == reason


@pytest.mark.parametrize(("variable", "value", "reason"), [
    ("LEVERET_PORT", "http", "LEVERET_PORT must be a whole number from 0 to 65535, or 'off', not 'http'"),
    ("LEVERET_REMOTE_USER_REQUIRED", "maybe", "LEVERET_REMOTE_USER_REQUIRED must be true or false, not 'maybe'"),
    ("LEVERET_DISK_FREE_LIMIT", "plenty", "LEVERET_DISK_FREE_LIMIT must be an amount: a number of bytes, 50MB, 1GiB, "
     "or 0.4 for a fraction of the machine's memory, not 'plenty'"),
])  # fmt: skip
def test_a_wrong_variable_is_refused(tmp_path: Path, variable: str, value: str, reason: str) -> None:
    assert refusal(tmp_path, environment={variable: value}) == reason


def test_what_kubernetes_says_of_a_service_called_leveret_is_no_setting() -> None:
    environment = {"LEVERET_PORT": "tcp://10.0.0.7:5672", "LEVERET_SERVICE_HOST": "10.0.0.7"}
    assert not choose({}, None, environment).is_given("port")
    assert misspelt(environment) == []


def test_a_variable_that_nearly_is_a_setting_is_told() -> None:
    environment = {"LEVERET_HEARBEAT_S": "5", "LEVERET_HEARTBEAT_S": "5", "LEVERET_URL": "amqp://"}
    told = "unknown environment variable LEVERET_HEARBEAT_S; did you mean LEVERET_HEARTBEAT_S?"
    assert misspelt(environment) == [told]


def test_what_is_in_effect_is_toml_and_tells_no_secret(tmp_path: Path) -> None:
    arguments = ["serve", "--check-config", "--host", "::1", "--host", "127.0.0.1", "--cluster-name", 'a "b" \\ ü']
    environment = {"LEVERET_DEFAULT_USER": "alice", "LEVERET_DEFAULT_PASS": "hush-hush", "LEVERET_ADMIN_PORT": "0"}
    result = CliRunner().invoke(main, arguments, env=environment)
    assert result.exit_code == 0
    assert "hush-hush" not in result.output
    assert '#default_pass = "***"  # LEVERET_DEFAULT_PASS' in result.output
    assert "admin_port = 0  # LEVERET_ADMIN_PORT" in result.output
    found = tomllib.loads(result.output)
    assert (found["host"], found["cluster_name"]) == (["::1", "127.0.0.1"], 'a "b" \\ ü')
    path = tmp_path / "again.toml"
    path.write_text(result.output)
    again = choose({}, path, {"LEVERET_DEFAULT_PASS": "hush-hush"})
    assert in_effect(again).replace(str(path), "") == re.sub(r"(?m)(?<=^)(\w.*  # ).*", r"\1", result.output)


def test_a_configuration_that_does_not_fit_together_fails_its_check(tmp_path: Path) -> None:
    (tmp_path / "none.pem").write_text("no certificate")
    tls = ["--tls-port", "0", "--tls-cert", str(tmp_path / "none.pem"), "--tls-key", str(tmp_path / "none.pem")]
    for arguments, reason in (
        (["--admin-tls-port", "15671"], "--admin-tls-port needs --tls-port"),
        (["--port", "off"], "--port off needs --tls-port"),
        (tls, "none.pem contains no certificate in PEM format"),
    ):
        result = CliRunner().invoke(main, ["serve", "--check-config", *arguments])
        assert result.exit_code == 2
        assert reason in result.output


def test_the_help_has_every_option_in_its_section() -> None:
    text = CliRunner().invoke(main, ["serve", "--help"]).output
    assert text.index("\nTLS:") < text.index("--tls-cert") < text.index("\nHTTP API:") < text.index("--admin-port")
    assert [setting.option for setting in SETTINGS.values() if setting.option not in text] == []

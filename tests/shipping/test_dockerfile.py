"""The image, built and run without Docker: dockerfile.py runs its instructions in empty roots."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pika
import pytest

from leveret.testing.processes import LeveretProcess, ServerProcess

from .dockerfile import Build, base_python, can_bind

pytestmark = pytest.mark.needs("wheels")

TOP = Path(__file__).parents[2]
DOCKERFILE = TOP / "deploy" / "docker" / "Dockerfile"
USER = {"LEVERET_DEFAULT_USER": "alice", "LEVERET_DEFAULT_PASS": "white-rabbit", "LEVERET_ADMIN_PORT": "0"}


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return base_python(tmp_path_factory.mktemp("base") / "python")


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory, python: Path) -> Build:
    arguments = {"LEVERET_CORE": "interpreted", "PYTHON": "3.13"}
    return Build(DOCKERFILE, TOP, tmp_path_factory.mktemp("build"), python, arguments)


class Container(ServerProcess):
    """`docker run` of the image, with its volume in the image's root."""

    name = "container"
    ready_pattern = LeveretProcess.ready_pattern

    def __init__(self, build: Build, **environment: str) -> None:
        super().__init__()
        self._build = build
        self._given = {"LEVERET_PORT": str(self.port), "LEVERET_HOST": "127.0.0.1", **environment}

    def command(self) -> Sequence[str | Path]:
        return self._build.image.command(self._build.words("ENTRYPOINT", "CMD"), **self._given)


def test_without_a_user_it_does_not_start(build: Build) -> None:
    done = build.image.run(build.words("ENTRYPOINT", "CMD"), LEVERET_ADMIN_PORT="0")
    assert done.returncode == 2, done.stderr
    assert "the broker listens on 0.0.0.0, but no user can log in from another machine" in done.stderr
    assert "Set LEVERET_DEFAULT_USER and LEVERET_DEFAULT_PASS" in done.stderr
    done = build.image.run(build.words("ENTRYPOINT", "CMD"), LEVERET_ADMIN_PORT="0", LEVERET_DEFAULT_USER="alice")
    assert done.returncode == 2
    assert "default_user needs a password" in done.stderr


def test_it_serves_is_healthy_and_keeps_its_messages(build: Build) -> None:
    for turn in range(2):
        with Container(build, **USER) as container:
            url = f"amqp://alice:white-rabbit@127.0.0.1:{container.port}/"
            health = build.image.run(build.words("HEALTHCHECK"))
            assert health.returncode == 0, health.stderr
            with pika.BlockingConnection(pika.URLParameters(url)) as connection:
                channel = connection.channel()
                channel.confirm_delivery()
                channel.queue_declare("parcels", durable=True)
                if turn == 0:
                    channel.basic_publish("", "parcels", b"parcel", pika.BasicProperties(delivery_mode=2))
                else:
                    _, properties, body = channel.basic_get("parcels", auto_ack=True)
                    assert (body, properties.delivery_mode) == (b"parcel", 2)
            with pytest.raises(pika.exceptions.ProbableAuthenticationError):
                pika.BlockingConnection(pika.URLParameters(container.url))  # there is no user guest
            if can_bind():
                status = Path(f"/proc/{container.pid}/status").read_text()
                assert re.search(r"(?m)^Uid:\s+999\s+999", status)
    assert build.image.run(build.words("HEALTHCHECK")).returncode != 0


def test_what_the_image_is_made_of(build: Build) -> None:
    """The image contains no build tools."""
    packages = build.image.root.glob("opt/leveret/lib/python*/site-packages/*.dist-info")
    names = {path.name.partition("-")[0].lower() for path in packages}
    assert {"leveret", "starlette", "uvicorn", "argon2_cffi"} <= names
    assert not {"mypy", "pip", "setuptools", "pytest"} & names
    assert not (build.image.root / "source").exists()
    assert (build.image.said["VOLUME"], build.image.said["STOPSIGNAL"]) == ("/var/lib/leveret", "SIGTERM")


def test_a_dockerfile_that_fails_fails(tmp_path: Path, python: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM python:3.13-slim\nRUN echo why >&2 && exit 3\n")
    (tmp_path / ".dockerignore").write_text("")
    with pytest.raises(AssertionError, match="why"):
        Build(tmp_path / "Dockerfile", tmp_path, tmp_path / "work", python, {})


def test_the_example_of_compose_names_what_is_there() -> None:
    """The tests' dependencies have no YAML parser; only a few lines matter."""
    text = (DOCKERFILE.parent / "docker-compose.yml").read_text()
    assert "dockerfile: deploy/docker/Dockerfile" in text
    variables = set(re.findall(r"LEVERET_\w+", text))
    assert variables >= {"LEVERET_DEFAULT_USER", "LEVERET_DEFAULT_PASS"}
    assert "127.0.0.1:5672:5672" in text


def project() -> dict[str, Any]:
    with (TOP / "pyproject.toml").open("rb") as file:
        return tomllib.load(file)


def test_the_image_has_a_python_that_leveret_knows() -> None:
    [version] = re.findall(r"(?m)^ARG PYTHON=(.*)$", DOCKERFILE.read_text())
    assert f"Programming Language :: Python :: {version}" in project()["project"]["classifiers"]

"""Every check of `leveret doctor` on leveret: it fires on the mistake, and only there."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme
from click.testing import CliRunner

import leveret
from leveret.cli.ctl.tables import CTL
from leveret.cli.doctor.check import Diagnosis, DoctorFinding, Hit, diagnose
from leveret.cli.doctor.checks import CHECKS, SUBJECTS
from leveret.cli.doctor.command import command, observe
from leveret.cli.doctor.observation import Observation, StateSample, topic_matches
from leveret.cli.doctor.parts import PARTS, StatePart
from leveret.cli.doctor.source import PAGE_SIZE, BrokerUnreachable, ControlSource, HttpStateSource, Unavailable
from leveret.control.calls.blocking import ControlClient
from leveret.delay import LAYOUTS
from leveret.testing.processes import LeveretProcess, free_port

from ..waiting import until
from . import sick
from .sick import SICK, WELL, Patient

# the expected evidence, where it says more than that the check fired
EVIDENCE = {
    "publish-without-confirms": "user 'guest' has published 1 message on it without confirms",
    "unroutable-dropped": r"3 of [\d,]+ messages published reached no queue",
    "many-channels": "200 channels open, of 2,047 at most",
    "auto-ack-backlog": r"[\d,]+ messages \([\d.]+ MiB\) waiting",
    "queue-without-consumers": "3 messages waiting, no consumer",
    "dead-letters-waiting": "2 dead letters waiting",
    "unacked-huge": "11,000 messages unacknowledged at 1 consumer",
    "consumers-stalled": "3 messages waiting and 2 unacknowledged",
    "unknown-argument": "it was declared with x-max-lenght = 5; did you mean x-max-length?",
    "queue-near-limit": r"95 of max-length 100 \(95%\)",
    "exchange-unbound": "it has no bindings, and 1 message published to it",
    "dead-letter-cycle": "'round-1' -> 'round-2' -> 'round-1'",
    "alternate-exchange": "its alternate exchange 'no-ae' does not exist",
    "policy-shadowed": "it matches 1 object but applies to none of them: 1 have 'strong'",
    "policy-ambiguous": "both have priority 1 and match 1 object",
    "federation-loop": "is also an upstream of rabbit@elsewhere",
    "delay-layout-damaged": "missing",
    "delay-over-limit": r"message-ttl is 5,000,000,000 ms \(58 days\)",
}
# checks that a single sample can show
ONE_LOOK = [check.id for check in CHECKS.values() if check.id in SICK]
# checks that need a broker of their own, or that a test cannot cause: below
ELSEWHERE = {
    "connection-blocked", "alarm", "disk-near-limit", "disk-limit-small", "memory-near-limit", "files-near-limit",
    "cluster-not-whole", "certificate-expiring", "feature-flags-disabled", "connection-churn", "channel-churn",
    "queue-per-request", "redelivery-loop", "unbounded-growth", "consumer-timeout-near", "default-guest",
    "deprecated-feature", "federation-lag", "delayed-parked", "permissions-everywhere", "no-tls",
}  # fmt: skip


@pytest.fixture(scope="module")
def ill() -> Iterator[Patient]:
    with LeveretProcess(admin=True) as process:
        patient = Patient(process.url, process.admin_url)
        with patient.open:
            sick.done(patient, SICK)
            yield patient


@pytest.fixture(scope="module")
def well() -> Iterator[Patient]:
    with LeveretProcess(admin=True) as process:
        patient = Patient(process.url, process.admin_url)
        with patient.open:
            sick.done(patient, WELL)
            yield patient


@pytest.fixture(scope="module")
def of_ill(ill: Patient) -> Diagnosis:
    return looked(ill)


@pytest.fixture(scope="module")
def of_well(well: Patient) -> Diagnosis:
    return looked(well)


def looked(patient: Patient, *names: str, watch_s: float = 0.5) -> Diagnosis:
    chosen = [CHECKS[name] for name in names] or list(CHECKS.values())
    return diagnose(observe(HttpStateSource(patient.api_url), chosen, watch_s), chosen)


def evidence(diagnosis: Diagnosis, name: str) -> list[str]:
    return [hit.evidence for finding in diagnosis.findings if finding.check.id == name for hit in finding.hits]


def test_a_check_fires(of_ill: Diagnosis) -> None:
    found = {name: evidence(of_ill, name) for name in ONE_LOOK}
    assert found
    expected = {name: re.compile(EVIDENCE.get(name, ".")) for name in found}
    assert {name: texts for name, texts in found.items() if not any(map(expected[name].search, texts))} == {}


def test_a_check_is_silent(of_well: Diagnosis) -> None:
    found = {name: evidence(of_well, name) for name in CHECKS.keys() - {"administrator-at-work", "disk-limit-small"}}
    assert found
    assert {name: texts for name, texts in found.items() if texts} == {}


def test_every_check_is_tried() -> None:
    assert set(SICK) | ELSEWHERE == set(CHECKS)
    assert not set(SICK) & ELSEWHERE


def test_a_remedy_names_commands_that_there_are() -> None:
    named = {(check.id, word) for check in CHECKS.values() for word in re.findall(r"`ctl (\w+)", check.remedy)}
    assert named
    assert {(id, word) for id, word in named if word not in CTL and word != "CLEAR"} == set()


@pytest.mark.parametrize(
    ("remedy", "said"),
    [
        ("`ctl delete_queue -p VHOST NAME`", "`rabbitmqctl delete_queue -p / 'a b.c'`"),
        ("`ctl set_policy x '^NAME$' '{}'`", r"`rabbitmqctl set_policy x '^a\ b\.c$' '{}'`"),
        ("`channel.bind_queue('NAME')`", "`channel.bind_queue('a b.c')`"),
        ("NEW-NAME, NAME-OF-IT", "NEW-NAME, NAME-OF-IT"),
    ],
)
def test_names_in_a_remedy(remedy: str, said: str) -> None:
    check = dataclasses.replace(CHECKS["queue-without-consumers"], remedy=remedy)
    hit = Hit("queue", "", {"NAME": "a b.c", "VHOST": "/"})
    assert DoctorFinding(check, check.severity, (hit,)).remedy("rabbitmqctl") == said


# -- checks that need a watch


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("connection", "connection-churn"),
        ("channel", "channel-churn"),
        ("queue", "queue-per-request"),
    ],
)
def test_churn(well: Patient, kind: str, name: str) -> None:
    other = Patient(well.amqp_url, well.api_url)
    with other.open, busy(lambda: sick.churn(other, kind)):
        assert evidence(looked(well, name), name)
    assert evidence(looked(well, name), name) == []


def test_a_queue_that_grows(well: Patient) -> None:
    well.channel.declare_queue("flood")
    well.channel.declare_queue("dammed", arguments={"x-max-length-bytes": 10_000_000})
    other = Patient(well.amqp_url, well.api_url)
    with other.open, busy(lambda: (other.publish("", "flood", 50), other.publish("", "dammed", 50))):
        found = looked(well, "unbounded-growth")
    (hit,) = found.findings[0].hits
    assert hit.object == "queue 'flood' in '/'"
    well.channel.delete_queue("flood")
    well.channel.delete_queue("dammed")


def test_messages_that_come_again_and_again(well: Patient) -> None:
    well.fill("poison", 2)
    connection = well.connect()
    channel = connection.channel()
    channel.consume("poison", prefetch_count=1)
    with busy(lambda: sick.redeliver(well, channel)):
        found = looked(well, "redelivery-loop", "consumers-stalled")
    connection.close()
    well.channel.delete_queue("poison")
    assert [finding.check.id for finding in found.findings] == ["redelivery-loop"]


class busy:
    """Repeats an action on another thread until the end of the block."""

    def __init__(self, doing: Any) -> None:
        self._is_over = threading.Event()
        self._began = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(doing,))

    def _run(self, doing: Any) -> None:
        try:
            while not self._is_over.is_set():
                doing()
                self._began.set()
        finally:
            self._began.set()

    def __enter__(self) -> None:
        self._thread.start()
        self._began.wait()

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()


def test_a_delivery_that_is_not_acknowledged(well: Patient) -> None:
    well.fill("lazy", 1, arguments={"x-consumer-timeout": 4_000})
    connection = well.connect()
    connection.channel().consume("lazy", prefetch_count=1)
    found: list[str] = []
    until(lambda: bool(found.extend(evidence(looked(well, "consumer-timeout-near"), "consumer-timeout-near")) or found))
    connection.close()
    well.channel.delete_queue("lazy")
    assert re.search(
        r"1 unacknowledged, the oldest for at least [23].\d s; the channel is closed after 4.0 s", found[0]
    )


def test_a_delayed_message_without_a_destination(ill: Patient) -> None:
    layout = LAYOUTS["nservicebus"]
    layout.declare_blocking(ill.channel)
    ill.confirming.publish(b"x", *layout.message("nowhere", 0.0)[:2])
    ill.confirming.publish(b"x", *layout.message("nowhere", 1.0)[:2])
    ill.confirming.wait_for_confirms(10)
    found: list[str] = []
    until(lambda: bool(found.extend(evidence(looked(ill, "delayed-parked"), "delayed-parked")) or found))
    assert found[0] == "1 message of layout 'nsb' due, but no queue is bound"


def test_a_changed_level(ill: Patient) -> None:
    """A policy that makes messages early, a foreign binding's layout, and levels under another prefix."""
    LAYOUTS["nservicebus"].declare_blocking(ill.channel)
    ill.policy("early", r"^nsb\.delay-level-05$", {"message-ttl": 1})
    dataclasses.replace(LAYOUTS["nservicebus"], prefix="own", levels=4).declare_blocking(ill.channel)
    ill.channel.delete_exchange("own.delay-delivery")
    found = looked(ill, "delay-layout-damaged")
    texts = {hit.object: hit.evidence for finding in found.findings for hit in finding.hits}
    assert texts["policy of queue 'nsb.delay-level-05' of layout 'nservicebus' in '/'"].startswith(
        "different: message-ttl 1"
    )
    assert texts["exchange 'own.delay-delivery' of layout 'nservicebus,prefix=own,levels=4' in '/'"].startswith(
        "missing"
    )


def test_a_user_of_everything(ill: Patient) -> None:
    ill.api("PUT", "vhosts/second", {})
    sick.user(ill, "wide", "x7-long-secret", "")
    for vhost in ("%2F", "second"):
        ill.api("PUT", f"permissions/{vhost}/wide", {"configure": ".*", "write": ".*", "read": ".*"})
    assert evidence(looked(ill, "permissions-everywhere"), "permissions-everywhere") == [
        "may configure, write and read everything in all 2 virtual hosts"
    ]
    ill.api("DELETE", "vhosts/second")


def test_alarms_and_a_certificate(tmp_path: Path) -> None:
    authority = trustme.CA()
    soon = datetime.now(UTC) + timedelta(days=3)
    authority.issue_cert("localhost", not_after=soon).private_key_and_cert_chain_pem.write_to_path(
        tmp_path / "server.pem"
    )
    pem = str(tmp_path / "server.pem")
    arguments = ["--tls-port", str(free_port()), "--tls-cert", pem, "--tls-key", pem]
    with LeveretProcess(arguments=arguments, admin=True) as process:
        source = ControlSource(str(process.data_dir))
        nodes = [CHECKS[name] for name in ("alarm", "disk-near-limit", "certificate-expiring", "disk-limit-small")]
        texts = {
            finding.check.id: finding.hits[0].evidence
            for finding in diagnose(observe(source, nodes, 0), nodes).findings
        }
        assert set(texts) == {"certificate-expiring", "disk-limit-small"}
        assert texts["certificate-expiring"] == "it expires within 30 days, or has expired"
        free = source.fetch(PARTS["nodes"])[0]["disk_free"]
        with ControlClient(str(process.data_dir)) as control:
            control.call("set_disk_free_limit", limit=str(free // 2))
            assert [f.check.id for f in diagnose(observe(source, nodes[:2], 0), nodes[:2]).findings] == [
                "disk-near-limit"
            ]
            control.call("set_disk_free_limit", limit=str(free * 4))
            patient = Patient(process.url, process.admin_url)
            with patient.open:
                patient.connection.channel().publish(b"x", "amq.fanout")
                patient.connection.flush()
                blocked = ("alarm", "connection-blocked")
                until(lambda: {f.check.id for f in looked(patient, *blocked).findings} == set(blocked))


# -- what a test can't do to a broker: a real answer, changed


def changed(patient: Patient, part: str, **fields: Any) -> Diagnosis:
    """Return the findings if the last row of a part has these values."""
    seen = observe(HttpStateSource(patient.api_url), CHECKS.values(), 0)
    row = dict(seen.rows(part)[-1]) | fields if seen.rows(part) else fields
    parts = seen.now.parts | {part: [row]}
    return diagnose(Observation(StateSample(parts, seen.now.missing)), CHECKS.values())


@pytest.mark.parametrize(
    ("name", "part", "fields", "text"),
    [
        ("memory-near-limit", "nodes", {"mem_used": 90, "mem_limit": 100}, "90 bytes of 100 bytes (90%)"),
        ("files-near-limit", "nodes", {"fd_used": 900, "fd_total": 1000}, "900 of 1,000 file descriptors are in use"),
        ("cluster-not-whole", "nodes", {"partitions": ["rabbit@b"]}, "it is partitioned from rabbit@b"),
        ("cluster-not-whole", "nodes", {"running": False}, "it is a cluster member but is not running"),
        (
            "feature-flags-disabled",
            "feature_flags",
            {"name": "f", "state": "disabled", "stability": "stable", "desc": "new"},
            "new",
        ),
        ("no-tls", "connections", {"peer_host": "10.1.2.3", "ssl": False}, "user 'guest' from 10.1.2.3 without TLS"),
        (
            "default-guest",
            "connections",
            {"peer_host": "10.1.2.3"},
            "password 'guest', administrator; 1 connection from other machines, such as 10.1.2.3",
        ),
        (
            "federation-lag",
            "links",
            {"lag": 50_000, "status": "running", "id": "x", "vhost": "/"},
            "50,000 messages waiting at the upstream",
        ),
    ],
)
def test_what_can_not_be_provoked(well: Patient, name: str, part: str, fields: dict[str, Any], text: str) -> None:
    assert evidence(changed(well, part, **fields), name) == [text]


def test_deprecated_features() -> None:
    row = {"name": "transient_nonexcl_queues", "deprecation_phase": "permitted_by_default", "desc": "old"}
    seen = Observation(StateSample({"overview": {}, "deprecated": [row]}))
    (finding,) = diagnose(seen, [CHECKS["deprecated-feature"]]).findings
    assert finding.hits[0].evidence == "permitted by default: old"
    assert "deprecated_features.permit.transient_nonexcl_queues = false" in finding.remedy("rabbitmqctl")


def test_guest_where_everybody_may_come() -> None:
    guest = {
        "name": "guest",
        "tags": "administrator",
        "password_hash": "4UUiKKehk71n9f8fZvD8MCaSzb6FpDDj7XGB8AHGPqR0jykH",
        "hashing_algorithm": "rabbit_password_hashing_sha256",
    }
    overview = {"listeners": [{"ip_address": "::", "port": 5672}]}
    texts = evidence(
        diagnose(Observation(StateSample({"overview": overview, "users": [guest]})), CHECKS.values()), "default-guest"
    )
    assert texts == [
        "password 'guest', administrator, and the broker listens on :::5672; only loopback_users prevents remote logins"
    ]


# -- the command


def run(patient: Patient, *arguments: str) -> Any:
    return CliRunner().invoke(command, ["--url", patient.api_url, "--watch-s", "0.2", *arguments])


def test_the_report(ill: Patient) -> None:
    result = run(ill)
    assert result.exit_code == 1
    assert result.output.startswith(f"leveret {leveret.__version__} at {ill.api_url}: ")
    assert "[dead-letter-exchange-missing]" in result.output
    assert "why: Rejected, expired and displaced messages are lost" in result.output
    assert "leveret ctl set_policy" in result.output
    assert result.output.index("error ") < result.output.index("warning ") < result.output.index("hint ")


def test_json_is_all_of_it(ill: Patient) -> None:
    document = json.loads(run(ill, "--json", "--only", "many-channels,queue-without-consumers").output)
    assert document["checks_made"] == 2
    assert document["broker"]["product"] == "leveret"
    by_id = {finding["id"]: finding for finding in document["findings"]}
    orphan = {"object": "queue 'orphan' in '/'", "evidence": "3 messages waiting, no consumer"}
    assert orphan in by_id["queue-without-consumers"]["objects"]
    assert document["not_made"] == {}


def test_many_of_a_kind_are_grouped(ill: Patient) -> None:
    result = run(ill, "--only", "transient-queue,prefetch-unlimited,queue-without-consumers", "--show", "1")
    assert re.search(r"and \d+ more", result.output)
    assert "95 messages waiting" in result.output  # the longest queue without consumers is shown


def test_exit_codes(well: Patient) -> None:
    assert run(well, "--only", "administrator-at-work").exit_code == 0
    assert run(well, "--only", "administrator-at-work", "--fail-on", "hint").exit_code == 1
    assert run(well, "--fail-on", "never").exit_code == 0
    result = run(well, "--ignore", "administrator-at-work,disk-limit-small", "--fail-on", "hint")
    assert (result.exit_code, "no findings" in result.output) == (0, True)


def test_one_look_says_what_it_left_out(well: Patient) -> None:
    result = run(well, "--once", "--only", "connection-churn")
    assert "skipped: connection-churn: needs two samples: run without --once" in result.output


def test_list_has_all(well: Patient) -> None:
    result = CliRunner().invoke(command, ["--list"])
    assert result.exit_code == 0
    assert all(name in result.output for name in CHECKS)
    assert all(subject in result.output for subject in SUBJECTS)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--url", "http://guest:wrong@HOST"], "refused the login of 'guest'"),
        (["--url", "http://guest:secret@127.0.0.1:1"], "no answer from http://127.0.0.1:1"),
        (["--url", "amqp://guest:secret@HOST"], "must begin with http:// or https://"),
        (["--only", "nonsense"], "unknown check 'nonsense'"),
        (["--data-dir", "/nonexistent"], "no broker is running in /nonexistent"),
        (["--only", "alarm", "--ignore", "alarm"], "--only and --ignore exclude all checks"),
        (["--data-dir", "/x", "--url", "http://HOST"], "exclude each other"),
    ],
)
def test_what_can_not_be_done(well: Patient, arguments: list[str], text: str) -> None:
    host = well.api_url.removeprefix("http://")
    result = CliRunner().invoke(command, [argument.replace("HOST", host) for argument in arguments])
    assert result.exit_code == 2
    assert text in result.output
    assert "secret" not in result.output


def test_a_file_that_is_no_certificate(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nothing")
    result = CliRunner().invoke(command, ["--url", "https://127.0.0.1:1", "--cacert", str(tmp_path / "ca.pem")])
    assert (result.exit_code, "ca.pem" in result.output) == (2, True)


class Stingy:
    """A broker without statistics and federation."""

    where = "nowhere"

    def fetch(self, part: StatePart) -> Any:
        if part.path == "federation-links":
            raise Unavailable("this broker has no /api/federation-links")
        return {"disable_stats": True, "listeners": []} if part.path == "overview" else []


def test_statistics_that_are_off() -> None:
    diagnosis = diagnose(observe(Stingy(), CHECKS.values(), 0), CHECKS.values())
    assert diagnosis.unmade["queue-without-consumers"].startswith("statistics are disabled on this broker")
    assert diagnosis.unmade["federation-link-down"] == "this broker has no /api/federation-links"
    assert not {"dead-letter-exchange-missing", "default-guest", "policy-shadowed"} & set(diagnosis.unmade)


def test_not_the_api_of_a_broker(well: Patient) -> None:
    """Such as the AMQP port."""
    port = well.amqp_url.rpartition("@")[2].partition("/")[0]
    assert CliRunner().invoke(command, ["--url", f"http://{port}"]).exit_code == 2


def test_a_user_who_may_not_see_all(well: Patient) -> None:
    sick.user(well, "looker", "x7-long-secret", "management")
    well.api("PUT", f"permissions/{well.place}/looker", {"configure": "", "write": "", "read": ""})
    host = well.api_url.removeprefix("http://")
    url = f"http://looker:x7-long-secret@{host}"
    result = CliRunner().invoke(command, ["--url", url, "--once", "--json", "--fail-on", "never"])
    unmade = json.loads(result.output)["not_made"]
    assert unmade["default-guest"].startswith("user 'looker' may not see /api/users")
    assert unmade["publish-without-confirms"].startswith("this user sees only its own channels")
    assert "queue-near-limit" not in unmade
    well.api("DELETE", "users/looker")


def test_the_control_socket_says_the_same(tmp_path: Path) -> None:
    with LeveretProcess(admin=True) as process:
        patient = Patient(process.url, process.admin_url)
        with patient.open:
            sick.done(
                patient,
                {name: SICK[name] for name in ("queue-without-consumers", "dead-letter-cycle", "policy-shadowed")},
            )
            checks = [check for check in CHECKS.values() if check.id != "administrator-at-work"]
            by_http = diagnose(observe(HttpStateSource(patient.api_url), checks, 0), checks)
            by_socket = diagnose(observe(ControlSource(str(process.data_dir)), checks, 0), checks)
    assert by_http.findings == by_socket.findings
    assert len(by_http.findings) >= 3


def test_many_queues_come_in_pages(well: Patient) -> None:
    channel = well.connect().channel()
    for number in range(PAGE_SIZE + 5):
        channel.declare_queue(f"mine-{number}", exclusive=True, durable=False)
    names = [row["name"] for row in HttpStateSource(well.api_url).fetch(PARTS["queues"])]
    assert len(names) == len(set(names)) > PAGE_SIZE
    channel.close()


@pytest.mark.parametrize(
    ("pattern", "key", "does"),
    [
        ("a.*", "a.b", True),
        ("a.*", "a", False),
        ("a.#", "a", True),
        ("a.#", "a.b.c", True),
        ("#", "", True),
        ("*.b", "a.c", False),
        ("a+b", "aab", False),
    ],
)
def test_topic_patterns(pattern: str, key: str, does: bool) -> None:
    assert topic_matches(pattern, key) is does


def test_unreachable_is_told_by_a_source() -> None:
    with pytest.raises(BrokerUnreachable, match="no answer from"):
        HttpStateSource("http://127.0.0.1:1").fetch(PARTS["overview"])


def test_the_page_has_the_table() -> None:
    path = Path(__file__).parents[2] / "tools" / "doctor_table.py"
    subprocess.run([sys.executable, path, "--check"], check=True)

"""Policies, parameters and limits as an operator sets them: what is refused with which error, and what is listed."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from leveret.control.refusal import BAD_REQUEST, NOT_FOUND, Refused

from .administration import Administration

UPSTREAM = "federation-upstream"
UPSTREAMS = "federation-upstream-set"


@pytest.fixture
def vhost(administration: Administration, unique: str) -> Iterator[str]:
    """A virtual host of this test only."""
    administration.call("add_vhost", name=unique)
    yield unique
    administration.call("delete_vhost", name=unique)


def refusal(administration: Administration, command: str, **fields: Any) -> tuple[str, str]:
    """Return kind and reason of a refusal. Erlang wraps long lines, and RabbitMQ's HTTP API escapes < and >."""
    with pytest.raises(Refused) as raised:
        administration.call(command, **fields)
    reason = raised.value.reason
    if reason.startswith("{"):
        reason = html.unescape(str(json.loads(reason)["reason"]))
    return raised.value.kind, re.sub(r",\n +", ",", reason).replace("\n", " ")


def invalid(*complaints: str) -> tuple[str, str]:
    return BAD_REQUEST, "Validation failed  " + "".join(complaint + " " for complaint in complaints)


# -- policies ----------------------------------------------------------------------------------------------------------

NUMBERS = {
    "message-ttl": "message TTL", "expires": "queue expiry", "max-length": "maximum length",
    "max-length-bytes": "maximum length in bytes", "max-in-memory-length": "maximum memory in bytes",
    "max-in-memory-bytes": "maximum memory in bytes", "delivery-limit": "delivery limit",
    "initial-cluster-size": "cluster size", "stream-max-segment-size-bytes": "segment size",
}  # fmt: skip


@pytest.mark.parametrize("key", NUMBERS)
@pytest.mark.parametrize(("value", "shown"), [
    (-1, "-1"), ("1", '<<"1">>'), (1.5, "1.5"), (True, "true"), (None, "null"), (1e30, "1.0e30"),
    ([1, {"b": [], "a": None}], '[1,#{<<"a">> => null,<<"b">> => []}]'), ("日本", "<<230,151,165,230,156,172>>"),
    ('ü"\n', '<<"ü\\"\\n">>'),
])  # fmt: skip
def test_what_is_no_number(administration: Administration, vhost: str, key: str, value: Any, shown: str) -> None:
    for command in ("set_policy", "set_operator_policy") if key in OPERATOR_KEYS else ("set_policy",):
        got = refusal(administration, command, vhost=vhost, name="p", pattern="", definition={key: value})
        assert got == invalid(f"{shown} is not a valid {NUMBERS[key]}")


OPERATOR_KEYS = set(NUMBERS) - {"initial-cluster-size", "stream-max-segment-size-bytes"}


@pytest.mark.parametrize("key", ["expires", "stream-max-segment-size-bytes"])
def test_numbers_at_the_edge(administration: Administration, vhost: str, key: str) -> None:
    fine, wrong = {"expires": (1, 0), "stream-max-segment-size-bytes": (3_000_000_000, 3_000_000_001)}[key]
    administration.call("set_policy", vhost=vhost, name="p", pattern="", definition={key: fine})
    got = refusal(administration, "set_policy", vhost=vhost, name="p", pattern="", definition={key: wrong})
    assert got == invalid(f"{wrong} is not a valid {NUMBERS[key]}")


@pytest.mark.parametrize(("key", "complaint", "fine"), [
    ("alternate-exchange", "is not a valid alternate exchange name", "x"),
    ("dead-letter-exchange", "is not a valid dead letter exchange name", ""),
    ("dead-letter-routing-key", "is not a valid dead letter routing key", "x"),
    ("dead-letter-strategy", "is not a valid dead letter strategy", "at-least-once"),
    ("queue-mode", "is not a valid queue-mode value", "lazy"),
    ("queue-version", "is not a valid queue-version value", 2),
    ("overflow", "is not a valid overflow value", "reject-publish-dlx"),
    ("queue-leader-locator", "is not a valid queue leader locator value", "balanced"),
    ("queue-master-locator", "invalid queue-master-locator value", "min-masters"),
    ("federation-upstream", "is not a valid federation upstream name", "x"),
    ("federation-upstream-set", "is not a valid federation upstream set name", "all"),
    ("federation-upstream-pattern", "is not a valid federation upstream pattern name", "^x"),
])  # fmt: skip
def test_what_is_no_such_word(
    administration: Administration, vhost: str, key: str, complaint: str, fine: Any
) -> None:
    wrong: list[tuple[Any, str]] = [(7, "7")]
    if complaint.endswith(("value", "strategy")):
        wrong.append(("other", '<<"other">>'))
    for value, shown in wrong:
        got = refusal(administration, "set_policy", vhost=vhost, name="p", pattern="", definition={key: value})
        assert got == invalid(f"{shown} {complaint}")
    administration.call("set_policy", vhost=vhost, name="p", pattern="", definition={key: fine})


@pytest.mark.parametrize(("definition", "complaint"), [
    ({}, "no policy provided"),
    ({"x": 1, "a": "b", "max-length": 1}, '[{<<"a">>,<<"b">>},{<<"x">>,1}] are not recognised policy settings'),
    ({"hash-modulus": 3}, '[{<<"hash-modulus">>,3}] are not recognised policy settings'),
    ({"federation-upstream": "a", "federation-upstream-set": "b"},
     "cannot specify federation-upstream, federation-upstream-set or federation-upstream-pattern together"),
    ({"federation-upstream-pattern": "x(y"},
     'could not compile pattern x(y to a regular expression. Error: {"missing )",3}'),
    *(({"federation-upstream-pattern": pattern},
       f"could not compile pattern {pattern} to a regular expression. Error: {complaint}")
      for pattern, complaint in (
          ("*", '{"nothing to repeat",0}'), ("a**", '{"nothing to repeat",2}'), ("x)", '{"unmatched parentheses",1}'),
          ("[", '{"missing terminating ] for character class",1}'), ("a\\", r'{"\\ at end of pattern",2}'),
          ("(?z)", '{"unrecognized character after (? or (?-",2}'),
          ("[z-a]", '{"range out of order in character class",3}'),
      )),
    ({"federation-upstream": "a", "federation-upstream-pattern": "b"},
     "cannot specify federation-upstream, federation-upstream-set or federation-upstream-pattern together"),
    ({"ha-sync-mode": "manual"},
     "ha-mode must be specified to specify ha-params, ha-sync-mode or ha-promote-on-shutdown"),
    ({"ha-mode": "some"}, '<<"some">> is not a valid ha-mode value'),
    ({"ha-mode": "all", "ha-params": 3}, 'ha-mode="all" does not take parameters'),
    ({"ha-mode": "exactly"}, 'ha-mode="exactly" takes an integer, none given'),
    ({"ha-mode": "nodes", "ha-params": "a"}, 'ha-mode="nodes" takes a list, <<"a">> given'),
    ({"ha-mode": "all", "ha-sync-mode": "x"}, 'ha-sync-mode must be "manual" or "automatic", got <<"x">>'),
    ({"ha-mode": "all", "ha-sync-batch-size": 0}, "ha-sync-batch-size takes an integer greater than 0, 0 given"),
    ({"ha-mode": "all", "ha-promote-on-shutdown": "x"},
     'ha-promote-on-shutdown must be "always" or "when-synced", got <<"x">>'),
    ({"ha-mode": "all", "ha-promote-on-failure": "x"},
     'ha-promote-on-failure must be "always" or "when-synced", got <<"x">>'),
])  # fmt: skip
def test_definitions_of_policies_that_are_none(
    administration: Administration, vhost: str, definition: Any, complaint: str
) -> None:
    got = refusal(administration, "set_policy", vhost=vhost, name="p", pattern="", definition=definition)
    assert got == invalid(complaint)
    assert administration.call("list_policies", vhost=vhost) == []


@pytest.mark.parametrize(("definition", "complaint"), [
    ({}, "no policy provided"),
    ({"overflow": "drop-head"}, '[{<<"overflow">>,<<"drop-head">>}] are not recognised policy settings'),
    ({"dead-letter-exchange": "x"}, '[{<<"dead-letter-exchange">>,<<"x">>}] are not recognised policy settings'),
    ({"queue-version": 2}, '[{<<"queue-version">>,2}] are not recognised policy settings'),
    ({"ha-mode": "all"}, '[{<<"ha-mode">>,<<"all">>}] are not recognised policy settings'),
])  # fmt: skip
def test_what_an_operator_policy_may_not_set(
    administration: Administration, vhost: str, definition: Any, complaint: str
) -> None:
    got = refusal(administration, "set_operator_policy", vhost=vhost, name="p", pattern="", definition=definition)
    assert got == invalid(complaint)
    assert administration.call("list_operator_policies", vhost=vhost) == []


@pytest.mark.parametrize("command", ["set_policy", "set_operator_policy"])
@pytest.mark.parametrize(("fields", "complaint"), [
    ({"pattern": "("}, 'pattern should be regular expression but is invalid: {"missing )",1}'),
    ({"pattern": "[a"},
     'pattern should be regular expression but is invalid: {"missing terminating ] for character class",2}'),
    ({"pattern": 7}, "pattern should be a binary but was 7"),
    ({"priority": "x"}, 'priority should be a number, actually was <<"x">>'),
    ({"priority": None}, "priority should be a number, actually was null"),
    ({"priority": True}, "priority should be a number, actually was true"),
])  # fmt: skip
def test_fields_of_policies_that_are_none(
    administration: Administration, vhost: str, command: str, fields: Any, complaint: str
) -> None:
    given = {"pattern": "", "definition": {"max-length": 1}, **fields}
    got = refusal(administration, command, vhost=vhost, name="p", **given)
    assert got == invalid(complaint)


def test_the_last_complaint_comes_first(administration: Administration, vhost: str) -> None:
    got = refusal(
        administration, "set_policy", vhost=vhost, name="p", pattern=")", definition={"max-length": -1}, priority="x",
        apply_to="some",
    )  # fmt: skip
    assert got == invalid(
        "-1 is not a valid maximum length",
        "apply-to 'some' unrecognised; should be 'queues', 'exchanges' or 'all'",
        'pattern should be regular expression but is invalid: {"unmatched parentheses",0}',
        'priority should be a number, actually was <<"x">>',
    )


def test_policies_are_listed_as_they_were_set(administration: Administration, vhost: str) -> None:
    for kind, command in (("policy", "list_policies"), ("operator_policy", "list_operator_policies")):
        administration.call(f"set_{kind}", vhost=vhost, name="p", pattern="^a", definition={"max-length": 1})
        administration.call(
            f"set_{kind}", vhost=vhost, name="p", pattern="^b", definition={"expires": 5, "max-length": 1 << 40},
            priority=2.5, apply_to="queues",
        )  # fmt: skip
        what = {"vhost": vhost, "name": "p", "pattern": "^b", "apply-to": "queues", "priority": 2.5}
        assert administration.call(command, vhost=vhost) == [
            {**what, "definition": {"expires": 5, "max-length": 1 << 40}}
        ]
        administration.call(f"clear_{kind}", vhost=vhost, name="p")
        assert administration.call(command, vhost=vhost) == []
        assert refusal(administration, f"clear_{kind}", vhost=vhost, name="p")[0] == NOT_FOUND


def test_an_operator_policy_is_a_parameter(administration: Administration, vhost: str) -> None:
    value = {"pattern": "^b", "definition": {"max-length": 1}, "priority": 0, "apply-to": "all"}
    administration.call("set_parameter", vhost=vhost, component="operator_policy", name="p", value=value)
    assert administration.call("list_operator_policies", vhost=vhost) == [{"vhost": vhost, "name": "p", **value}]
    administration.call("clear_operator_policy", vhost=vhost, name="p")
    got = refusal(administration, "set_parameter", vhost=vhost, component="operator_policy", name="p", value={})
    missing = [f'Key "{key}" not found in p' for key in ("definition", "pattern", "priority")]
    assert got == invalid(*missing)


@pytest.mark.parametrize("command", ["set_policy", "set_operator_policy"])
def test_policies_of_no_virtual_host(administration: Administration, unique: str, command: str) -> None:
    got = refusal(administration, command, vhost=unique, name="p", pattern="", definition={"max-length": 1})
    assert got[0] == NOT_FOUND


# -- parameters --------------------------------------------------------------------------------------------------------

AMQP = {"uri": "amqp://localhost"}


@pytest.mark.parametrize(("component", "value", "complaints"), [
    ("other", 1, ["component other not found"]),
    ("vhost-limits", 7, ["limits not a list 7"]),
    ("vhost-limits", {"max-queues": 1.5, "x": 1},
     ['Unrecognised terms [{<<"x">>,1}] in limits', "max-queues should be a number, actually was 1.5"]),
    (UPSTREAM, {}, ['Key "uri" not found in limits']),
    (UPSTREAM, [], ['Key "uri" not found in limits']),
    (UPSTREAM, {"uri": 7}, ["uri should be list, actually was 7"]),
    (UPSTREAM, {"uri": "http://x"},
     ['"http://x" not a valid URI: {{unexpected_uri_scheme,"http"},"http://x"}']),
    (UPSTREAM, {"uri": ["amqp://x", "zz://y"]},
     ['"zz://y" not a valid URI: {{unexpected_uri_scheme,"zz"},"zz://y"}']),
    (UPSTREAM, {"uri": "x"}, ['"x" not a valid URI: {{unable_to_parse_uri,no_scheme},"x"}']),
    (UPSTREAM, {"uri": ""}, ['"" not a valid URI: {{unable_to_parse_uri,no_scheme},[]}']),
    (UPSTREAM, {"uri": "amqp://x/a/b"}, ['"amqp://x/a/b" not a valid URI: {{invalid_vhost,"a/b"},"amqp://x/a/b"}']),
    *((UPSTREAM, {"uri": uri}, [f'"{uri}" not a valid URI: {{{trouble},"{uri}"}}']) for uri, trouble in (
        ("amqp://h:99999", "{port_out_of_range,99999}"),
        ("amqp://u:p@[::1]:0/v", "{port_out_of_range,0}"),
        ("amqp://h?heartbeat=x",
         '{invalid_amqp_params_parameter,heartbeat,"x",[{"heartbeat","x"}],{not_an_integer,"x"}}'),
        ("amqp://h?a=b&channel_max=1.5",
         '{invalid_amqp_params_parameter,channel_max,"1.5",[{"a","b"},{"channel_max","1.5"}],{not_an_integer,"1.5"}}'),
        ("amqps://h?depth=x", '{invalid_ssl_parameter,depth,"x",[{"depth","x"}],{not_an_integer,"x"}}'),
        ("amqps://h?fail_if_no_peer_cert=x",
         '{invalid_ssl_parameter,fail_if_no_peer_cert,"x",[{"fail_if_no_peer_cert","x"}],{require_boolean,x}}'),
    )),
    (UPSTREAM, {**AMQP, "expires": "x", "message-ttl": "1", "reconnect-delay": [], "resource-cleanup-mode": "x",
                "channel-use-mode": "x"},
     ['channel-use-mode should be one of [<<"multiple">>,<<"single">>], actually was <<"x">>',
      'resource-cleanup-mode should be one of [<<"default">>,<<"never">>], actually was <<"x">>',
      'message-ttl should be a number, actually was <<"1">>', 'expires should be a number, actually was <<"x">>',
      "reconnect-delay should be a number, actually was []"]),
    (UPSTREAM, {"uri": ["amqp://a", 5]}, ["uri should be list, actually was 5"]),
    (UPSTREAMS, [{"upstream": "a", "uri": "amqp://x"}], ['Unrecognised terms [{<<"uri">>,<<"amqp://x">>}] in limits']),
    (UPSTREAM, {**AMQP, "ack-mode": "x"},
     ['ack-mode should be one of [<<"no-ack">>,<<"on-publish">>,<<"on-confirm">>], actually was <<"x">>']),
    (UPSTREAM, {**AMQP, "ack-mode": 7, "bind-nowait": 3, "consumer-tag": 3, "queue": 3},
     ["bind-nowait should be boolean, actually was 3", "ack-mode should be binary, actually was 7",
      "consumer-tag should be binary, actually was 3", "queue should be binary, actually was 3"]),
    (UPSTREAM, {**AMQP, "prefetch-count": "7", "max-hops": None, "trust-user-id": 1, "exchange": 5, "x": "y"},
     ['Unrecognised terms [{<<"x">>,<<"y">>}] in limits', "trust-user-id should be boolean, actually was 1",
      "max-hops should be a number, actually was null", 'prefetch-count should be a number, actually was <<"7">>',
      "exchange should be binary, actually was 5"]),
    (UPSTREAMS, [{}], ['Key "upstream" not found in limits']),
    (UPSTREAMS, [{"upstream": "a", "x": 1}, {"upstream": 1}],
     ['Unrecognised terms [{<<"x">>,1}] in limits', "upstream should be binary, actually was 1"]),
])  # fmt: skip
def test_parameters_that_are_none(
    administration: Administration, vhost: str, component: str, value: Any, complaints: list[str]
) -> None:
    got = refusal(administration, "set_parameter", vhost=vhost, component=component, name="limits", value=value)
    assert got == invalid(*complaints)


def test_limits_of_another_name(administration: Administration, vhost: str, on_rabbitmq: bool) -> None:
    got = refusal(administration, "set_parameter", vhost=vhost, component="vhost-limits", name="x", value={"a": 1})
    assert got == invalid('Unrecognised terms [{<<"a">>,1}] in x')
    if not on_rabbitmq:  # RabbitMQ keeps it, answers 500, and lets no client into the virtual host any more
        value = {"max-queues": 1}
        got = refusal(administration, "set_parameter", vhost=vhost, component="vhost-limits", name="x", value=value)
        assert got == invalid('name not recognised: <<"x">>')


def test_a_policy_is_no_parameter(administration: Administration, vhost: str) -> None:
    got = refusal(administration, "set_parameter", vhost=vhost, component="policy", name="p", value={})
    assert got == (BAD_REQUEST, "policies may not be set using this method")


@pytest.mark.parametrize("uri", [
    "amqp://", "amqp://localhost", "amqps://u:p%40@[::1]:5671/v%2Fh?heartbeat=5&cacertfile=/a.pem",
    ["amqp://one", "amqp://two/"], [], "amqp://h?heartbeat=-1&depth=x&frame_max=0&x", "amqps://h?verify=bad&versions=x",
])  # fmt: skip
def test_upstreams_are_kept_as_they_are(administration: Administration, vhost: str, uri: Any) -> None:
    value = {
        "uri": uri, "exchange": "x", "queue": "q", "consumer-tag": "t", "prefetch-count": 5, "reconnect-delay": 0.5,
        "max-hops": 2, "expires": 1000, "message-ttl": 1000, "trust-user-id": True, "ack-mode": "no-ack",
        "resource-cleanup-mode": "never", "ha-policy": "all", "bind-nowait": False, "channel-use-mode": "single",
    }  # fmt: skip
    administration.call("set_parameter", vhost=vhost, component=UPSTREAM, name="u", value=value)
    upstreams = [{"upstream": "u", "prefetch-count": 1}, {"upstream": "not there yet"}]
    administration.call("set_parameter", vhost=vhost, component=UPSTREAMS, name="s", value=upstreams)
    found = administration.call("list_parameters")
    mine = {each["component"]: each["value"] for each in found if each["vhost"] == vhost}
    assert mine == {UPSTREAM: value, UPSTREAMS: upstreams}
    for component, name in ((UPSTREAM, "u"), (UPSTREAMS, "s")):
        administration.call("clear_parameter", vhost=vhost, component=component, name=name)
        again = refusal(administration, "clear_parameter", vhost=vhost, component=component, name=name)
        assert again[0] == NOT_FOUND


@pytest.mark.parametrize("key", ["prefetch-count", "reconnect-delay", "max-hops", "expires", "message-ttl"])
@pytest.mark.parametrize("value", [0, -1, 1.5, 1 << 40])
def test_a_number_is_any_number(administration: Administration, vhost: str, key: str, value: float) -> None:
    """RabbitMQ does not check the range; a value that cannot work makes the link fail, and its status says so."""
    upstream, upstreams = {**AMQP, key: value}, [{"upstream": "u", key: value}]
    administration.call("set_parameter", vhost=vhost, component=UPSTREAM, name="u", value=upstream)
    administration.call("set_parameter", vhost=vhost, component=UPSTREAMS, name="u", value=upstreams)
    mine = [each["value"] for each in administration.call("list_parameters") if each["vhost"] == vhost]
    assert upstream in mine
    for component in (UPSTREAM, UPSTREAMS):
        administration.call("clear_parameter", vhost=vhost, component=component, name="u")


def test_a_set_may_be_empty(administration: Administration, vhost: str) -> None:
    for value in ([], {}):
        administration.call("set_parameter", vhost=vhost, component=UPSTREAMS, name="s", value=value)
    administration.call("clear_parameter", vhost=vhost, component=UPSTREAMS, name="s")


@pytest.mark.parametrize(("component", "value", "complaint"), [
    (UPSTREAM, {**AMQP, "queue-type": "stream"},
     'queue-type should be one of [<<"classic">>,<<"quorum">>], actually was <<"stream">>'),
    (UPSTREAMS, "x", 's should be list, actually was <<"x">>'),
    (UPSTREAMS, [5], "s not a list 5"),
])  # fmt: skip
def test_what_rabbitmq_does_not_know_or_dies_of(
    administration: Administration, vhost: str, on_rabbitmq: bool, component: str, value: Any, complaint: str
) -> None:
    if not on_rabbitmq:  # 3.13.1 is the first version with queue-type; RabbitMQ answers 500 to a set that is not a list
        got = refusal(administration, "set_parameter", vhost=vhost, component=component, name="s", value=value)
        assert got == invalid(complaint)


@pytest.mark.parametrize("value", [{"a": [1, "x", None, 2.5, {"b": True}]}, 7, None, "x", [], False])
def test_a_global_parameter_may_be_anything(administration: Administration, unique: str, value: Any) -> None:
    administration.call("set_global_parameter", name=unique, value=value)
    found = administration.call("list_global_parameters")
    assert [each["value"] for each in found if each["name"] == unique] == [value]
    administration.call("clear_global_parameter", name=unique)
    assert refusal(administration, "clear_global_parameter", name=unique)[0] == NOT_FOUND


# -- limits ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("limits", "complaint"), [
    ({"max-channels": "x"}, 'max-channels should be a number, actually was <<"x">>'),
    ({"max-connections": 1.5}, "max-connections should be a number, actually was 1.5"),
])  # fmt: skip
def test_limits_of_users_that_are_none(
    administration: Administration, unique: str, limits: dict[str, Any], complaint: str
) -> None:
    administration.call("add_user", name=unique, password="p", tags=[])
    assert refusal(administration, "set_user_limits", user=unique, definition=limits) == (BAD_REQUEST, complaint)
    administration.call("delete_user", name=unique)


def test_limits_of_virtual_hosts_that_are_none(administration: Administration, vhost: str) -> None:
    got = refusal(administration, "set_vhost_limits", vhost=vhost, definition={"max-queues": "x"})
    assert got == invalid('max-queues should be a number, actually was <<"x">>')

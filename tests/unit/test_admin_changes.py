"""The HTTP API on a fake control: what PUT, POST and DELETE make of bodies and queries."""

from __future__ import annotations

from typing import Any

import pytest

from leveret.admin.paths.special import form_parts
from leveret.control.refusal import BAD_REQUEST, NOT_FOUND, Refused

from .admin import MINE, Browser, missing


@pytest.fixture
def browse() -> Browser:
    browse = Browser()
    browse.control.answers |= {"get_queue": missing, "get_exchange": missing, "declare_queue": lambda _: None}
    return browse


async def test_put_says_whether_the_object_is_new(browse: Browser) -> None:
    assert (await browse("PUT", "/api/queues/%2F/q", json={})).status_code == 201
    browse.control.answers["get_queue"] = lambda _: {"name": "q"}
    answer = await browse("PUT", "/api/queues/%2F/q", json={})
    assert (answer.status_code, answer.content) == (204, b"")


async def test_fields_of_a_body_become_the_commands(browse: Browser) -> None:
    body = {"durable": "true", "auto_delete": False, "arguments": {"x-a": 1}, "node": "ignored", "name": "ignored"}
    assert (await browse("PUT", "/api/queues/%2F/q", json=body, user="root")).status_code == 201
    assert browse.control.fields_of("declare_queue") == {
        "vhost": "/", "name": "q", "durable": True, "auto_delete": False, "arguments": {"x-a": 1}, "user": "root",
    }  # fmt: skip


@pytest.mark.parametrize(("content", "reason"), [
    (b"{", "not_json"),
    (b"[]", "not_json"),
    (b"5", "not_json"),
    (b"\xff", "not_json"),
    (b'{"arguments": "\\ud800"}', "not_json"),
    (b"[" * 100_000, "not_json"),
    (b'{"a":' * 100_000, "not_json"),
    (b'{"arguments":' + b'{"a":' * 200 + b"1" + b"}" * 201, "not_json"),
    (b'"{}"', "invalid payload: the request body JSON-decoded to a string. Is the input doubly-JSON-encoded?"),
    (b'{"durable": "yes"}', ["not_boolean", "yes"]),
    (b'{"durable": 1}', ["not_boolean", 1]),
    (b'{"arguments": 7}', ["not_a_table", 7]),
])  # fmt: skip
async def test_bodies_that_are_wrong(browse: Browser, content: bytes, reason: Any) -> None:
    answer = await browse("PUT", "/api/queues/%2F/q", content=content)
    assert (answer.status_code, answer.json()) == (400, {"error": "bad_request", "reason": reason})
    assert "declare_queue" not in [name for name, _ in browse.control.asked]


@pytest.mark.parametrize("content", [b"", b"null", b"{}", b"true", b'{"arguments": []}', b'{"durable": null}'])
async def test_bodies_that_say_nothing(browse: Browser, content: bytes) -> None:
    assert (await browse("PUT", "/api/queues/%2F/q", content=content)).status_code == 201


async def test_a_body_that_is_too_long(browse: Browser) -> None:
    answer = await browse("PUT", "/api/queues/%2F/q", content=b" " * 10_000_001)
    assert (answer.status_code, answer.json()["reason"]) == (400, "Exceeded HTTP request body size limit")


async def test_what_is_missing_is_named(browse: Browser) -> None:
    browse.control.answers |= {"list_permissions": lambda _: [], "publish": lambda _: {"routed": True}}
    answer = await browse("PUT", "/api/permissions/%2F/u", json={"configure": ".*"})
    assert answer.json() == {"error": "bad_request", "reason": "[{key_missing,write},{key_missing,read}]"}
    answer = await browse("POST", "/api/exchanges/%2F/x/publish", json={})
    assert answer.json()["reason"] == (
        "[{key_missing,routing_key},\n {key_missing,properties},\n {key_missing,payload},\n"
        " {key_missing,payload_encoding}]"
    )


async def test_an_object_in_no_virtual_host(browse: Browser) -> None:
    answer = await browse("PUT", "/api/queues/nowhere/q", json={})
    assert (answer.status_code, answer.json()) == (404, {"error": "not_found", "reason": "vhost_not_found"})


async def test_a_permission_of_nobody(browse: Browser) -> None:
    browse.control.answers |= {"list_permissions": lambda _: [], "set_permissions": missing}
    answer = await browse("PUT", "/api/permissions/%2F/u", json={"configure": "", "write": "", "read": ""})
    assert (answer.status_code, answer.json()["reason"]) == (400, "vhost_or_user_not_found")


async def test_conditions_of_a_delete(browse: Browser) -> None:
    browse.control.answers |= {"get_queue": lambda _: {"name": "q"}, "delete_queue": lambda _: None}
    assert (await browse("DELETE", "/api/queues/%2F/q?if-empty=true&if-unused=false")).status_code == 204
    assert browse.control.fields_of("delete_queue") == {"vhost": "/", "name": "q", "if_empty": True, "user": "root"}


async def test_a_policy_has_hyphens(browse: Browser) -> None:
    browse.control.answers |= {"list_policies": lambda _: [], "set_policy": lambda _: None}
    body = {"pattern": "^a", "definition": {"max-length": 1}, "apply-to": "queues", "priority": 3}
    assert (await browse("PUT", "/api/policies/%2F/p", json=body)).status_code == 201
    assert browse.control.fields_of("set_policy") == {
        "vhost": "/", "name": "p", "pattern": "^a", "definition": {"max-length": 1}, "apply_to": "queues",
        "priority": 3,
    }  # fmt: skip


async def test_refused_policies_are_fit_for_html(browse: Browser) -> None:
    """As RabbitMQ does for policies, but forgot for operator policies."""

    def refuse(fields: dict[str, Any]) -> Any:
        raise Refused(BAD_REQUEST, 'Validation failed\n\n[{<<"x">>,1}] are not recognised policy settings\n')

    names = ("list_policies", "list_operator_policies")
    browse.control.answers |= dict.fromkeys(names, lambda _: [])
    browse.control.answers |= {"set_policy": refuse, "set_operator_policy": refuse}
    body = {"pattern": "", "definition": {}}
    assert '{&lt;&lt;"x"&gt;&gt;,1}' in (await browse("PUT", "/api/policies/%2F/p", json=body)).json()["reason"]
    assert '{<<"x">>,1}' in (await browse("PUT", "/api/operator-policies/%2F/p", json=body)).json()["reason"]


async def test_a_binding_says_where_it_is(browse: Browser) -> None:
    browse.control.answers["bind"] = lambda _: {"properties_key": "a%2Fb~hash"}
    answer = await browse("POST", "/api/bindings/%2F/e/x/q/my%20queue", json={"routing_key": "a/b"})
    assert (answer.status_code, answer.headers["location"]) == (201, "my%20queue/a%252Fb~hash")
    assert browse.control.fields_of("bind") == {
        "vhost": "/", "source": "x", "destination": "my queue", "destination_type": "queue", "routing_key": "a/b",
        "user": "root",
    }  # fmt: skip


async def test_one_binding(browse: Browser) -> None:
    binding = {"properties_key": "a%2Fb~hash", "routing_key": "a/b"}
    browse.control.answers |= {"list_bindings": lambda _: [binding], "unbind": lambda _: None}
    path = "/api/bindings/%2F/e/x/e/y/a%252Fb~hash"
    assert (await browse("GET", path)).json() == binding
    assert (await browse("DELETE", path)).status_code == 204
    assert browse.control.fields_of("unbind") == {
        "vhost": "/", "source": "x", "destination": "y", "destination_type": "exchange",
        "properties_key": "a%2Fb~hash", "user": "root",
    }  # fmt: skip
    assert (await browse("GET", "/api/bindings/%2F/e/x/e/y/other")).status_code == 404
    assert (await browse("GET", "/api/bindings/%2F/e/x/z/y")).status_code == 404


async def test_publish(browse: Browser) -> None:
    browse.control.answers["publish"] = lambda _: {"routed": False}
    message = {"routing_key": "k", "properties": {}, "payload": "x", "payload_encoding": "string"}
    answer = await browse("POST", "/api/exchanges/%2F/x/publish", json=message)
    assert (answer.status_code, answer.json()) == (200, {"routed": False})
    assert browse.control.fields_of("publish") == {"vhost": "/", "exchange": "x", **message, "user": "root"}
    for wrong, reason in [
        ({"payload": 1}, "payload_not_string"),
        ({"payload_encoding": "rot13"}, ["unsupported_encoding", "rot13"]),
    ]:
        answer = await browse("POST", "/api/exchanges/%2F/x/publish", json=message | wrong)
        assert (answer.status_code, answer.json()["reason"]) == (400, reason)



async def test_a_channel_of_a_virtual_host_that_may_not_be_entered(browse: Browser) -> None:
    def refuse(fields: dict[str, Any]) -> Any:
        raise Refused(NOT_FOUND, "NOT_FOUND - no queue 'q'")

    browse.control.answers["get_messages"] = refuse
    body = {"ackmode": "ack_requeue_true", "count": 1, "encoding": "auto"}
    answer = await browse("POST", "/api/queues/%2F/q/get", json=body)
    assert (answer.status_code, answer.json()) == (404, {"error": "not_found", "reason": "NOT_FOUND - no queue 'q'"})
    # an administrator needs a permission for this, too
    for vhost in ("nowhere", "theirs"):
        answer = await browse("POST", f"/api/queues/{vhost}/q/get", json=body)
        assert (answer.status_code, answer.json()["reason"]) == (401, "Access refused.")
    answer = await browse("GET", "/api/aliveness-test/theirs")
    assert (answer.status_code, answer.json()["reason"]) == (401, "Access refused.")


async def test_get_takes_numbers_as_text(browse: Browser) -> None:
    browse.control.answers |= {"get_queue": lambda _: {"name": "q"}, "get_messages": lambda _: []}
    body = {"ackmode": "ack_requeue_true", "count": "5", "encoding": "auto", "truncate": "50000"}
    assert (await browse("POST", "/api/queues/%2F/q/get", json=body)).json() == []
    assert browse.control.fields_of("get_messages") == {
        "vhost": "/", "queue": "q", "ackmode": "ack_requeue_true", "count": 5, "encoding": "auto", "truncate": 50000,
        "user": "root",
    }  # fmt: skip
    answer = await browse("POST", "/api/queues/%2F/q/get", json=body | {"count": "five"})
    assert answer.json() == {"error": "bad_request", "reason": ["not_integer", "five"]}


async def test_a_user(browse: Browser) -> None:
    browse.control.answers |= {"list_users": lambda _: [], "put_user": lambda _: None}
    assert (await browse("PUT", "/api/users/u", json={"password": "p"})).json()["reason"] == "tags_not_present"
    answer = await browse("PUT", "/api/users/u", json={"password": "p", "tags": "management, monitoring"})
    assert answer.status_code == 201
    assert browse.control.fields_of("put_user") == {
        "name": "u", "password": "p", "tags": ["management", "monitoring"]
    }  # fmt: skip


@pytest.mark.parametrize(("body", "reason"), [
    ({"password": "p", "tags": None}, "tags_not_present"),
    ({"password": "p", "password_hash": "", "tags": ""}, "both_password_and_password_hash_are_provided"),
    ({"password_hash": "not base64!", "tags": ""}, ["not_base64", "not base64!"]),
    ({"password": 5, "tags": ""}, ["not_a_string", 5]),
    ({"password": "p", "tags": 1}, ["not_tags", 1]),
])  # fmt: skip
async def test_users_that_can_not_be(browse: Browser, body: dict[str, Any], reason: Any) -> None:
    browse.control.answers["list_users"] = lambda _: []
    answer = await browse("PUT", "/api/users/u", json=body)
    assert (answer.status_code, answer.json()) == (400, {"error": "bad_request", "reason": reason})
    assert [name for name, _ in browse.control.asked] == ["list_users"]


async def test_several_users(browse: Browser) -> None:
    browse.control.answers |= {"list_users": lambda _: [{"name": "a"}, {"name": "b"}], "delete_user": lambda _: None}
    answer = await browse("POST", "/api/users/bulk-delete", json={"users": ["a", "c"]})
    assert (answer.status_code, answer.json()["reason"]) == (400, ["no_such_user", "c"])
    assert "delete_user" not in [name for name, _ in browse.control.asked]
    assert (await browse("POST", "/api/users/bulk-delete", json={"users": ["a", "b"]})).status_code == 204
    assert [fields for name, fields in browse.control.asked if name == "delete_user"] == [{"name": "a"}, {"name": "b"}]


async def test_users_without_permissions(browse: Browser) -> None:
    browse.control.answers |= {
        "list_users": lambda _: [{"name": "b"}, {"name": "a"}, {"name": "c"}],
        "list_permissions": lambda _: [{"user": "c", "vhost": "/"}],
    }
    assert (await browse("GET", "/api/users/without-permissions")).json() == [{"name": "a"}, {"name": "b"}]


async def test_who_makes_a_virtual_host_may_enter_it(browse: Browser) -> None:
    browse.control.answers |= {"add_vhost": lambda _: None, "trace_on": lambda _: None}
    body = {"description": "d", "tags": "a,b", "tracing": "true"}
    assert (await browse("PUT", "/api/vhosts/new", json=body)).status_code == 201
    assert browse.control.asked == [
        ("add_vhost", {"name": "new", "creator": "root", "description": "d", "tags": ["a", "b"]}),
        ("trace_on", {"vhost": "new"}),
    ]
    browse.control.asked.clear()
    assert (await browse("PUT", f"/api/vhosts/{MINE}", json={})).status_code == 204
    assert browse.control.asked == [("add_vhost", {"name": MINE})]


async def test_a_limit_must_be_json(browse: Browser) -> None:
    browse.control.answers |= {"set_vhost_limit": lambda _: None, "clear_vhost_limit": lambda _: None}
    path = "/api/vhost-limits/%2F/max-queues"
    assert (await browse("PUT", path, content=b'{"value": 5}')).status_code == 415
    assert (await browse("PUT", path, json={"value": 5})).status_code == 204
    assert browse.control.fields_of("set_vhost_limit") == {"vhost": "/", "name": "max-queues", "value": 5}
    assert (await browse("DELETE", path)).status_code == 204
    answer = await browse("PUT", "/api/vhost-limits/nowhere/max-queues", json={"value": 5})
    assert (answer.status_code, answer.json()["reason"]) == (404, "vhost_not_found")


async def test_closing_a_connection_says_why(browse: Browser) -> None:
    browse.control.answers |= {"get_connection": lambda _: {"user": "plain"}, "close_connection": lambda _: None}
    path = "/api/connections/127.0.0.1%3A1%20-%3E%20127.0.0.1%3A2"
    name = "127.0.0.1:1 -> 127.0.0.1:2"
    assert (await browse("DELETE", path)).status_code == 204
    assert (await browse("DELETE", path, headers={"x-reason": "enough"})).status_code == 204
    assert [fields for command, fields in browse.control.asked if command == "close_connection"] == [
        {"name": name, "reason": "Closed via management plugin"}, {"name": name, "reason": "enough"},
    ]  # fmt: skip


async def test_topic_permissions_of_one_exchange(browse: Browser) -> None:
    items = [{"vhost": "/", "user": "u", "exchange": x, "write": "", "read": ""} for x in ("a", "b")]
    browse.control.answers |= {"list_topic_permissions": lambda _: items, "clear_topic_permissions": lambda _: None}
    assert (await browse("GET", "/api/topic-permissions/%2F/u")).json() == items
    assert (await browse("GET", "/api/topic-permissions/%2F/u/b")).json() == items[1:]
    assert (await browse("GET", "/api/topic-permissions/%2F/other")).status_code == 404
    assert (await browse("DELETE", "/api/topic-permissions/%2F/u/b")).status_code == 204
    assert browse.control.fields_of("clear_topic_permissions") == {"vhost": "/", "user": "u", "exchange": "b"}


# -- definitions -------------------------------------------------------------------------------------------------------


@pytest.fixture
def importing(browse: Browser) -> Browser:
    browse.control.answers |= {"import_definitions": lambda _: None, "export_definitions": lambda _: {"users": []}}
    return browse


async def test_definitions(importing: Browser) -> None:
    answer = await importing("GET", "/api/definitions?download=backup.json")
    assert answer.json() == {"users": []}
    assert answer.headers["content-disposition"] == "attachment; filename=backup.json"
    assert (await importing("POST", "/api/definitions", json={"queues": []})).status_code == 204
    assert importing.control.fields_of("import_definitions") == {"definitions": {"queues": []}, "vhost": None}


async def test_definitions_of_a_virtual_host(importing: Browser) -> None:
    assert (await importing("GET", "/api/definitions/nowhere")).json()["reason"] == "vhost_not_found"
    answer = await importing("POST", "/api/definitions/nowhere", json={})
    assert (answer.status_code, answer.json()["reason"]) == (404, "vhost_not_found")
    await importing("POST", f"/api/definitions/{MINE}", json={})
    assert importing.control.fields_of("import_definitions")["vhost"] == MINE


@pytest.mark.parametrize("content", [b"{", b"[]", b"1", b"\xff"])
async def test_definitions_that_are_no_json(importing: Browser, content: bytes) -> None:
    answer = await importing(
        "POST", "/api/definitions", content=content, headers={"content-type": "application/json"}
    )  # fmt: skip
    assert (answer.status_code, answer.json()["reason"]) == (400, "failed_to_parse_json")


async def test_definitions_of_another_type(importing: Browser) -> None:
    answer = await importing("POST", "/api/definitions", content=b"{}", headers={"content-type": "text/plain"})
    assert answer.status_code == 415


async def test_definitions_from_a_form(importing: Browser) -> None:
    form = (
        b'--B\r\nContent-Disposition: form-data; name="file"; filename="d.json"\r\n\r\n{"queues": ["\xc3\xa9"]}\r\n'
        b'--B\r\nContent-Disposition: form-data; name="redirect"\r\n\r\n../#/import-succeeded\r\n--B--\r\n'
    )
    kind = "multipart/form-data; boundary=B"
    assert form_parts(kind, form)["file"] == '{"queues": ["é"]}'.encode()
    answer = await importing("POST", "/api/definitions", content=form, headers={"content-type": kind})
    assert (answer.status_code, answer.headers["location"]) == (303, "../#/import-succeeded")
    assert importing.control.fields_of("import_definitions")["definitions"] == {"queues": ["é"]}


async def test_credentials_in_the_query_are_for_definitions_only(importing: Browser) -> None:
    assert (await importing("GET", "/api/definitions?auth=cm9vdDpzZWNyZXQ=", user=None)).status_code == 200
    assert (await importing("GET", "/api/whoami?auth=cm9vdDpzZWNyZXQ=", user=None)).status_code == 401

"""The HTTP API on a fake control: routes, logins, rules, errors. Texts and codes are RabbitMQ 3.10's, as measured."""

from __future__ import annotations

from typing import Any

import pytest

from leveret.control.refusal import BAD_REQUEST, INTERNAL, Refused

from .admin import MINE, Browser, missing

NOT_FOUND = {"error": "Object Not Found", "reason": "Not Found"}


@pytest.fixture
def browse() -> Browser:
    return Browser()


def there(fields: dict[str, Any]) -> Any:
    return {"name": fields.get("name", ""), "user": "plain"}


# -- logging in --------------------------------------------------------------------------------------------------------


async def test_without_credentials(browse: Browser) -> None:
    answer = await browse("GET", "/api/whoami", user=None)
    assert (answer.status_code, answer.content) == (401, b"")
    assert answer.headers["www-authenticate"] == 'Basic realm="RabbitMQ Management"'


@pytest.mark.parametrize("header", ["", "Basic", "Basic !", "Basic cm9vdA==", "Digest x", "Bearer", "Basic /w=="])
async def test_a_header_that_is_none(browse: Browser, header: str) -> None:
    answer = await browse("GET", "/api/whoami", user=None, headers={"authorization": header})
    assert (answer.status_code, answer.content) == (400, b"")


async def test_a_token(browse: Browser) -> None:
    answer = await browse("GET", "/api/whoami", user=None, headers={"authorization": "Bearer x"})
    assert (answer.status_code, answer.json()["reason"]) == (401, "Login failed")


@pytest.mark.parametrize(("user", "password"), [("root", "wrong"), ("missing", "secret"), ("root", "")])
async def test_wrong_credentials(browse: Browser, user: str, password: str) -> None:
    answer = await browse("GET", "/api/whoami", user=user, password=password)
    assert answer.status_code == 401
    assert answer.json() == {"error": "not_authorized", "reason": "Login failed"}
    assert "www-authenticate" in answer.headers


async def test_a_password_with_a_colon_and_letters_of_all_kinds(browse: Browser) -> None:
    seen = {}

    def authenticate(fields: dict[str, Any]) -> Any:
        seen.update(fields)
        return {"name": fields["name"], "tags": ["management"]}

    browse.control.answers["authenticate"] = authenticate
    assert (await browse("GET", "/api/whoami", user="jörg", password="a:ß:c")).status_code == 200
    assert (seen["name"], seen["password"]) == ("jörg", "a:ß:c")


async def test_a_user_without_a_tag(browse: Browser) -> None:
    answer = await browse("GET", "/api/whoami", user="nobody")
    assert answer.status_code == 401
    assert answer.json() == {"error": "not_authorised", "reason": "Not management user"}


async def test_whoami(browse: Browser) -> None:
    answer = await browse("GET", "/api/whoami", user="watch")
    assert answer.status_code == 200
    assert answer.json() == {"name": "watch", "tags": ["monitoring"], "is_internal_user": True}
    assert answer.headers["cache-control"] == "no-cache"


async def test_the_broker_hears_who_calls_through_which_door(browse: Browser) -> None:
    browse.control.answers |= {"list_users": lambda _: [{"name": "u"}], "delete_user": lambda _: None}
    assert (await browse("DELETE", "/api/users/u")).status_code == 204
    assert {(by.user, by.interface) for by in browse.control.callers} == {("root", "http")}


async def test_login_sets_a_cookie(browse: Browser) -> None:
    form = {"content-type": "application/x-www-form-urlencoded"}
    answer = await browse("POST", "/api/login", None, content=b"username=root&password=secret", headers=form)
    assert (answer.status_code, answer.json()) == (200, "ok")
    assert answer.headers["set-cookie"] == "auth=cm9vdDpzZWNyZXQ=; Version=1; HttpOnly; SameSite=Strict"
    answer = await browse("POST", "/api/login", None, content=b"username=root&password=no", headers=form)
    assert answer.json() == {"error": "not_authorized", "reason": "Login failed"}


# -- permissions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("path", "may", "reason"), [
    ("/api/users", {"root"}, "Not administrator user"),
    ("/api/permissions", {"root"}, "Not administrator user"),
    ("/api/definitions", {"root"}, "Not administrator user"),
    ("/api/feature-flags", {"root"}, "Not administrator user"),
    ("/api/nodes", {"root", "watch"}, "Not monitor user"),
    ("/api/auth/attempts/n", {"root", "watch"}, "Not monitor user"),
    ("/api/global-parameters", {"root", "rules"}, "User not authorised to access object"),
    ("/api/parameters", {"root", "rules"}, "User not authorised to access object"),
    ("/api/parameters/c/mine", {"root", "rules"}, "User not authorised to access object"),
    ("/api/parameters/c/theirs", {"root"}, "User not authorised to access object"),
    ("/api/queues", {"root", "watch", "rules", "plain"}, ""),
    ("/api/queues/mine", {"root", "watch", "rules", "plain"}, ""),
    ("/api/queues/theirs", {"root"}, "User not authorised to access virtual host"),
    ("/api/queues/theirs/q", {"root"}, "User not authorised to access virtual host"),
    ("/api/policies/theirs", {"root"}, "User not authorised to access virtual host"),
    ("/api/vhost-limits/theirs", {"root", "watch"}, "User not authorised to access virtual host"),
    ("/api/connections/c", {"root", "watch", "plain"}, "User not authorised to access object"),
    ("/api/connections/username/plain", {"root", "watch"}, "User not authorised to access object"),
])  # fmt: skip
async def test_who_may_read(browse: Browser, path: str, may: set[str], reason: str) -> None:
    lists = (
        "list_users", "list_permissions", "list_feature_flags", "list_nodes", "list_auth_attempts", "list_queues",
        "list_connections", "list_global_parameters", "list_parameters", "list_policies", "list_vhost_limits",
    )  # fmt: skip
    browse.control.answers |= {name: lambda _: [{"vhost": MINE}] for name in lists}
    singles = ("get_node", "get_queue", "get_connection", "export_definitions")
    browse.control.answers |= dict.fromkeys(singles, there)
    for user in ("root", "watch", "rules", "plain"):
        answer = await browse("GET", path, user=user)
        if user in may:
            assert answer.status_code == 200, (user, answer.text)
        else:
            assert (answer.status_code, answer.json()) == (401, {"error": "not_authorised", "reason": reason}), user


@pytest.mark.parametrize(("method", "path", "may"), [
    ("DELETE", "/api/connections/c", {"root", "plain"}),  # the connection is plain's
    ("DELETE", "/api/connections/username/plain", {"root"}),
    ("DELETE", "/api/users/u", {"root"}),
    ("PUT", "/api/vhosts/v", {"root"}),
    ("PUT", "/api/cluster-name", {"root"}),
    ("POST", "/api/queues/mine/q/actions", {"root"}),
    ("DELETE", "/api/operator-policies/mine/p", {"root"}),
    ("DELETE", "/api/policies/mine/p", {"root", "rules"}),
    ("DELETE", "/api/queues/mine/q", {"root", "watch", "rules", "plain"}),
    ("POST", "/api/rebalance/queues", {"root"}),
])  # fmt: skip
async def test_who_may_change(browse: Browser, method: str, path: str, may: set[str]) -> None:
    browse.control.answers |= dict.fromkeys(("get_connection", "get_queue", "get_cluster_name"), there)
    browse.control.answers["list_users"] = lambda _: [{"name": "u"}]
    policies = lambda _: [{"vhost": MINE, "name": "p"}]  # noqa: E731
    browse.control.answers |= {"list_policies": policies, "list_operator_policies": policies}
    changes = (
        "close_connection", "close_all_user_connections", "delete_user", "add_vhost", "set_cluster_name",
        "clear_policy", "clear_operator_policy", "delete_queue",
    )  # fmt: skip
    browse.control.answers |= {name: lambda _: None for name in changes}
    for user in ("root", "watch", "rules", "plain"):
        before = len([name for name, _ in browse.control.asked if name in changes])
        body = {"name": "n", "action": "sync"} if method in ("PUT", "POST") else None
        answer = await browse(method, path, user=user, json=body)
        after = len([name for name, _ in browse.control.asked if name in changes])
        if user in may:
            assert answer.status_code in (201, 204), (user, answer.text)
        else:
            assert (answer.status_code, after) == (401, before), user
            assert answer.json()["error"] == "not_authorised"


async def test_bindings_of_what_is_nowhere(browse: Browser) -> None:
    """RabbitMQ does not check that the virtual host or the exchange exists."""
    browse.control.answers["list_bindings"] = missing
    for path in ("exchanges/nowhere/x/bindings/source", "queues/nowhere/q/bindings", "bindings/nowhere/e/x/q/q"):
        assert (await browse("GET", f"/api/{path}")).json() == []
    assert (await browse("GET", "/api/bindings/nowhere")).status_code == 404


async def test_what_is_seen_of_long_lists(browse: Browser) -> None:
    browse.control.answers |= dict.fromkeys(("list_queues", "list_connections", "list_vhosts"), lambda _: [])
    seen = {}
    for user in ("root", "watch", "plain"):
        for path in ("queues", "connections", "vhosts"):
            browse.control.asked.clear()
            await browse("GET", f"/api/{path}", user=user)
            seen[user, path] = browse.control.fields_of(f"list_{path}")
    assert seen["root", "queues"] == seen["root", "connections"] == seen["root", "vhosts"] == {}
    # a monitor sees all users' connections and all virtual hosts, but objects only of virtual hosts that he may enter
    assert seen["watch", "queues"] == {"vhosts": [MINE]}
    assert seen["watch", "connections"] == seen["watch", "vhosts"] == {}
    assert seen["plain", "queues"] == seen["plain", "vhosts"] == {"vhosts": [MINE]}
    assert seen["plain", "connections"] == {"user": "plain"}


async def test_what_is_seen_of_short_lists(browse: Browser) -> None:
    browse.control.answers["list_policies"] = lambda _: [{"vhost": MINE, "name": "a"}, {"vhost": "theirs", "name": "b"}]
    assert [each["name"] for each in (await browse("GET", "/api/policies")).json()] == ["a", "b"]
    assert [each["name"] for each in (await browse("GET", "/api/policies", user="plain")).json()] == ["a"]


async def test_everybody_may_learn_that_there_is_no_such_virtual_host(browse: Browser) -> None:
    for answering in (missing, lambda _: []):
        browse.control.answers["list_queues"] = answering
        answer = await browse("GET", "/api/queues/nowhere", user="plain")
        assert (answer.status_code, answer.json()) == (404, NOT_FOUND)


# -- paths and verbs ---------------------------------------------------------------------------------------------------


async def test_an_unknown_path(browse: Browser) -> None:
    answer = await browse("GET", "/api/nope", user=None)
    assert (answer.status_code, answer.json()) == (404, NOT_FOUND)


async def test_a_verb_that_a_path_has_not(browse: Browser) -> None:
    answer = await browse("POST", "/api/queues")
    assert (answer.status_code, answer.content, answer.headers["allow"]) == (405, b"", "HEAD, GET, OPTIONS")
    assert (await browse("FOO", "/api/queues")).status_code == 501


async def test_options_need_no_login(browse: Browser) -> None:
    answer = await browse("OPTIONS", "/api/queues/%2F/q", user=None)
    assert (answer.status_code, answer.headers["allow"]) == (200, "HEAD, GET, PUT, DELETE, OPTIONS")
    assert "access-control-allow-origin" not in answer.headers


async def test_names_with_slashes_and_letters_of_all_kinds(browse: Browser) -> None:
    browse.control.answers["get_queue"] = there
    assert (await browse("GET", "/api/queues/%2F/a%2Fb%20c%C3%A9+d%25")).status_code == 200
    assert browse.control.fields_of("get_queue") == {"vhost": "/", "name": "a/b cé+d%"}


@pytest.mark.parametrize("path", ["/api/queues/%ff", "/api/queues/%2F/a/b/c", "/api//queues", "/x", "/x//"])
async def test_paths_that_lead_nowhere(browse: Browser, path: str) -> None:
    assert (await browse("GET", path)).status_code == 404


async def test_a_slash_at_the_end_does_not_count(browse: Browser) -> None:
    browse.control.answers["list_queues"] = lambda _: []
    assert (await browse("GET", "/api/queues/")).json() == []


async def test_the_default_exchange_has_a_name_in_paths(browse: Browser) -> None:
    browse.control.answers |= {"get_exchange": there, "list_bindings": lambda _: []}
    await browse("GET", "/api/exchanges/%2F/amq.default")
    await browse("GET", "/api/exchanges/%2F/amq.default/bindings/source")
    assert browse.control.fields_of("get_exchange")["name"] == ""
    assert browse.control.fields_of("list_bindings") == {"vhost": "/", "source": ""}


async def test_a_client_that_takes_no_json(browse: Browser) -> None:
    for accepted, status in {"text/html": 406, "text/html, */*;q=0.1": 200, "application/json": 200}.items():
        assert (await browse("GET", "/api/whoami", headers={"accept": accepted})).status_code == status


async def test_long_answers_are_compressed_for_who_takes_that(browse: Browser) -> None:
    browse.control.answers["list_queues"] = lambda _: [{"name": "q" * 1000}]
    answer = await browse("GET", "/api/queues", headers={"accept-encoding": "gzip"})
    assert answer.headers["content-encoding"] == "gzip"
    assert int(answer.headers["content-length"]) < 200
    assert answer.json() == [{"name": "q" * 1000}]
    assert "content-encoding" not in (await browse("GET", "/api/queues", headers={"accept-encoding": "x"})).headers


async def test_pages_of_other_sites_are_let_in_when_an_operator_says_so() -> None:
    browse = Browser(origins=("https://ops.example",))
    headers = {"origin": "https://ops.example", "access-control-request-headers": "authorization"}
    answer = await browse("OPTIONS", "/api/queues", user=None, headers=headers)
    assert answer.headers["access-control-allow-origin"] == "https://ops.example"
    assert answer.headers["access-control-allow-headers"] == "authorization"
    assert answer.headers["access-control-allow-methods"] == "HEAD, GET, OPTIONS"
    answer = await browse("GET", "/api/whoami", headers={"origin": "https://evil.example"})
    assert "access-control-allow-origin" not in answer.headers


async def test_the_index_names_every_path(browse: Browser) -> None:
    answer = await browse("GET", "/api/index.html", user=None)
    assert "/api/queues/{vhost}/{queue}" in answer.text
    assert (await browse("GET", "/api", user=None)).headers["location"] == "/api/index.html"
    assert "rabbitmqadmin" in (await browse("GET", "/cli/rabbitmqadmin", user=None)).text


# -- reading -----------------------------------------------------------------------------------------------------------


async def test_what_is_not_there(browse: Browser) -> None:
    browse.control.answers |= {"get_queue": missing, "list_users": lambda _: []}
    for method, path in [("GET", "/api/queues/%2F/q"), ("DELETE", "/api/queues/%2F/q"), ("GET", "/api/users/u")]:
        answer = await browse(method, path)
        assert (answer.status_code, answer.json()) == (404, NOT_FOUND), (method, path)


async def test_columns_of_one_object(browse: Browser) -> None:
    browse.control.answers["get_queue"] = lambda _: {"name": "q", "a": {"b": 1, "c": 2}, "list": [{"x": 1, "y": 2}]}
    answer = await browse("GET", "/api/queues/%2F/q?columns=name,a.b,list.y,nope")
    assert answer.json() == {"name": "q", "a": {"b": 1}, "list": [{"y": 2}]}


async def test_paging_is_the_brokers(browse: Browser) -> None:
    browse.control.answers["list_queues"] = lambda _: {"items": []}
    query = "page=2&page_size=7&name=abc&use_regex=true&sort=message_stats.publish&sort_reverse=true&columns=name,a.b"
    assert (await browse("GET", f"/api/queues/%2F?{query}")).json() == {"items": []}
    assert browse.control.fields_of("list_queues") == {
        "vhost": "/", "page": 2, "page_size": 7, "name": "abc", "use_regex": True, "sort": "message_stats.publish",
        "sort_reverse": True, "columns": ["name", "a.b"],
    }  # fmt: skip


@pytest.mark.parametrize("path", ["bindings", "consumers", "vhosts/mine/connections", "vhosts/mine/channels"])
async def test_lists_that_have_no_pages(browse: Browser, path: str) -> None:
    """These are arrays in RabbitMQ even if pages are requested."""
    command = f"list_{path.rpartition('/')[2]}"
    browse.control.answers[command] = lambda _: [{}]
    assert (await browse("GET", f"/api/{path}?page=2&page_size=7&sort=name")).json() == [{}]
    assert "page" not in browse.control.fields_of(command)


async def test_the_first_of_several_parameters_counts(browse: Browser) -> None:
    browse.control.answers["list_queues"] = lambda _: {"items": []}
    await browse("GET", "/api/queues?page=1&page=2&columns=name&columns=vhost")
    fields = browse.control.fields_of("list_queues")
    assert (fields["page"], fields["columns"]) == (1, ["name"])


async def test_a_name_is_looked_for_in_pages_only(browse: Browser) -> None:
    browse.control.answers["list_queues"] = lambda _: []
    await browse("GET", "/api/queues?name=abc&page_size=3")
    assert browse.control.fields_of("list_queues") == {}


@pytest.mark.parametrize(("query", "error", "reason"), [
    ("page=0", "invalid_pagination_parameters", "page number 0, page size undefined"),
    ("page=-1&page_size=5", "invalid_pagination_parameters", "page number -1, page size 5"),
    ("page=1&page_size=501", "invalid_pagination_parameters", "page number 1, page size 501"),
    ("page=1&page_size=0", "invalid_pagination_parameters", "page number 1, page size 0"),
    ("page=x", "bad_request", "Pagination parameters are invalid"),
    ("page=1&page_size=", "bad_request", "Pagination parameters are invalid"),
])  # fmt: skip
async def test_pages_that_there_can_not_be(browse: Browser, query: str, error: str, reason: str) -> None:
    answer = await browse("GET", f"/api/queues?{query}")
    assert answer.status_code == 400
    assert answer.json()["error"] == error
    assert reason in answer.json()["reason"]
    assert browse.control.asked == []


async def test_a_page_behind_the_end(browse: Browser) -> None:
    def refuse(fields: dict[str, Any]) -> Any:
        raise Refused("page_out_of_range", "Page out of range, page: 2 page size: 100, len: 0")

    browse.control.answers["list_queues"] = refuse
    answer = await browse("GET", "/api/queues?page=2")
    assert answer.status_code == 400
    assert answer.json() == {
        "error": "page_out_of_range", "reason": "Page out of range, page: 2 page size: 100, len: 0"
    }  # fmt: skip


async def test_short_lists_are_sorted_here(browse: Browser) -> None:
    browse.control.answers["list_users"] = lambda _: [
        {"name": "b", "n": {"x": 1}}, {"name": "a", "n": {"x": 2}}, {"name": "c"},
    ]  # fmt: skip

    async def names(query: str) -> str:
        return "".join(each["name"] for each in (await browse("GET", f"/api/users{query}")).json())

    assert await names("") == "abc"
    assert await names("?sort_reverse=true") == "cba"
    assert await names("?sort=n.x") == "cba"
    assert await names("?sort=n.x&sort_reverse=true") == "abc"
    assert await names("?sort=") == "bac"


async def test_the_virtual_host_of_a_header(browse: Browser) -> None:
    browse.control.answers["list_queues"] = lambda _: []
    await browse("GET", "/api/queues", headers={"x-vhost": "v"})
    assert browse.control.fields_of("list_queues") == {"vhost": "v"}


# -- failures ----------------------------------------------------------------------------------------------------------


async def test_a_broker_that_does_not_answer(browse: Browser) -> None:
    def refuse(fields: dict[str, Any]) -> Any:
        raise Refused(INTERNAL, "the broker does not answer")

    browse.control.answers["authenticate"] = refuse
    answer = await browse("GET", "/api/whoami")
    assert (answer.status_code, answer.json()["reason"]) == (500, "the broker does not answer")


async def test_what_the_broker_refuses_is_a_bad_request(browse: Browser) -> None:
    def refuse(fields: dict[str, Any]) -> Any:
        raise Refused(BAD_REQUEST, "no")

    browse.control.answers |= {"get_queue": missing, "declare_queue": refuse}
    answer = await browse("PUT", "/api/queues/%2F/q", json={})
    assert (answer.status_code, answer.json()) == (400, {"error": "bad_request", "reason": "no"})


async def test_a_defect_of_ours_has_no_traceback(browse: Browser) -> None:
    browse.control.answers["get_queue"] = lambda _: 1 // 0
    answer = await browse("GET", "/api/queues/%2F/q")
    assert answer.status_code == 500
    assert answer.json()["error"] == "internal_server_error"
    assert "Traceback" not in answer.text


async def test_shares_of_memory(browse: Browser) -> None:
    memory = {"queue_procs": 1, "other_proc": 70, "strategy": "rss", "total": {"rss": 200, "allocated": 200}}
    browse.control.answers |= {"get_node": there, "memory_breakdown": lambda _: {"memory": memory}}
    assert (await browse("GET", "/api/nodes/n/memory")).json() == {"memory": memory}
    answer = await browse("GET", "/api/nodes/n/memory/relative")
    assert answer.json() == {"memory": {"total": 100, "queue_procs": 1, "other_proc": 35}}


async def test_health_checks_that_fail(browse: Browser) -> None:
    browse.control.answers["health_check"] = lambda fields: {
        "status": "failed" if fields.get("argument") == "1" else "ok"
    }
    assert (await browse("GET", "/api/health/checks/port-listener/1")).status_code == 503
    assert (await browse("GET", "/api/health/checks/port-listener/2")).status_code == 200
    browse.control.answers["aliveness_test"] = lambda _: {"status": "ok"}
    assert (await browse("GET", "/api/aliveness-test/mine", user="plain")).status_code == 200
    assert browse.control.fields_of("aliveness_test") == {"vhost": MINE, "user": "plain"}
    assert (await browse("GET", "/api/health/checks/certificate-expiration/2/weeks")).status_code == 200
    assert browse.control.asked[-1][1] == {"check": "certificate-expiration", "argument": "2", "unit": "weeks"}

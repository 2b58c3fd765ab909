"""Nothing that can be sent makes the service fault: what its document allows, and what nobody does.

Every operation of the OpenAPI document is tried by schemathesis, and its answers are held against
the document; then bodies made to hurt, and bytes that are hardly HTTP.
"""

from __future__ import annotations

import gzip
import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode

from tests import fuzzing
from tests.crashes import Service
from tests.stores import store

__all__ = ["store"]  # a fixture

EXAMPLES = {False: 5, True: 2}  # of each operation; fewer where only the store is another
SPACE = f"/v1/spaces/{fuzzing.SPACE}"
PLACES = {
    "decide": ("POST", f"{SPACE}/decisions"),
    "list": ("POST", f"{SPACE}/lists"),
    "decide many": ("POST", f"{SPACE}/decisions/batch"),
    "reward": ("POST", f"{SPACE}/rewards"),
    "reward many": ("POST", f"{SPACE}/rewards/batch"),
    "create": ("POST", "/v1/spaces"),
    "change": ("PUT", SPACE),
    "retire arms": ("POST", f"{SPACE}/arms/retire"),
    "what if": ("POST", f"{SPACE}/whatif"),
    "rank": ("POST", "/personalizer/v1.0/rank"),
    "reward event": ("POST", "/personalizer/v1.0/events/e1/reward"),
    "rank slots": ("POST", "/personalizer/v1.1-preview.3/multislot/rank"),
    "reward slots": ("POST", "/personalizer/v1.1-preview.3/multislot/events/page/reward"),
}
GOOD: dict[str, Any] = {
    "decide": {"context": [0.5, 1.0], "candidates": ["a", {"id": "b", "features": None}, 3]},
    "list": {
        "context": [0.5], "candidates": ["a", "b", 3],
        "slots": [{"id": "s", "features": [1.0], "exclude": ["a"], "baseline": "b"},
                  {"features": [0.0]}],
    },
    "decide many": {"decisions": [{"context": [0.5, 1.0], "candidates": ["a"]}]},
    "reward": {"decision_id": "d1", "value": 1.0, "reward_id": "r"},
    "reward many": {"rewards": [{"decision_id": "d1", "value": 1.0}]},
    "create": {
        "name": "made", "policy": "linucb-disjoint", "params": {"alpha": 0.5},
        "context": {"fields": [{"name": "f", "kind": "hash", "size": 4}], "rest": 2},
        "rewards": {"wait_seconds": 1, "combine": "sum"}, "explore": 0.5, "seed": 1,
    },
    "change": {"context": {"size": 2, "constant": True}, "holdback": 0.5},
    "retire arms": {"arms": ["a"]},
    "what if": {"context": {"size": 2, "constant": True}, "params": {"alpha": 0.5}},
    "rank": {
        "eventId": "e9", "actions": [{"id": "a", "features": [{"x": 1, "y": {"z": ["t"]}}]}],
        "contextFeatures": [{"device": "phone"}], "excludedActions": [], "deferActivation": False,
    },
    "reward event": {"value": 1.0},
    "rank slots": {
        "actions": [{"id": "a", "features": [{"x": 1}]}, {"id": "b"}],
        "slots": [{"id": "s", "baselineAction": "a", "features": [{"y": "z"}],
                   "excludedActions": ["b"]}],
        "contextFeatures": [{"device": "phone"}], "eventId": "page9", "deferActivation": False,
    },
    "reward slots": {"reward": [{"slotId": "s", "value": 1.0}]},
}  # fmt: skip


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, store: tuple[str, ...]) -> Iterator[Service]:
    with Service(tmp_path_factory.mktemp("fuzz") / "data", *store) as made:
        made.wait()
        fuzzing.prepare(made)
        yield made
        status, told = made.ask("GET", "/healthz")
        told.pop("replica", None)  # where the log is shared
        assert (status, told) == (200, {"status": "ok"})
        assert made.ask("GET", "/readyz")[0] == 200
        fuzzing.prepare(made)  # it still makes spaces, decides and ranks
        made.stop()
        said = "".join(made.said)
        assert "Traceback" not in said, said[said.index("Traceback") - 300 :][:3000]


# -- what the document says -------------------------------------------------------------------


@pytest.mark.parametrize("mode", list(GenerationMode), ids=["fitting", "unfitting"])
@pytest.mark.parametrize("names", ["known", "made"])
def test_every_operation_is_as_the_document_says(
    service: Service, store: tuple[str, ...], names: str, mode: GenerationMode
) -> None:
    tried, examples = 0, EXAMPLES[bool(store)]
    for operation in fuzzing.operations(service):
        known = fuzzing.prepare(service, operation) if names == "known" else {}
        if names == "known" or operation.path_parameters:
            tried += fuzzing.fuzz(service, operation, mode, examples, known) > 0
    assert tried > 10


# -- bodies made to hurt ----------------------------------------------------------------------


def paths(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something stands in a body."""
    yield at
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from paths(inner, (*at, key))
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from paths(inner, (*at, i))


def put(value: Any, at: tuple[Any, ...], new: str) -> str:
    """The body as JSON, with other text at one place."""
    if not at:
        return new
    if isinstance(value, dict):
        items = (
            json.dumps(k) + ":" + (put(v, at[1:], new) if k == at[0] else json.dumps(v))
            for k, v in value.items()
        )
        return "{" + ",".join(items) + "}"
    parts = (put(v, at[1:], new) if i == at[0] else json.dumps(v) for i, v in enumerate(value))
    return "[" + ",".join(parts) + "]"


HURTS = [
    "null", "true", "-0", "-1", "1.5", "1e999", "-1e999", "1e-999", "1" * 400, "-" + "9" * 30,
    str(2**63), str(2**64), "NaN", "Infinity", "-Infinity", "nan", "01", "0x10", "", ",",
    '""', '"' + "x" * 300 + '"', '"' + "x" * 200_000 + '"', r'"\ud800"', r'"\udc00\ud800"',
    r'"\u0000"', '"\x01"', '"\u202e<script>"', "\"'; DROP TABLE log; --\"", '"\\', "[]", "{}",
    "[[]]", "[{}]", "[null]", '{"": null}', '{"a": 1, "a": 2}', '{"__proto__": {"x": 1}}',
    "[" * 100 + "]" * 100, "[" * 100_000 + "]" * 100_000, '{"a":' * 50_000 + "1" + "}" * 50_000,
    "[" + "0," * 20_000 + "0]", "[" + '"a",' * 20_000 + '"b"]', "\ufeff1", "1 1", "/* */ 1",
]  # fmt: skip


def checked(service: Service, what: str, raw: bytes, **headers: str) -> int:
    """Send it; the answer is of the one shape, and no fault."""
    status, told = service.ask(*PLACES[what], raw, **headers)
    assert status < 500, (what, raw[:300], told)
    if status >= 400:
        assert set(told) == {"error"}
        assert set(told["error"]) == {"code", "message", "path"}
        assert len(told["error"]["message"]) < 2000
        if told["error"]["code"] == "invalid":
            assert told["error"]["path"], (what, raw[:300], told)
    return status


@pytest.mark.parametrize("what", PLACES)
def test_each_field_replaced_by_what_hurts(
    service: Service, store: tuple[str, ...], what: str
) -> None:
    good = GOOD[what]
    for i, at in enumerate(paths(good)):
        # where only the store is another, each is tried at some places
        for hurt in HURTS[i % 4 :: 4] if store else HURTS:
            checked(service, what, put(good, at, hurt).encode("utf-8", "surrogatepass"))


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)


@pytest.mark.parametrize("what", PLACES)
def test_bodies_of_any_make(service: Service, what: str) -> None:
    places = list(paths(GOOD[what]))

    @seed(6)
    @settings(
        max_examples=40, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(st.data())
    def one(data: st.DataObject) -> None:
        kind = data.draw(st.sampled_from(("bytes", "whole", "field", "cut")))
        if kind == "bytes":
            raw = data.draw(st.binary(max_size=200))
        elif kind == "whole":
            raw = json.dumps(data.draw(anything)).encode()
        else:
            at, new = data.draw(st.sampled_from(places)), json.dumps(data.draw(anything))
            raw = put(GOOD[what], at, new).encode()
            if kind == "cut":
                raw = raw[: data.draw(st.integers(0, len(raw)))]
        checked(service, what, raw)

    one()


@pytest.mark.parametrize("what", ["decide", "reward", "create", "rank"])
def test_other_encodings_are_not_json(service: Service, what: str) -> None:
    text = json.dumps(GOOD[what])
    for raw in (
        gzip.compress(text.encode()), text.encode("utf-16"), text.encode("utf-32"),
        b"\xef\xbb\xbf" + text.encode(), b"\x00" + text.encode(), text.encode() + b"\x00",
        text.encode() + b"{}", b"\x1f\x8b" + b"\xff" * 100,
    ):  # fmt: skip
        assert checked(service, what, raw, content_encoding="gzip") in (400, 422)


def test_a_wrong_field_is_named(service: Service) -> None:
    for what, at, new, path in (
        ("decide", ("context", 1), '"x"', "$.context[1]"),
        ("decide", ("candidates", 1, "id"), "[]", "$.candidates[1].id"),
        ("decide many", ("decisions", 0, "candidates"), "[]", "$.decisions[0].candidates"),
        ("reward", ("value",), "1e300", "$.value"),
        ("reward many", ("rewards", 0, "value"), "null", "$.rewards[0].value"),
        ("create", ("params", "alpha"), "-1", "$.params.alpha"),
        ("create", ("params",), '{"nothing": 1}', "$.params"),
        ("create", ("policy",), '"best"', "$.policy"),
        ("create", ("context", "fields", 0, "size"), "1025", "$.context.fields[0].size"),
        ("create", ("context", "rest"), "1023", "$.context"),
        ("change", ("holdback",), "1.5", "$.holdback"),
        ("rank", ("eventId",), '"e1"', "$.eventId"),
        ("rank", ("actions", 0, "features", 0, "x"), str(10**30), "$.actions[0].features.x"),
        ("rank", ("contextFeatures", 0, "device"), "1e300", "$.contextFeatures.device"),
        ("rank", ("actions", 0, "id"), "7", "$.actions[0].id"),
    ):
        good = {k: v for k, v in GOOD[what].items() if k != "eventId" or at == ("eventId",)}
        status, told = service.ask(*PLACES[what], put(good, at, new).encode())
        assert status == (409 if path == "$.eventId" else 422)
        assert told["error"]["path"] == path, told


def test_a_space_of_no_size_that_could_be_held_is_refused(service: Service) -> None:
    wide = {"fields": [{"name": f"f{i}", "kind": "hash", "size": 1024} for i in range(500)]}
    for config, path in (
        ({"context": wide}, "$.context"),
        ({"context": {"size": 0}, "params": {"n_features": 10**9}}, "$.params.n_features"),
        ({"policy": "pslinucb-hybrid", "context": {"size": 1000}, "items": {"size": 1000}},
         "$.items"),
        ({"policy": "pslinucb-hybrid", "params": {"n_cross_features": 10**9}},
         "$.params.n_cross_features"),
    ):  # fmt: skip
        status, told = service.ask("POST", "/v1/spaces", {"name": "wide", **config})
        assert (status, told["error"]["path"]) == (422, path), told


# -- hardly HTTP ------------------------------------------------------------------------------


def sent(service: Service, raw: bytes) -> bytes:
    """What comes back for some bytes; nothing if the service hangs up."""
    with socket.create_connection(("127.0.0.1", service.port), timeout=10) as link:
        try:
            link.sendall(raw)
            link.shutdown(socket.SHUT_WR)
            found = b""
            while more := link.recv(65_536):
                found += more
        except OSError:
            return b""
    return found


def request(body: bytes = b"", *headers: bytes, line: bytes | None = None) -> bytes:
    path = f"POST {SPACE}/decisions HTTP/1.1".encode() if line is None else line
    return b"\r\n".join([path, b"host: localhost", *headers, b"", body])


BODY = json.dumps(GOOD["decide"]).encode()
SIZE = b"content-length: %d" % len(BODY)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\r\n" * 1000,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 100,  # TLS
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        request(line=b"GET /" + b"a" * 100_000 + b" HTTP/1.1"),
        request(line=b"GET /v1/spaces/%ff%fe%00 HTTP/1.1"),
        request(line=b"GET /v1/spaces/%ED%A0%80/arms HTTP/1.1"),
        request(line=b"GET /v1/spaces/../../etc/passwd HTTP/1.1"),
        request(line=b"GET /static/../../keys.json HTTP/1.1"),
        request(line=b"GET /static/%2e%2e/%2e%2e/routes.py HTTP/1.1"),
        request(line=b"GET /static/%00 HTTP/1.1"),
        request(line=b"GET /static/" + b"a" * 300 + b" HTTP/1.1"),
        request(line=b"GET /v1/spaces/x/changes?" + b"a=1&" * 200 + b" HTTP/1.1"),
        request(line=b"GET /v1/spaces/x/changes?since=%F0%9F%92%A5 HTTP/1.1"),
        request(line=b"GET /login?next=//evil.example HTTP/1.1"),
        request(line=b"\xff\xfe /\xff HTTP/1.1"),
        request(line=b"OPTIONS * HTTP/1.1"),
        request(line=b"CONNECT localhost:1 HTTP/1.1"),
        request(line=b"HEAD /v1/spaces HTTP/1.1"),
        request(BODY),
        request(BODY, b"content-length: -1"),
        request(BODY, b"content-length: 1e3"),
        request(BODY, b"content-length: " + b"9" * 30),
        request(BODY, b"content-length: 5"),
        request(BODY, b"content-length: %d" % (len(BODY) + 100)),
        request(BODY, SIZE, b"content-length: 3"),
        request(BODY, SIZE, b"transfer-encoding: chunked"),
        request(b"zz\r\nabc\r\n0\r\n\r\n", b"transfer-encoding: chunked"),
        request(b"-5\r\nabc\r\n0\r\n\r\n", b"transfer-encoding: chunked"),
        request(b"5\r\nab", b"transfer-encoding: chunked"),
        request(BODY, SIZE, b"content-encoding: gzip"),
        request(BODY, SIZE, b"content-type: text/html; charset=\xff"),
        request(BODY, SIZE, b"x: " + b"y" * 70_000),
        request(BODY, SIZE, *[b"x%d: y" % i for i in range(5000)]),
        request(BODY, SIZE, b"no colon here"),
        request(BODY, SIZE, b" folded: x"),
        request(BODY, SIZE, b"x: a\x00b"),
        request(BODY, SIZE, b"origin: http://[::1"),
        request(BODY, SIZE, b"origin: \xff\xfe"),
        request(BODY, SIZE, b"host: [::1"),
        request(BODY, SIZE, b"host: \xe9vil"),
        request(BODY, SIZE, b"authorization: Bearer \xff\xff"),
        request(BODY, SIZE, b"cookie: whim_key=\xff; \x7f=;;=;"),
        request(BODY, SIZE, b"expect: 100-continue"),
        request(BODY, SIZE, b"expect: the unexpected"),
        request(BODY, SIZE, b"upgrade: websocket", b"connection: upgrade"),
        request(line=b"GET /v1/spaces/x HTTP/1.1\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
                b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13"),
        request(BODY, SIZE) * 50,
    ],
    ids=range(50),
)  # fmt: skip
def test_bytes_that_are_hardly_http(service: Service, raw: bytes) -> None:
    found = sent(service, raw)
    assert not found or found.startswith(b"HTTP/1."), found[:200]
    assert b"HTTP/1.1 5" not in found, found[:500]
    assert b"root:" not in found
    assert service.ask("GET", "/healthz")[0] == 200


def test_headers_of_any_make(service: Service) -> None:
    names = ("host", "origin", "cookie", "authorization", "x-api-key", "last-event-id",
             "content-length", "transfer-encoding", "hx-request", "accept")  # fmt: skip
    lines = (
        f"POST {SPACE}/decisions",
        "GET /v1/spaces",
        "GET /",
        "POST /login",
        "GET /page/spaces",
    )

    @seed(6)
    @settings(
        max_examples=150, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(
        st.sampled_from(lines),
        st.lists(st.tuples(st.sampled_from(names), st.binary(max_size=30)), max_size=4),
    )
    def one(line: str, headers: list[tuple[str, bytes]]) -> None:
        given = [name.encode() + b": " + value for name, value in headers]
        found = sent(service, request(BODY, *given, line=f"{line} HTTP/1.1".encode()))
        assert not found or found.startswith(b"HTTP/1.")
        assert b"HTTP/1.1 5" not in found, found[:500]

    one()

"""schemathesis on the OpenAPI document, through ASGI: what is documented is true, and nothing that it tries breaks the API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.stateful import run_state_machine_as_test
from schemathesis import GenerationMode
from schemathesis.config import SchemathesisConfig
from schemathesis.specs.openapi.checks import ensure_resource_availability, positive_data_acceptance, use_after_free

from side_agents.forum.server import openapi
from side_agents.forum.server.app import LocalApp
from side_agents.forum.server.routes import OPERATIONS
from side_agents.forum.server.settings import ServerSettings
from tests.support.forum import ForumFactory, register
from tests.support.forum_http import opened_web, scene

_LONGEST = 300


def without_long_texts(value: Any) -> Any:
    """The same document without bounds beyond what is quickly generated; large sizes have tests of their own."""
    if isinstance(value, list):
        return [without_long_texts(each) for each in value]
    if not isinstance(value, dict):
        return value
    kept = {
        key: each for key, each in value.items() if key != "maxLength" or not isinstance(each, int) or each <= _LONGEST
    }
    return {key: without_long_texts(each) for key, each in kept.items()}


HOSTS = frozenset({"localhost", "testserver", "127.0.0.1"})


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """schemathesis on the document, against a forum that has one of everything."""
    factory = ForumFactory(tmp_path_factory.mktemp("schemathesis"))
    forum = factory()
    ann = register(forum, "ann")
    with opened_web(forum) as web:
        _, values = scene(web, forum, ann)
    app = LocalApp(forum, ServerSettings(hosts=HOSTS))

    async def with_document(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
        elif scope["path"] == "/openapi.json":
            document = json.dumps(without_long_texts(openapi.document())).encode()
            head = [(b"content-type", b"application/json"), (b"content-length", str(len(document)).encode())]
            await send({"type": "http.response.start", "status": 200, "headers": head})
            await send({"type": "http.response.body", "body": document})
        else:
            await app(scope, receive, send)

    config = SchemathesisConfig.from_dict({"seed": 20260303, "generation": {"mode": "all"}})
    schema = schemathesis.openapi.from_asgi("/openapi.json", with_document, config=config)
    schema.as_ann = {"Authorization": f"Bearer {ann.credential}"}
    schema.known = values
    schema.hook("map_query")(without_waiting)
    yield schema
    app.close()
    factory.close_all()


def without_waiting(context: Any, query: Any) -> Any:
    """A wait that is allowed is made a short one; what is not allowed stays as it is."""
    if isinstance(query, dict) and type(query.get("wait")) is int and 0 <= query["wait"] <= 60:
        return {**query, "wait": 0}
    return query


# What a document cannot say: rules between fields, and values that only the forum itself can have issued.
BEYOND_SCHEMAS = {"invalid_cursor", "cursor_scope_mismatch", "future_sequence", "reply_target_mismatch", "empty_query"}


@schemathesis.check
def documented_values_are_accepted(context: Any, response: Any, case: Any) -> None:
    """``positive_data_acceptance`` for a service whose refusals say why."""
    if case.meta.generation.mode is not GenerationMode.POSITIVE or response.status_code != 422:
        return
    error = response.json()
    between_fields = error["field"] in ("query.cursor", "body.inherit")
    # To JSON Schema 16.0 is an integer; here it is a number.
    spelling = error["message"].startswith("body.limit: Input should be a valid integer")
    assert error["code"] in BEYOND_SCHEMAS or between_fields or spelling, error


def takes_input(name: str) -> bool:
    operation = next(each for each in OPERATIONS if each.name == name)
    return bool(operation.query or operation.body or operation.is_keyed or "{" in operation.path)


CASES = [
    (each.name, mode)
    for each in OPERATIONS
    for mode in GenerationMode
    # A stream never ends by itself, and nothing can be wrong where nothing is given.
    if each.answer != "stream" and (mode is GenerationMode.POSITIVE or takes_input(each.name))
]


@pytest.mark.parametrize(("name", "mode"), CASES, ids=lambda value: getattr(value, "value", value))
def test_schemathesis_finds_nothing(api: Any, name: str, mode: GenerationMode) -> None:
    """What the document allows is accepted or refused as documented, what it forbids is refused, and nothing breaks."""
    operation = api.find_operation_by_id(name)
    existing = {key: value for key, value in api.known.items() if f"{{{key}}}" in operation.path}
    elsewhere = bool(next(each for each in OPERATIONS if each.name == name).query or operation.body)
    for path in [{}, existing] if existing and (mode is GenerationMode.POSITIVE or elsewhere) else [{}]:
        run_schemathesis(operation.as_strategy(generation_mode=mode, path_parameters=path), api.as_ann)


def run_schemathesis(strategy: Any, headers: dict[str, str]) -> None:
    @given(case=strategy)
    @settings(
        max_examples=15,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def holds(case: Any) -> None:
        case.call_and_validate(headers=headers, excluded_checks=[positive_data_acceptance])

    holds()


def test_schemathesis_finds_nothing_along_the_links(api: Any) -> None:
    """Register, make a subforum, begin a thread in it, reply, read: each with what the one before answered."""

    class Journey(api.as_state_machine()):  # type: ignore[misc]
        def get_call_kwargs(self, case: Any) -> dict[str, Any]:
            return {"headers": api.as_ann}

        def validate_response(self, response: Any, case: Any, **options: Any) -> None:
            excluded = [positive_data_acceptance, use_after_free, ensure_resource_availability]
            case.validate_response(response, excluded_checks=excluded)

    run_state_machine_as_test(
        Journey,
        settings=settings(
            max_examples=15,
            stateful_step_count=8,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )

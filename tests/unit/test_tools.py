"""The tools: input checked strictly, answers in the shapes of reference/side-agents 3, errors as answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from side_agents import schemas
from side_agents.core import views
from side_agents.core.context import Context, open_context
from side_agents.core.registry import Registry
from side_agents.core.results import Checked, Sent, Started, StartRequest, Waited
from side_agents.errors import BusyError, NotInTmuxError, RefusedError
from side_agents.models import AgentStatus, DeliveryState, EndedBy, TurnOutcome, WaitingFor
from side_agents.tools import calls
from side_agents.tools.table import TOOLS
from tests.support.repositories import Repository
from tests.unit.cli_support import CommandLine, record, tombstone

Call = Callable[..., tuple[dict[str, Any], int]]


@pytest.fixture
def context(repo: Repository) -> Context:
    return open_context(repo.path, {})


@pytest.fixture
def call(context: Context) -> Call:
    def run(name: str, **values: Any) -> tuple[dict[str, Any], int]:
        return calls.call(name, json.dumps(values), lambda: context)

    return run


def replace_use_case(monkeypatch: pytest.MonkeyPatch, target: str, answer: Any) -> list[tuple[Any, ...]]:
    seen: list[tuple[Any, ...]] = []

    def use_case(context: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append((*args, kwargs))
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(f"side_agents.core.{target}", use_case)
    return seen


def test_u19_a_start_has_every_field_of_the_contract(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = record(parent_agent_id="boss", depth=2, warnings=("one",))
    replace_use_case(monkeypatch, "start.start", Started(agent, ""))

    answer, status = call("agent-start", description="Fix", branchHint="fix")

    assert status == 0
    assert answer == {
        "ok": True,
        "id": "fix-login",
        "parentAgentId": "boss",
        "depth": 2,
        "task": "Fix the login test",
        "tmuxWindowId": "@7",
        "tmuxWindowIndex": 3,
        "worktreePath": "/repos/app-agent-worktree-0001",
        "branch": "side-agent/fix-login",
        "warnings": ["one"],
        "client": "script",
    }


@pytest.mark.parametrize(
    ("task", "shown"),
    [("short", "short"), ("x" * 300, "x" * 200 + "…"), ("y" * 200, "y" * 200), ("a\nb", "a\nb")],
    ids=["u20", "u21", "u22", "lines"],
)
def test_u20_u21_u22_the_task_is_cut_after_200_characters(task: str, shown: str) -> None:
    assert views.started_view(Started(record(task=task), ""))["task"] == shown


def test_a_start_passes_everything_on(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = replace_use_case(monkeypatch, "start.start", Started(record(), ""))

    call(
        "agent-start", description="do it", branchHint="hint", model="m", client="script", base="main",
        withChanges=True, parentSession="/s.jsonl",
    )  # fmt: skip

    assert seen[0][0] == StartRequest(
        task="do it", branch_hint="hint", client="script", model="m", base="main", with_changes=True, session="/s.jsonl"
    )


def test_u23_a_start_that_fails_is_an_answer(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_use_case(monkeypatch, "start.start", NotInTmuxError("Not in tmux.", hint="Start tmux."))

    answer, status = call("agent-start", description="Fix", branchHint="")

    assert answer == {"ok": False, "error": "Not in tmux.", "code": "not-in-tmux", "hint": "Start tmux."}
    assert status == 8


def test_u24_a_check_has_every_field_of_the_contract(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = record(
        status=AgentStatus.WAITING_USER,
        waiting_for=WaitingFor.PROMPT,
        task="many\n  lines " + "x" * 300,
        turn=2,
        last_turn_outcome=TurnOutcome.COMPLETED,
        last_turn_text="done",
    )
    seen = replace_use_case(monkeypatch, "observe.check", Checked(agent, None, ("a", "b")))

    answer, status = call("agent-check", id=" fix-login and more ")

    assert (status, seen[0][0]) == (0, "fix-login")
    assert answer["backlog"] == ["a", "b"]
    view = answer["agent"]
    assert (view["id"], view["status"], view["depth"], view["warnings"]) == ("fix-login", "waiting_user", 1, [])
    assert (view["waitingFor"], view["turn"], view["lastTurnOutcome"]) == ("prompt", 2, "completed")
    assert len(view["task"]) == 220
    assert "\n" not in view["task"]
    absent = {"parentAgentId", "finishedAt", "exitCode", "error"}
    assert not absent & set(view)


def test_x18_a_check_of_one_that_finished_is_done(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_use_case(monkeypatch, "observe.check", Checked(None, tombstone("old", exit_code=0)))

    answer, status = call("agent-check", id="old")

    assert status == 0
    assert answer["ok"] is True
    assert (answer["agent"]["id"], answer["agent"]["status"], answer["agent"]["exitCode"]) == ("old", "done", 0)
    assert answer["backlog"] == []


def test_one_that_was_stopped_is_done_and_says_what_it_was(call: Call) -> None:
    view = views.agent_view(tombstone(status=AgentStatus.FAILED, ended_by=EndedBy.CLEARED))

    assert (view["status"], view["finalStatus"], view["endedBy"]) == ("done", "failed", "cleared")


def test_u25_a_message_that_was_taken(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_use_case(monkeypatch, "send.send", Sent("a", DeliveryState.SUBMITTED, "seen"))

    answer, status = call("agent-send", id="a", prompt="go")

    assert (answer["ok"], answer["delivery"], status) == (True, "submitted", 0)
    assert isinstance(answer["message"], str)


def test_u26_a_send_that_fails_has_the_same_shape(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_use_case(monkeypatch, "send.send", RefusedError("A shell is there."))

    answer, status = call("agent-send", id="a", prompt="go")

    assert status == 8
    assert answer["ok"] is False
    assert answer["message"] == answer["error"] == "A shell is there."
    assert answer["code"] == "refused"


@pytest.mark.parametrize("arguments", [{"id": "a"}, {"id": "", "prompt": "x"}, {"id": "a", "prompt": " "}, {}], ids=str)
def test_u26_a_send_with_bad_input_has_a_message_too(call: Call, arguments: dict[str, Any]) -> None:
    answer, status = call("agent-send", **arguments)

    assert (answer["ok"], answer["code"], status) == (False, "usage", 2)
    assert isinstance(answer["message"], str)


@pytest.mark.parametrize("state", [DeliveryState.TYPED_NOT_SUBMITTED, DeliveryState.UNKNOWN])
def test_a_message_without_proof_is_not_ok(call: Call, monkeypatch: pytest.MonkeyPatch, state: DeliveryState) -> None:
    replace_use_case(monkeypatch, "send.send", Sent("a", state, ""))

    answer, status = call("agent-send", id="a", prompt="go")

    assert (answer["ok"], answer["delivery"], answer["code"], status) == (False, state, "not-delivered", 9)


@pytest.mark.parametrize("ids", [[], [" "]])
def test_u27_a_wait_for_nobody_is_an_error(call: Call, ids: list[str]) -> None:
    answer, status = call("agent-wait-any", ids=ids)

    assert (answer["ok"], answer["code"], status) == (False, "usage", 2)
    assert "No agent ids" in answer["error"]


def test_u28_a_wait_in_an_empty_registry_names_the_unknown(call: Call) -> None:
    answer, status = call("agent-wait-any", ids=["nobody"])

    assert (answer["code"], status) == ("unknown-agent", 3)
    assert "nobody" in answer["error"]


def test_u29_a_wait_for_one_known_and_one_unknown_names_the_unknown(call: Call, context: Context) -> None:
    with Registry(context.paths).transaction("test") as state:
        state.put(record("busy", AgentStatus.FAILED))

    answer, _ = call("agent-wait-any", ids=["busy", "nobody"])

    assert answer["ok"] is False
    assert "nobody" in answer["error"]


@pytest.mark.parametrize("status", [AgentStatus.WAITING_USER, AgentStatus.FAILED], ids=["u30", "u31"])
def test_u30_u31_a_wait_for_one_that_has_stopped_returns_it_with_a_cursor(
    call: Call, monkeypatch: pytest.MonkeyPatch, status: AgentStatus
) -> None:
    seen = replace_use_case(monkeypatch, "wait.wait_any", Waited(Checked(record(status=status), None), "because", 12))

    answer, _ = call("agent-wait-any", ids=["fix-login", "fix-login"], after=3, states=["failed"], timeoutSeconds=1)

    assert answer["ok"] is True
    assert (answer["agent"]["id"], answer["agent"]["status"]) == ("fix-login", status)
    assert (answer["reason"], answer["cursor"]) == ("because", 12)
    states = frozenset((AgentStatus.FAILED,))
    assert seen == [(("fix-login",), {"after": 3, "states": states, "timeout": 1.0, "cancellation": None})]


def test_u31_a_failed_agent_is_found_by_the_real_wait(call: Call, context: Context) -> None:
    with Registry(context.paths).transaction("test") as state:
        state.put(record("broken", AgentStatus.FAILED, stop_seq=state.next_sequence()))

    answer, status = call("agent-wait-any", ids=["broken"], timeoutSeconds=20)

    assert (status, answer["agent"]["status"], answer["cursor"]) == (0, "failed", 1)


BAD_INPUTS = [
    ("agent-start", {"description": "x"}),
    ("agent-start", {"description": "", "branchHint": ""}),
    ("agent-start", {"description": 3, "branchHint": ""}),
    ("agent-start", {"description": "x", "branchHint": "", "branch_hint": ""}),
    ("agent-start", {"description": "x", "branchHint": "", "withChanges": "yes"}),
    ("agent-check", {}),
    ("agent-check", {"id": None}),
    ("agent-check", {"id": "a", "unknown": 1}),
    ("agent-check", {"id": "a", "lines": -1}),
    ("agent-check", {"id": "a", "lines": "3"}),
    ("agent-wait-any", {"ids": "a"}),
    ("agent-wait-any", {"ids": ["a", 3]}),
    ("agent-wait-any", {"ids": ["a"], "states": ["sleeping"]}),
    ("agent-wait-any", {"ids": ["a"], "timeoutSeconds": -1}),
    ("agent-send", {"id": "a", "prompt": ["x"]}),
]


@pytest.mark.parametrize(("name", "values"), BAD_INPUTS, ids=str)
def test_input_that_does_not_fit_is_refused_before_anything_happens(
    call: Call, repo: Repository, name: str, values: dict[str, Any]
) -> None:
    answer, status = call(name, **values)

    assert (answer["ok"], answer["code"], status) == (False, "usage", 2)
    assert answer["error"]
    assert not (repo.path / ".pi").exists()


@pytest.mark.parametrize(
    "request_bytes",
    [b"", b"{", b"[]", b"null", b'"x"', b"\xff\xfe{}", b'{"id": NaN}', b'{"id": "a"} {"id": "b"}', b"[" * 100_000],
    ids=lambda value: repr(value[:12]),
)
def test_what_is_no_json_object_is_a_usage_error(context: Context, request_bytes: bytes) -> None:
    answer, status = calls.call("agent-check", request_bytes, lambda: context)

    assert (answer["ok"], answer["code"], status) == (False, "usage", 2)


def test_an_unknown_tool_is_answered_with_the_nearest(call: Call) -> None:
    answer, status = call("agent-chek")

    assert (answer["code"], answer["hint"], status) == ("not-found", "Did you mean agent-check?", 3)


def test_the_start_tool_teaches_the_whole_life_cycle() -> None:
    text = TOOLS["agent-start"].description

    for word in ("yields", "agent-wait-any", "agent-check", "agent-send", "review", "finish", "/quit", "failed"):
        assert word in text


ANSWERS: list[tuple[str, dict[str, Any]]] = [
    ("agent-start", views.started_view(Started(record(parent_agent_id="x"), ""))),
    ("agent-start", views.failure_view(BusyError("held", hint="wait"))),
    ("agent-check", views.checked_view(Checked(record(error="e", exit_code=1, finished_at="x"), None, ("a",)))),
    ("agent-check", views.checked_view(Checked(None, tombstone(branch_head="abc")))),
    ("agent-wait-any", views.waited_view(Waited(Checked(record(), None), "r", 1))),
    ("agent-wait-any", views.failure_view(BusyError("held"))),
    ("agent-send", views.sent_view(Sent("a", DeliveryState.QUEUED, ""))),
    ("agent-send", views.sent_view(Sent("a", DeliveryState.UNKNOWN, ""))),
    ("agent-send", views.send_failure_view(BusyError("held", hint="wait"))),
]


@pytest.mark.parametrize(("name", "answer"), ANSWERS, ids=[name for name, _ in ANSWERS])
def test_every_answer_fits_the_output_schema(name: str, answer: dict[str, Any]) -> None:
    schemas.validate(TOOLS[name].output, answer, what="the answer")


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, repo: Repository) -> CommandLine:
    monkeypatch.chdir(repo.path)
    return CommandLine(capsys, monkeypatch)


def test_the_command_takes_json_and_gives_json_with_the_exit_status_of_the_error(cli: CommandLine) -> None:
    ran = cli("tool", "agent-check", feed=b'{"id": "nobody"}')

    assert (ran.status, ran.err) == (3, "")
    assert json.loads(ran.out)["code"] == "unknown-agent"


def test_the_command_is_zero_only_when_the_answer_is_ok(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_use_case(monkeypatch, "observe.check", Checked(record(), None))

    ran = cli("tool", "agent-check", feed=b'{"id": "fix-login"}')

    assert ran.status == 0
    assert json.loads(ran.out)["ok"] is True


@pytest.mark.parametrize("feed", [b"", b"not json"])
def test_the_command_answers_bad_json_with_json(cli: CommandLine, feed: bytes) -> None:
    ran = cli("tool", "agent-send", feed=feed)

    assert (ran.status, ran.err) == (2, "")
    assert json.loads(ran.out)["code"] == "usage"


def test_the_command_answers_a_fault_of_ours_with_json(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_use_case(monkeypatch, "observe.check", ZeroDivisionError("oops"))

    ran = cli("tool", "agent-check", feed=b'{"id": "a"}')

    assert (ran.status, ran.err) == (70, "")
    assert json.loads(ran.out)["code"] == "internal"


def test_outside_a_repository_the_command_still_speaks_json(
    cli: CommandLine, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    ran = cli("tool", "agent-check", feed=b'{"id": "a"}')

    assert json.loads(ran.out)["code"] == "not-a-repository"


def test_the_command_lists_tools_and_prints_schemas(cli: CommandLine) -> None:
    tools = json.loads(cli("tool", "--list").out)["tools"]
    schema = json.loads(cli("tool", "agent-start", "--schema").out)

    assert [tool["name"] for tool in tools] == list(TOOLS)
    assert schema["input"]["required"] == ["description", "branchHint"]


def test_the_command_without_a_name_says_what_to_do(cli: CommandLine) -> None:
    ran = cli("tool")

    assert ran.status == 2
    assert "tool --list" in json.loads(ran.out)["hint"]

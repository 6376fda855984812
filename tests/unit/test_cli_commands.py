"""The commands over a fake core: what they pass down, what they print, how they exit."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from side_agents.cli.queue import write_ran
from side_agents.core.queue import Entry
from side_agents.core.queue_runner import Ran
from side_agents.core.registry import Registry
from side_agents.core.results import Checked, Listed, Sent, Started, StartRequest, Stopped, Waited
from side_agents.errors import BusyError, RefusedError, WaitTimeoutError
from side_agents.models import AgentStatus, DeliveryState, EndedBy, WaitingFor
from side_agents.paths import StatePaths
from tests.support.repositories import Repository
from tests.unit.cli_support import CommandLine, record, tombstone

Fake = Callable[[str, Any], list[tuple[tuple[Any, ...], dict[str, Any]]]]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, repo: Repository) -> CommandLine:
    monkeypatch.chdir(repo.path)
    return CommandLine(capsys, monkeypatch)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    """Replace a use case by an answer or an error; gives the list of its calls."""

    def install(target: str, answer: Any) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
        calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

        def use_case(context: Any, *args: Any, **kwargs: Any) -> Any:
            calls.append((args, kwargs))
            if isinstance(answer, BaseException):
                raise answer
            return answer(*args) if callable(answer) else answer

        monkeypatch.setattr(f"side_agents.core.{target}", use_case)
        return calls

    return install


def request_of(calls: list[tuple[tuple[Any, ...], dict[str, Any]]]) -> StartRequest:
    request = calls[0][0][0]
    assert isinstance(request, StartRequest)
    return request


def test_start_joins_words_and_passes_every_option_on(cli: CommandLine, fake: Fake) -> None:
    calls = fake("start.start", Started(record(), "prompt"))

    ran = cli(
        "start", "fix", "the", "test", "--name", "fix", "--client", "script", "--model", "m", "--base", "main",
        "--with-changes",
    )  # fmt: skip

    assert ran.status == 0
    assert request_of(calls) == StartRequest(
        task="fix the test", branch_hint="fix", client="script", model="m", base="main", with_changes=True
    )


def test_a_queued_start_that_begins_at_once_prints_its_warnings(capsys: pytest.CaptureFixture[str]) -> None:
    entry = Entry(
        number=1,
        state="waiting",
        token="t",
        request=StartRequest(task="x"),
        cwd="/",
        environment={},
        queued_at="2026-03-03T02:58:00.000Z",
    )
    write_ran(Ran(entry, Started(record(warnings=("careful \x1b[31mred",)), "prompt")))
    written = capsys.readouterr()
    assert "warning: careful " in written.err
    assert "\x1b[31m" not in written.err
    assert "started fix-login" in written.out


def test_start_prints_where_the_agent_is_and_three_commands_to_type_next(cli: CommandLine, fake: Fake) -> None:
    fake("start.start", Started(record(warnings=("careful \x1b[31mred",)), "prompt"))

    ran = cli("start", "x")

    for text in ("fix-login", "side-agent/fix-login", "/repos/app-agent-worktree-0001", "3 (@7)"):
        assert text in ran.out
    for verb in ("wait", "attach", "diff"):
        assert f"side-agents {verb} fix-login" in ran.out
    assert ran.err == "warning: careful red\n"


def test_start_takes_a_task_that_begins_with_a_dash_after_two_dashes(cli: CommandLine, fake: Fake) -> None:
    calls = fake("start.start", Started(record(), ""))

    cli("start", "--", "--help me", "-x")

    assert request_of(calls).task == "--help me -x"


@pytest.mark.parametrize("arguments", [["-"], ["--file", "-"]])
def test_start_reads_standard_input_byte_for_byte(cli: CommandLine, fake: Fake, arguments: list[str]) -> None:
    calls = fake("start.start", Started(record(), ""))
    task = b"- line\r\n\tnot utf-8: \xff\n" + b"x" * 1_000_000 + b"\n\n"

    assert cli("start", *arguments, feed=task).status == 0
    assert request_of(calls).task.encode("utf-8", "surrogateescape") == task


def test_start_reads_a_file(cli: CommandLine, fake: Fake, repo: Repository) -> None:
    calls = fake("start.start", Started(record(), ""))
    repo.write("task.md", "do\nthis\n")

    cli("start", "--file", "task.md")

    assert request_of(calls).task == "do\nthis\n"


@pytest.mark.parametrize(
    "arguments", [[], [" "], ["x", "--file", "y"], ["--file", "missing"], ["--file", "-"]], ids=str
)
def test_start_without_one_task_starts_nothing(cli: CommandLine, fake: Fake, arguments: list[str]) -> None:
    calls = fake("start.start", Started(record(), ""))

    ran = cli("start", *arguments, feed=b" \n")

    assert ran.status == 2
    assert ran.err.startswith("error: ")
    assert calls == []


def test_start_names_the_conversation_that_the_launcher_exported(
    cli: CommandLine, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = fake("start.start", Started(record(), ""))
    monkeypatch.setenv("PI_SESSION_FILE", "/sessions/a.jsonl")

    cli("start", "x")

    assert request_of(calls).session == "/sessions/a.jsonl"


def test_u19_start_with_json_is_the_answer_of_the_tool(cli: CommandLine, fake: Fake) -> None:
    fake("start.start", Started(record(task="t" * 300), ""))

    answer = json.loads(cli("start", "x", "--json").out)

    assert answer["ok"] is True
    assert answer["task"] == "t" * 200 + "…"
    assert (answer["tmuxWindowId"], answer["tmuxWindowIndex"], answer["warnings"]) == ("@7", 3, [])


def test_check_shows_one_agent_and_its_last_lines_harmless(cli: CommandLine, fake: Fake) -> None:
    agent = record(
        status=AgentStatus.WAITING_USER,
        waiting_for=WaitingFor.QUESTION,
        waiting_text="which \x1b[2Jone?",
        task="multi\nline \x1b]0;title\x07task",
    )
    fake("observe.check", Checked(agent, None, ("last \x1b[31mline\x1b[0m", "\x9b2Jnext")))

    ran = cli("check", "side-agent/fix-login")

    assert ran.status == 0
    assert "\x1b" not in ran.out
    assert "\x9b" not in ran.out
    for text in ("asks a question", "which one?", "multi line task", "last line", "next"):
        assert text in ran.out


@pytest.mark.parametrize("ended", [AgentStatus.FAILED, AgentStatus.CRASHED])
def test_check_and_list_show_no_window_of_an_agent_whose_window_is_gone(
    cli: CommandLine, fake: Fake, ended: AgentStatus
) -> None:
    agent = record(status=ended)
    fake("observe.check", Checked(agent, None))
    assert "@7" not in cli("check", "fix-login").out
    assert json.loads(cli("check", "fix-login", "--json").out)["agent"]["tmuxWindowIndex"] == 3
    fake("observe.check", Checked(agent, None, lingers=True))
    assert "3 (@7)" in cli("check", "fix-login").out
    fake("observe.list_agents", Listed((agent,)))
    assert "#3" not in cli("list").out
    fake("observe.list_agents", Listed((agent,), lingering=frozenset(["fix-login"])))
    assert "#3" in cli("list").out


def test_check_takes_the_branch_for_the_id(cli: CommandLine, fake: Fake) -> None:
    calls = fake("observe.check", Checked(record(), None))

    cli("check", "side-agent/fix-login", "--lines", "3")

    assert calls == [(("fix-login",), {"lines": 3})]


def test_x18_check_of_one_that_finished_says_done(cli: CommandLine, fake: Fake) -> None:
    fake("observe.check", Checked(None, tombstone(branch_head="abcdef" * 6), ("bye",)))

    assert cli("check", "old").out.startswith("old  done\n")
    answer = json.loads(cli("check", "old", "--json").out)
    assert answer["ok"] is True
    assert (answer["agent"]["id"], answer["agent"]["status"]) == ("old", "done")
    assert answer["backlog"] == ["bye"]


def test_check_of_one_that_was_cleared_keeps_what_it_was(cli: CommandLine, fake: Fake) -> None:
    stone = tombstone(status=AgentStatus.CRASHED, ended_by=EndedBy.CLEARED)
    fake("observe.check", Checked(None, stone))

    assert "was crashed, cleared" in cli("check", "old").out
    agent = json.loads(cli("check", "old", "--json").out)["agent"]
    assert (agent["status"], agent["finalStatus"], agent["endedBy"]) == ("done", "crashed", "cleared")


def test_wait_passes_cursor_states_and_time_on(cli: CommandLine, fake: Fake) -> None:
    calls = fake("wait.wait_any", Waited(Checked(record(), None), "turn 1 completed", 18))

    ran = cli("wait", "a", "b", "a", "--after", "17", "--timeout", "2.5", "--state", "done", "--state", "failed")

    states = frozenset((AgentStatus.DONE, AgentStatus.FAILED))
    assert calls == [((("a", "b"),), {"after": 17, "states": states, "timeout": 2.5})]
    assert ran.out.endswith("cursor 18\n")


def test_wait_with_json_adds_reason_and_cursor_to_a_check(cli: CommandLine, fake: Fake) -> None:
    fake("wait.wait_any", Waited(Checked(record(), None, ("x",)), "turn 1 completed", 18))

    answer = json.loads(cli("wait", "fix-login", "--json").out)

    assert (answer["reason"], answer["cursor"], answer["agent"]["id"]) == ("turn 1 completed", 18, "fix-login")


def test_wait_for_all_gives_a_list_and_the_newest_cursor(cli: CommandLine, fake: Fake) -> None:
    found = [Waited(Checked(record("a"), None), "x", 4), Waited(Checked(None, tombstone("b")), "done", 9)]
    fake("wait.wait_all", found)

    answer = json.loads(cli("wait", "a", "b", "--all", "--json").out)

    assert [each["agent"]["id"] for each in answer["agents"]] == ["a", "b"]
    assert answer["cursor"] == 9


def test_u27_wait_for_nobody_is_refused_at_once(cli: CommandLine) -> None:
    ran = cli("wait")

    assert ran.status == 2
    assert "no agents" in ran.err


def test_wait_for_all_after_a_cursor_is_refused(cli: CommandLine) -> None:
    assert cli("wait", "a", "--all", "--after", "1").status == 2


def test_u28_wait_for_an_unknown_agent_is_an_error_naming_it(cli: CommandLine) -> None:
    ran = cli("wait", "nobody")

    assert ran.status == 3
    assert "nobody" in ran.err


def test_a_wait_that_takes_too_long_has_its_own_exit_status(cli: CommandLine, fake: Fake) -> None:
    fake("wait.wait_any", WaitTimeoutError("Too long."))

    assert cli("wait", "a").status == 10


@pytest.mark.parametrize("state", [DeliveryState.SUBMITTED, DeliveryState.QUEUED, DeliveryState.INTERRUPTED])
def test_u25_send_that_arrived_says_how_that_is_known(cli: CommandLine, fake: Fake, state: DeliveryState) -> None:
    calls = fake("send.send", Sent("fix-login", state, "it was journalled"))

    ran = cli("send", "fix-login", "!stop", "now")

    assert calls == [(("fix-login", "!stop now"), {})]
    assert ran.status == 0
    assert "it was journalled" in ran.out
    answer = json.loads(cli("send", "fix-login", "x", "--json").out)
    assert (answer["ok"], answer["delivery"]) == (True, state)


@pytest.mark.parametrize("state", [DeliveryState.TYPED_NOT_SUBMITTED, DeliveryState.UNKNOWN])
def test_u26_send_without_proof_is_exit_9_and_no_lie(cli: CommandLine, fake: Fake, state: DeliveryState) -> None:
    fake("send.send", Sent("fix-login", state, ""))

    ran = cli("send", "fix-login", "x")
    with_json = cli("send", "fix-login", "x", "--json")

    assert (ran.status, ran.out, with_json.status) == (9, "", 9)
    assert "side-agents check fix-login" in ran.err
    answer = json.loads(with_json.out)
    assert (answer["ok"], answer["delivery"], answer["code"]) == (False, state, "not-delivered")
    assert answer["message"]


def test_send_that_is_refused_keeps_the_code_of_the_refusal(cli: CommandLine, fake: Fake) -> None:
    fake("send.send", RefusedError("A shell is there."))

    ran = cli("send", "fix-login", "rm -rf", "--json")

    assert ran.status == 8
    assert json.loads(ran.out)["code"] == "refused"


def test_list_shows_a_tree_and_what_to_know(cli: CommandLine, fake: Fake) -> None:
    records = (record("main-task"), record("below", parent_agent_id="main-task", depth=2))
    fake("observe.list_agents", Listed(records, (tombstone(),), ("newer",), ("tmux gave no answer",)))

    ran = cli("list", "--all")

    lines = ran.out.splitlines()
    assert lines[1].startswith("main-task ")
    assert lines[2].startswith("└ below ")
    assert lines[3].startswith("old ")
    assert "newer was written by another version" in ran.err
    assert "tmux gave no answer" in ran.err


def test_list_with_json_has_agents_and_only_then_finished_ones(cli: CommandLine, fake: Fake) -> None:
    fake("observe.list_agents", Listed((record(),)))

    answer = json.loads(cli("list", "--json").out)

    assert [agent["id"] for agent in answer["agents"]] == ["fix-login"]
    assert "finished" not in answer


def test_list_where_side_agents_were_never_used_creates_nothing(cli: CommandLine, repo: Repository) -> None:
    assert cli("list").out == "No agents yet.\n"
    assert not (repo.path / ".pi").exists()
    assert repo.status() == ""


def test_list_after_all_have_ended_says_that_none_runs_and_where_the_others_are(
    cli: CommandLine, repo: Repository
) -> None:
    with Registry(StatePaths(repo.path)).transaction("test") as state:
        state.bury(tombstone("old"))

    assert cli("list").out == "No agents are running.\n`side-agents list --all` shows those that have ended.\n"
    assert "No agents" not in cli("list", "--all").out


@pytest.mark.parametrize(
    ("kept", "shown"),
    [
        ("branch b at 012, worktree /w", "kept: branch b at 012, worktree /w"),
        ("the slot app-1 was not made", "Its start had been cut off: the slot app-1 was not made."),
        ("nothing was left to keep", "Its start had been cut off: nothing was left to keep."),
        ("/w/app-1 is left as it is", "Its start had been cut off: /w/app-1 is left as it is."),
        ("it had ended before; branch b", "It had ended before; kept: branch b"),
    ],
)
def test_stop_says_in_a_sentence_what_is_left(cli: CommandLine, fake: Fake, kept: str, shown: str) -> None:
    fake("stop.stop", Stopped(tombstone(), 0, kept))

    assert cli("stop", "old", "--yes").out == f"stopped old  {shown}\n"


def test_stop_without_a_terminal_needs_a_yes_and_does_nothing_without(cli: CommandLine, fake: Fake) -> None:
    calls = fake("stop.stop", Stopped(tombstone(), 2, "its branch"))

    ran = cli("stop", "old")

    assert ran.status == 2
    assert "--yes" in ran.err
    assert calls == []


def test_stop_ends_each_and_says_what_is_kept(cli: CommandLine, fake: Fake) -> None:
    calls = fake("stop.stop", lambda name: Stopped(tombstone(name), 2, f"branch of {name}"))

    ran = cli("stop", "a", "b", "a", "--yes", "--quit")

    assert calls == [(("a",), {"quit": True}), (("b",), {"quit": True})]
    assert ran.status == 0
    assert "branch of a" in ran.out
    assert "branch of b" in ran.out


def test_stop_goes_on_with_the_others_when_one_fails(cli: CommandLine, fake: Fake) -> None:
    def answer(name: str) -> Stopped:
        if name == "a":
            raise BusyError("a is held.")
        return Stopped(tombstone(name), 1, "all")

    fake("stop.stop", answer)

    ran = cli("stop", "a", "b", "--yes")
    answers = json.loads(cli("stop", "a", "b", "--yes", "--json").out)

    assert ran.status == BusyError.exit_status
    assert "a is held." in ran.err
    assert "stopped b" in ran.out
    assert answers["ok"] is False
    assert [each["ok"] for each in answers["agents"]] == [False, True]


def test_stop_that_leaves_a_process_is_no_success(cli: CommandLine, fake: Fake) -> None:
    fake("stop.stop", Stopped(tombstone(), 1, "all", survivors=(4711,)))

    ran = cli("stop", "old", "--yes")

    assert ran.status == 1
    assert "4711" in ran.err


def test_stop_with_the_tree_stops_what_was_started_below_it_first(
    cli: CommandLine, fake: Fake, repo: Repository
) -> None:
    with Registry(StatePaths(repo.path)).transaction("test") as state:
        for agent_id, parent in (("a", None), ("b", "a"), ("c", "b"), ("other", None)):
            state.put(record(agent_id, AgentStatus.FAILED, parent_agent_id=parent))
    calls = fake("stop.stop", lambda name: Stopped(tombstone(name), 1, "all"))

    cli("stop", "a", "--tree", "--yes")
    cli("stop", "a", "--yes")

    assert [args[0] for args, _ in calls] == ["c", "b", "a", "a"]

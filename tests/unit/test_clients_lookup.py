"""Which client is used, and how a client from the configuration is started."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from side_agents.client_spec import CustomClientSpec, PromptDelivery, StatusSource
from side_agents.clients import choose_client, find_client
from side_agents.clients.custom import LONGEST_ARGUMENT, CustomClient
from side_agents.clients.interface import Client, LaunchRequest
from side_agents.clients.script import ScriptClient
from side_agents.config import Config
from side_agents.errors import NotFoundError, ToolMissingError, UsageError

SPEC = CustomClientSpec(name="mine", argv=("mytool", "--session", "{session_id}"))


def config(*specs: CustomClientSpec, client: str | None = None) -> Config:
    return Config(client=client, clients={spec.name: spec for spec in specs})


@pytest.fixture
def request_for(tmp_path: Path) -> LaunchRequest:
    prompt = tmp_path / "kickoff.md"
    prompt.write_bytes(b"-do {model} it\n")
    return LaunchRequest(
        agent_id="a",
        prompt_file=prompt,
        has_prompt=True,
        worktree=tmp_path,
        runtime_dir=tmp_path,
        model=None,
        session_id="sid",
        skills_dir=None,
        environment={"HOME": str(tmp_path)},
    )


def test_the_request_wins_over_the_environment_and_that_over_the_configuration() -> None:
    settings = config(SPEC, client="mine")
    assert choose_client("script", {"SIDE_AGENTS_CLIENT": "mine"}, settings).name == "script"
    assert choose_client(None, {"SIDE_AGENTS_CLIENT": "script"}, settings).name == "script"
    assert choose_client(None, {"SIDE_AGENTS_CLIENT": ""}, settings).name == "mine"


def test_with_nothing_named_the_first_installed_one_is_used(tmp_path: Path) -> None:
    tool = tmp_path / "codex"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    settings = config(
        CustomClientSpec(name="claude", argv=("claude",)), CustomClientSpec(name="codex", argv=("codex",))
    )
    assert choose_client(None, {"PATH": str(tmp_path)}, settings).name == "codex"
    with pytest.raises(ToolMissingError, match="No coding agent"):
        choose_client(None, {"PATH": str(tmp_path / "empty")}, settings)


def test_an_unknown_name_is_refused_with_those_that_exist() -> None:
    with pytest.raises(NotFoundError, match="'nosuch'") as caught:
        find_client("nosuch", config(SPEC))
    assert caught.value.hint is not None
    assert "pi, script, mine" in caught.value.hint


def test_both_clients_fulfil_the_interface() -> None:
    clients: list[Client] = [ScriptClient(), CustomClient(SPEC)]
    assert [client.name for client in clients] == ["script", "mine"]


def test_the_script_client_is_run_by_our_python_with_a_chosen_session(request_for: LaunchRequest) -> None:
    plan = ScriptClient().launch_plan(replace(request_for, model="m", has_prompt=False))
    assert plan.argv[:2] == (sys.executable, "-IS")
    assert Path(plan.argv[2]).is_file()
    assert plan.argv[3:] == ("--session-id", "sid", "--model", "m")
    folder = os.fspath(request_for.worktree.resolve()).strip("/").replace("/", "-")
    home = plan.env["SIDE_AGENTS_SCRIPT_HOME"]
    assert (plan.session_id, plan.session_file) == ("sid", f"{home}/sessions/--{folder}--/sid.jsonl")


def test_a_session_that_is_gone_cannot_be_resumed(request_for: LaunchRequest) -> None:
    with pytest.raises(NotFoundError, match="does not exist"):
        ScriptClient().launch_plan(replace(request_for, resume_session="/no/such.jsonl"))


def test_a_custom_prompt_as_an_argument_is_exact_and_never_a_template(request_for: LaunchRequest) -> None:
    spec = replace(SPEC, prompt=PromptDelivery.ARGV, prompt_args=("--", "{prompt}"), model_args=("-m={model}",))
    plan = CustomClient(spec).launch_plan(replace(request_for, model="big"))
    assert plan.argv == ("mytool", "--session", "sid", "-m=big", "--", "-do {model} it\n")
    assert plan.session_id == "sid"
    bare = CustomClient(spec).launch_plan(replace(request_for, has_prompt=False))
    assert bare.argv == ("mytool", "--session", "sid")


def test_the_other_deliveries(request_for: LaunchRequest) -> None:
    by_file = CustomClient(replace(SPEC, prompt=PromptDelivery.FILE, prompt_args=("@{prompt_file}",)))
    assert by_file.launch_plan(request_for).argv[-1] == f"@{request_for.prompt_file}"
    by_stdin = CustomClient(replace(SPEC, prompt=PromptDelivery.STDIN)).launch_plan(request_for)
    assert (by_stdin.stdin_file, by_stdin.paste_prompt) == (request_for.prompt_file, False)
    by_paste = CustomClient(replace(SPEC, env={"ID": "{session_id}"})).launch_plan(request_for)
    assert (by_paste.stdin_file, by_paste.paste_prompt, by_paste.env) == (None, True, {"ID": "sid"})
    assert not CustomClient(SPEC).launch_plan(replace(request_for, has_prompt=False)).paste_prompt


def test_a_prompt_too_long_for_an_argument_is_refused_with_the_ways_out(request_for: LaunchRequest) -> None:
    client = CustomClient(replace(SPEC, prompt=PromptDelivery.ARGV, prompt_args=("{prompt}",)))
    request_for.prompt_file.write_bytes(b"x" * LONGEST_ARGUMENT)
    client.launch_plan(request_for)
    request_for.prompt_file.write_bytes(b"x" * (LONGEST_ARGUMENT + 1))
    with pytest.raises(UsageError, match="120,001 bytes") as caught:
        client.launch_plan(request_for)
    assert caught.value.hint is not None
    assert '"file"' in caught.value.hint
    assert '"paste"' in caught.value.hint


def test_what_a_custom_client_cannot_do_is_refused(request_for: LaunchRequest) -> None:
    with pytest.raises(UsageError, match="takes no model"):
        CustomClient(SPEC).launch_plan(replace(request_for, model="m"))
    with pytest.raises(UsageError, match="cannot reopen"):
        CustomClient(SPEC).launch_plan(replace(request_for, resume_session="x"))
    with pytest.raises(ToolMissingError, match="mytool"):
        CustomClient(SPEC).locate({"PATH": "/nowhere"})


@pytest.mark.parametrize(
    "changes",
    [
        {"argv": ()},
        {"argv": ("{prompt}",)},
        {"argv": ("x", "{model}")},
        {"argv": ("x", "{prompt}")},
        {"prompt": PromptDelivery.ARGV},
        {"prompt": PromptDelivery.FILE},
        {"prompt_args": ("{prompt}",)},
        {"busy_pattern": "("},
        {"draft_pattern": "no group"},
    ],
)
def test_a_specification_that_cannot_work_is_refused_at_once(changes: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="mine"):
        CustomClient(replace(SPEC, **changes))


def test_patterns_read_the_screen() -> None:
    client = CustomClient(replace(SPEC, busy_pattern="Working", ready_pattern="^>", draft_pattern=r"^> ?(.*)$"))
    assert client.is_busy(["> x", "Working 3s"]) is True
    assert client.is_busy(["> x"]) is False
    assert client.is_busy(["Trust this folder?"]) is None
    assert client.draft(["> old", "> new "]) == "new"
    assert client.draft([">"]) == ""
    assert client.draft(["nothing"]) is None
    assert client.draft(["> said", *"abcdef", ""]) is None, "too far above the bottom to be the box"
    blank = CustomClient(replace(SPEC, ready_pattern="^> $", draft_pattern="^> (.*)$"))
    assert (blank.draft(["> said", ">", ""]), blank.draft([">"]), blank.draft(["> x"])) == ("", "", "x")
    assert blank.is_busy([">"]) is False
    assert CustomClient(replace(SPEC, busy_pattern="W")).is_busy([]) is False
    assert CustomClient(replace(SPEC, ready_pattern="R")).is_busy([]) is True
    assert CustomClient(SPEC).is_busy([]) is None
    assert CustomClient(SPEC).draft([">"]) is None


def test_only_a_journalling_custom_client_reports_events() -> None:
    assert not CustomClient(SPEC).reports_events
    assert CustomClient(replace(SPEC, status=StatusSource.JOURNAL)).reports_events
    assert CustomClient(SPEC).normalise("a\r\nb\n\n") == "a\nb"

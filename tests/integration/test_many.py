"""Many agents by one command: starts from lists, matrices and templates, waits for all, messages to several."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from many_support import Ran, run
from orchestra import SLOW, Orchestra, orchestra

from side_agents.models import AgentStatus
from tests.support.repositories import Repository
from tests.support.tmux_server import PrivateServer
from tests.support.waiting import eventually


@pytest.fixture
def stage(repo: Repository, tmux_server: PrivateServer) -> Iterator[Orchestra]:
    with orchestra(repo, tmux_server) as made:
        yield made


def start(stage: Orchestra, *arguments: str, feed: str = "") -> Ran:
    return run(stage, "start", "--client", "script", *arguments, feed=feed)


def ids(ran: Ran) -> list[str]:
    return [agent["id"] for agent in ran.json["agents"]]


def test_each_line_of_a_list_becomes_an_agent_of_its_own(stage: Orchestra) -> None:
    listed = "# tonight\n" + "".join(f"say: number {n}\n\n" for n in range(6))
    done = start(stage, "--each", "-", "--json", feed=listed)
    assert done.status == 0
    assert done.json["ok"] is True
    assert len(set(ids(done))) == 6
    for number, agent in enumerate(ids(done)):
        stage.eventually_idle(agent)
        assert stage.messages(stage.row(agent)) == [f"say: number {number}"]
    stage.assert_sound()


def test_a_matrix_fills_its_values_in(stage: Orchestra) -> None:
    done = start(stage, "--matrix", "A=x,y", "--matrix", "B=1,2", "--json", "say: {A}{B}")
    tasks = {stage.row(agent).task for agent in ids(done)}
    assert tasks == {"say: x1", "say: x2", "say: y1", "say: y2"}
    assert start(stage, "--matrix", "A=only", "--json", "say: {A}").json["agents"][0]["task"] == "say: only"


def test_what_cannot_be_started_hinders_no_other_and_has_a_result_of_its_own(stage: Orchestra) -> None:
    (stage.repo.path / "tasks").write_text("say: a\nsay: \0\nsay: c\n")
    done = start(stage, "--each", "tasks", "--json")
    assert done.status == 2
    assert [answer["ok"] for answer in done.json["agents"]] == [True, False, True]
    assert done.json["agents"][1]["code"] == "usage"
    assert len(done.json["agents"][1]["task"]) <= 201
    assert len(stage.listed().records) == 2


def test_a_person_is_told_of_each_and_how_many_there_are(stage: Orchestra) -> None:
    done = start(stage, "--each", "-", feed="say: one\nsay: two\n")
    assert done.status == 0
    assert done.out.splitlines()[-1] == "2 of 2 started."
    assert len([line for line in done.out.splitlines() if line.startswith("started ")]) == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--each", "none.txt"), "cannot be read"),
        (("--each", "-", "also words"), "twice"),
        (("--matrix", "A=1,2", "no place"), "no {A}"),
        (("--template", "missing", "x"), "no template called missing"),
        (("--set", "A=1", "x"), "--template"),
    ],
)
def test_a_mistake_is_told_before_anything_is_started(stage: Orchestra, arguments: tuple[str, ...], words: str) -> None:
    done = start(stage, "--json", *arguments, feed="say: x\n")
    assert done.status in (2, 3)
    assert words in done.json["error"]
    assert stage.listed().records == ()


def test_a_template_gives_the_task_its_frame(stage: Orchestra) -> None:
    folder = stage.repo.path / ".pi" / "side-agents" / "prompts"
    folder.mkdir(parents=True)
    (folder / "greet.md").write_text("say: hello {{WHO}}\nsay: {{task}}\n")
    done = start(stage, "--template", "greet", "--set", "WHO=world", "--json", "nice to be here")
    assert done.status == 0
    assert done.json["task"] == "say: hello world\nsay: nice to be here"
    assert done.json["id"].startswith("nice-here")
    missing = start(stage, "--template", "greet", "--json", "x")
    assert (missing.status, missing.json["hint"]) == (2, "Add --set WHO=...")
    assert len(stage.listed().records) == 1


def test_waiting_for_all_returns_when_the_last_one_is_there(stage: Orchestra) -> None:
    names = ids(start(stage, "--each", "-", "--json", feed="say: quick\nsleep: 1\nfail: 3\n"))
    done = run(stage, "wait", "--all", "--json", "--timeout", "60", *names)
    assert done.status == 0
    assert [each["agent"]["status"] for each in done.json["agents"]] == ["waiting_user", "waiting_user", "failed"]
    assert done.json["cursor"] == max(each["cursor"] for each in done.json["agents"])
    late = run(stage, "wait", "--all", "--json", "--timeout", "0.2", "--state", "done", names[0], names[1])
    assert (late.status, late.json["code"]) == (10, "timeout")


def test_a_message_to_several_has_a_result_for_each(stage: Orchestra) -> None:
    one, two = (stage.start("say: hi", branch_hint=name).id for name in ("one", "two"))
    ended = stage.start("fail: 3", branch_hint="ended").id
    for name in (one, two):
        stage.eventually_idle(name)
    stage.eventually_status(ended, AgentStatus.FAILED)
    done = run(stage, "send", "one,ended,two,nobody,one", "--json", "say: to all")
    assert done.status == 8
    results: list[dict[str, Any]] = done.json["results"]
    assert [(each["id"], each["ok"], each.get("code")) for each in results] == [
        ("one", True, None),
        ("ended", False, "refused"),
        ("two", True, None),
        ("nobody", False, "unknown-agent"),
    ]
    for name in (one, two):
        eventually(lambda name=name: stage.messages(stage.row(name))[1:] == ["say: to all"], SLOW)


def test_a_message_to_several_is_told_to_a_person_line_by_line(stage: Orchestra) -> None:
    for name in ("one", "two"):
        stage.start("say: hi", branch_hint=name)
        stage.eventually_idle(name)
    done = run(stage, "send", "one,two", "say: to all")
    assert done.status == 0
    assert [line.split(" has")[0] for line in done.out.splitlines()] == ["Sent: one", "Sent: two"]
    single = run(stage, "send", "one", "--json", "say: alone")
    assert json.loads(single.out)["delivery"] in ("submitted", "queued")

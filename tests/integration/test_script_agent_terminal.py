"""The script agent's manners as a terminal program: pastes, drafts, keys, job control, sizes, locales, idleness."""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from side_agents.clients import script_agent
from tests.integration.script_agent_support import AgentPane
from tests.support.waiting import eventually

LINES = "\n".join(f"line {number} 你好 🚀 é {'x' * 40}" for number in range(150))


@pytest.fixture
def pane(tmp_path: Path) -> Iterator[AgentPane]:
    with AgentPane(tmp_path) as running:
        yield running


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize(
    "message",
    [
        LINES,
        "-n not an option",
        "@file",
        "/nosuch command",
        "!ls",
        "👩‍👩‍👧 é 中文",
        "a\tb",
        " 'q' \"d\" $x `y` \\ ; # {answer}",
    ],
    ids=["10kB", "dash", "at", "slash", "bang", "wide", "tab", "quotes"],
)
def test_a_paste_is_one_message_exactly_as_given(pane: AgentPane, message: str) -> None:
    plan = pane.start(None)
    pane.send(message)
    pane.wait_turns(1)
    assert pane.texts(plan, "user") == [message]
    assert [event["sha256"] for event in pane.events("input")] == [_sha(message)]


def test_two_messages_sent_at_once_are_taken_exactly_once_each(pane: AgentPane) -> None:
    plan = pane.start(None)
    for text in ("say: one\nsay: more", "say: two"):
        pane.paste(text)
        pane.keys("Enter")
    assert pane.wait_turns(2)["text"] == "two"
    assert pane.texts(plan, "user") == ["say: one\nsay: more", "say: two"]
    assert len(pane.events("input")) == 2


def test_a_paste_without_enter_stays_in_the_box_as_a_draft(pane: AgentPane) -> None:
    pane.start(None)
    eventually(lambda: pane.draft() == "")
    pane.type("half typed 中")
    eventually(lambda: pane.draft() == "half typed 中")
    pane.keys("C-j")
    pane.paste("second ")
    eventually(lambda: pane.draft() == "half typed 中\nsecond ")
    assert not pane.events("input")
    pane.keys("BSpace", "Enter")
    pane.wait_turns(1)
    assert pane.events("input")[0]["sha256"] == _sha("half typed 中\nsecond")
    eventually(lambda: pane.draft() == "")


def test_a_box_with_only_blanks_is_not_empty_and_enter_sends_nothing(pane: AgentPane) -> None:
    pane.start(None)
    pane.type("  ")
    eventually(lambda: pane.draft() == "  ")
    pane.keys("Enter")
    eventually(lambda: pane.draft() == "")
    assert not pane.events("input")


def test_a_draft_taller_than_the_box_is_seen_as_a_draft(pane: AgentPane) -> None:
    pane.start(None)
    pane.paste(LINES)
    draft = eventually(pane.draft)
    assert draft.startswith(f"[{len(LINES)} characters]")
    assert draft.endswith("x" * 40)


def test_ctrl_c_clears_the_box_and_twice_in_a_row_exits(pane: AgentPane) -> None:
    pane.start(None)
    pane.type("draft")
    eventually(lambda: pane.draft() == "draft")
    pane.keys("C-c")
    eventually(lambda: pane.draft() == "")
    pane.send("say: alive")
    pane.wait_turns(1)
    pane.keys("C-c", "C-c")
    assert pane.wait_exit() == 0
    assert pane.events("quit")


def test_ctrl_d_exits_only_with_an_empty_box(pane: AgentPane) -> None:
    pane.start(None)
    pane.type("ab")
    pane.keys("C-d", "BSpace")
    eventually(lambda: pane.draft() == "a")
    pane.keys("C-u", "C-d")
    assert pane.wait_exit() == 0


def test_ctrl_z_gives_the_shell_back_and_fg_the_agent(pane: AgentPane) -> None:
    plan = pane.plan(None)
    pane.launch(["bash", "--norc", "--noprofile", "-i"], env={"PS1": "shell> "})
    eventually(lambda: pane.shows("shell>"))
    pane.type(" ".join(f"'{argument}'" for argument in plan.argv))
    pane.keys("Enter")
    eventually(lambda: pane.events("ready"))
    eventually(lambda: pane.draft() == "")

    pane.keys("C-z")
    eventually(lambda: pane.shows("Stopped"))
    assert pane.draft() is None
    pane.type("echo sum-$((40+2))")
    pane.keys("Enter")
    eventually(lambda: pane.shows("sum-42"))
    pane.type("fg")
    pane.keys("Enter")
    eventually(lambda: pane.draft() == "")
    pane.send("say: back")
    assert pane.wait_turns(1)["text"] == "back"
    pane.keys("C-d")
    eventually(lambda: pane.tmux("display-message", "-p", "#{pane_current_command}").strip() == "bash")
    pane.type("echo sane-$((1+1))")
    pane.keys("Enter")
    eventually(lambda: pane.shows("sane-2"))


def test_ctrl_z_without_job_control_changes_nothing(pane: AgentPane) -> None:
    pane.start(None)
    pane.keys("C-z")
    pane.send("say: on")
    assert pane.wait_turns(1)["text"] == "on"


def test_a_stop_and_continue_from_outside_is_survived(pane: AgentPane) -> None:
    pane.start(None)
    os.kill(pane.pid(), signal.SIGSTOP)
    pane.paste("say: later")
    pane.keys("Enter")
    os.kill(pane.pid(), signal.SIGCONT)
    assert pane.wait_turns(1)["text"] == "later"
    eventually(lambda: pane.draft() == "")
    assert sum(line.startswith("script · ") for line in pane.screen(history=True)) == 1


@pytest.mark.parametrize("size", [(40, 10), (120, 40), (80, 3)])
def test_after_a_resize_there_is_one_box_and_it_works(pane: AgentPane, size: tuple[int, int]) -> None:
    pane.start("say: hello\n")
    pane.wait_turns(1)
    pane.paste("say: 中文中文中文中文")
    pane.tmux("resize-window", "-x", str(size[0]), "-y", str(size[1]))
    pane.keys("Enter")
    assert pane.wait_turns(2)["text"] == "中文中文中文中文"
    pane.tmux("resize-window", "-x", "80", "-y", "24")
    eventually(lambda: pane.draft() == "")
    assert sum(line.startswith("›") and not line.startswith("› say") for line in pane.screen()) == 1


@pytest.mark.parametrize("size", [("9", "5"), ("3", "2"), ("2", "1")])
def test_a_tiny_pane_does_not_break_it(pane: AgentPane, size: tuple[str, str]) -> None:
    pane.start(None)
    pane.tmux("resize-window", "-x", size[0], "-y", size[1])
    pane.send("say: 中文")
    assert pane.wait_turns(1)["text"] == "中文"
    pane.tmux("resize-window", "-x", "80", "-y", "24")
    eventually(lambda: pane.draft() == "")


@pytest.mark.parametrize("locale", [{"LC_ALL": "C"}, {"LC_ALL": "POSIX", "LANG": ""}, {"LANG": "", "PYTHONUTF8": "0"}])
def test_utf8_works_in_a_c_locale(pane: AgentPane, locale: dict[str, str]) -> None:
    pane.environment.update(locale)
    plan = pane.start("say: 你好\nrun: printf é\nwrite: ü.txt 中\n")
    assert pane.wait_turns(1)["text"] == "你好"
    assert pane.texts(plan, "toolResult") == ["é", "written: ü.txt"]
    assert (pane.worktree / "ü.txt").read_text(encoding="utf-8") == "中"
    eventually(lambda: pane.shows("你好"))


def test_output_is_plain_text_whatever_the_command_writes(pane: AgentPane) -> None:
    plan = pane.start(
        "run: printf '\\033[31mred\\033[0m\\033]0;title\\007 \\033[2Jx\\n'; printf 'no newline'\nsay: end\n"
    )
    pane.wait_turns(1)
    assert pane.texts(plan, "toolResult") == ["red x\nno newline"]
    eventually(lambda: pane.shows("red x") and pane.shows("no newline"))


def test_a_flood_of_output_neither_blocks_nor_grows_the_session(pane: AgentPane) -> None:
    plan = pane.start("run: seq 1 200000\nsay: end\n")
    assert pane.wait_turns(1)["text"] == "end"
    assert len(pane.texts(plan, "toolResult")[0]) <= 20_000
    eventually(lambda: pane.shows("200000"))


def test_a_background_process_does_not_keep_the_turn_open(pane: AgentPane) -> None:
    pane.start("run: sleep 30 & echo $! >pid\nsay: end\n")
    assert pane.wait_turns(1)["text"] == "end"
    os.kill(int((pane.worktree / "pid").read_text()), signal.SIGKILL)


def test_a_folder_named_like_our_package_is_not_run(pane: AgentPane) -> None:
    fake = pane.worktree / "side_agents"
    fake.mkdir()
    for module in (fake / "__init__.py", pane.worktree / "json.py", pane.worktree / "sitecustomize.py"):
        module.write_text("raise SystemExit('wrong module')")
    pane.environment["PYTHONPATH"] = str(pane.worktree)
    pane.start("say: right\n")
    assert pane.wait_turns(1)["text"] == "right"


def test_it_runs_as_a_module_too(pane: AgentPane) -> None:
    root = Path(script_agent.__file__).parents[2]
    command = [sys.executable, "-P", "-m", "side_agents.clients.script_agent"]
    pane.launch(command, env={"PYTHONPATH": str(root)})
    eventually(lambda: pane.events("ready"))
    pane.send("say: hello")
    assert pane.wait_turns(1)["text"] == "hello"


def test_without_a_terminal_or_with_nonsense_it_refuses(pane: AgentPane) -> None:
    program = " ".join(f"'{argument}'" for argument in pane.plan().argv[:3])
    bad = ("</dev/null", "--nonsense", "--prompt-file /no")
    script = "".join(f"{program} {arguments}; echo rc=$?; " for arguments in bad) + "read x"
    pane.launch(["sh", "-c", script])
    eventually(lambda: sum(line == "rc=2" for line in pane.screen()) == 3)
    assert not pane.events()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_it_sleeps_while_it_has_nothing_to_do(pane: AgentPane) -> None:
    pane.start(None)
    eventually(lambda: pane.draft() == "")
    stat = Path(f"/proc/{pane.pid()}/status")

    def switches() -> int:
        return sum(int(line.split()[1]) for line in stat.read_text().splitlines() if "ctxt_switches" in line)

    eventually(lambda: _is_quiet(switches))


def _is_quiet(count: Callable[[], int]) -> bool:
    before = count()
    time.sleep(0.5)  # the thing measured is that nothing happens in this time
    return count() == before

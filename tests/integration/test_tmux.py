"""infra/tmux against real, private tmux servers."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from side_agents.errors import NotInTmuxError, RefusedError, TmuxError, TmuxUnreachableError, UsageError
from side_agents.infra import proc, processes, tmux_call
from side_agents.infra.tmux import CallerPane, Outcome, Presence, ServerIdentity, Tmux, WindowRef, version
from tests.support.tmux_server import PrivateServer
from tests.support.waiting import eventually

# Everything here means something to tmux, to strftime, to a shell, or to all of them.
NASTY = [
    "",
    ";",
    "a;",
    "\\;",
    "a\\;",
    ";;",
    "#{pane_id}",
    "##",
    "#[x",
    "#(touch x)",
    "%Y",
    "%%",
    "$(x)",
    "$HOME",
    "`x`",
]
NASTY += ["'", '"', "a b", "a\nb", "-x", "--", "é世界", "{}", "}", "~", "*", "\\", "\t"]
NASTY_FOLDERS = [
    "a b",
    "q'uo\"te",
    "%Y-%m",
    "#{x}",
    "semi;",
    "#(touch x)",
    "$HOME",
    "`x`",
    "é世界",
    "#[b",
    "##",
    "%%",
    "-n",
]


@pytest.fixture
def caller(tmux_server: PrivateServer) -> CallerPane:
    return tmux_server.start()


@pytest.fixture
def second_server() -> Iterator[PrivateServer]:
    server = PrivateServer()
    yield server
    server.stop()


def open_window(
    server: PrivateServer, caller: CallerPane, tag: str = "worker", *argv: str, **more: object
) -> WindowRef:
    return server.tmux.new_window(
        session_id=caller.session_id,
        name=f"agent-{tag}",
        cwd=server.folder,
        argv=argv or ("cat", "-u"),
        tag=tag,
        **more,  # type: ignore[arg-type]  # passed through as given
    )


def holds(path: Path, content: bytes) -> bool:
    return path.exists() and path.read_bytes() == content


def screen_has(server: PrivateServer, pane_id: str, text: str) -> bool:
    return text in "\n".join(server.tmux.capture(pane_id))


def presence(server: PrivateServer, window: WindowRef, identity: ServerIdentity, tag: str = "worker") -> Presence:
    return server.sweep().presence(window.pane_id, identity, tag)


# --- who calls


def inside(caller: CallerPane, **changes: str) -> dict[str, str]:
    session = caller.session_id.lstrip("$")
    return {"TMUX": f"{caller.socket},{caller.server.pid},{session}", "TMUX_PANE": caller.pane_id, **changes}


def test_the_callers_pane_is_found_and_checked(caller: CallerPane) -> None:
    assert Tmux.current(inside(caller)) == caller


def test_x16_outside_of_tmux_a_running_server_is_no_excuse(caller: CallerPane) -> None:
    with pytest.raises(NotInTmuxError):
        Tmux.current({})
    with pytest.raises(NotInTmuxError):
        Tmux.current({"TMUX": inside(caller)["TMUX"]})


@pytest.mark.parametrize("stale", [{"TMUX_PANE": "%77"}, {"TMUX": "/nowhere/socket,1,0"}, {"TMUX": "garbage"}])
def test_stale_variables_are_refused(caller: CallerPane, stale: dict[str, str]) -> None:
    with pytest.raises(NotInTmuxError):
        Tmux.current(inside(caller, **stale))


def test_variables_of_an_earlier_server_on_the_same_socket_are_refused(
    tmux_server: PrivateServer, caller: CallerPane
) -> None:
    environ = inside(caller)
    tmux_server.tmux.kill_server()
    eventually(lambda: not processes.is_alive(caller.server))
    with pytest.raises(NotInTmuxError):
        Tmux.current(environ)
    assert tmux_server.start().pane_id == caller.pane_id
    with pytest.raises(NotInTmuxError):
        Tmux.current(environ)


def test_a_caller_whose_socket_was_deleted_is_told_so(tmux_server: PrivateServer, caller: CallerPane) -> None:
    caller.socket.unlink()
    try:
        with pytest.raises(TmuxUnreachableError) as caught:
            Tmux.current(inside(caller))
        assert f"kill -USR1 {caller.server.pid}" in (caught.value.hint or "")
    finally:
        os.kill(caller.server.pid, signal.SIGUSR1)
        eventually(caller.socket.exists)


# --- sweeps


def test_a_sweep_names_the_server_and_every_pane(tmux_server: PrivateServer, caller: CallerPane) -> None:
    window = open_window(tmux_server, caller)
    sweep = tmux_server.sweep()
    assert sweep.outcome is Outcome.ANSWERED
    assert sweep.server == caller.server
    assert processes.is_alive(caller.server)
    assert set(sweep.panes) == {caller.pane_id, window.pane_id}
    pane = sweep.panes[window.pane_id]
    assert (pane.window_id, pane.session_id, pane.pane_pid) == (window.window_id, caller.session_id, window.pane_pid)
    assert (pane.agent_tag, pane.window_name, pane.dead, pane.in_mode) == ("worker", "agent-worker", False, False)
    assert sweep.panes[caller.pane_id].agent_tag == ""


def test_a_sweep_is_one_tmux_call_whatever_the_number_of_panes(
    tmux_server: PrivateServer, caller: CallerPane, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        open_window(tmux_server, caller, f"w{number}")
    calls: list[object] = []
    run = proc.run

    def counted(*args: Any, **options: Any) -> proc.Completed:
        calls.append(args)
        return run(*args, **options)

    monkeypatch.setattr(proc, "run", counted)
    assert len(tmux_server.sweep().panes) == 6
    assert len(calls) == 1


def test_names_in_any_script_survive_a_client_in_the_c_locale(
    tmux_server: PrivateServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LC_ALL", "C")
    caller = tmux_server.start(session="arbre à cames|世界 [x] a=b")
    window = open_window(tmux_server, caller)
    tmux_server.tmux.rename_window(window.window_id, "a|b:c;#{pane_id} %Y é=;")
    pane = tmux_server.sweep().panes[window.pane_id]
    assert pane.session_name == "arbre à cames|世界 [x] a=b"
    assert pane.window_name == "a|b:c;#{pane_id} %Y é=;"


def test_a_program_cannot_forge_panes_through_its_name(tmux_server: PrivateServer, caller: CallerPane) -> None:
    forged = "x\n[word]%99=word=@99"
    code = f"exec -a {shlex.quote(forged)} cat -u"
    window = open_window(tmux_server, caller, "worker", "bash", "-c", code)
    eventually(lambda: tmux_server.sweep().panes[window.pane_id].current_command.startswith("x\n"))
    assert set(tmux_server.sweep().panes) == {caller.pane_id, window.pane_id}


def test_base_index_one_changes_nothing(tmux_server: PrivateServer) -> None:
    caller = tmux_server.start(options=["set -g base-index 1", "set -g pane-base-index 1"])
    window = open_window(tmux_server, caller)
    assert window.window_index == 2
    assert presence(tmux_server, window, caller.server) is Presence.PRESENT
    tmux_server.tmux.paste(window.pane_id, b"hello")
    eventually(lambda: screen_has(tmux_server, window.pane_id, "hello"))
    assert tmux_server.tmux.kill_window(window.window_id, expect_pane=window.pane_id, expect_tag="worker")


def test_copy_mode_and_a_dead_pane_are_seen(tmux_server: PrivateServer, caller: CallerPane) -> None:
    window = open_window(tmux_server, caller)
    tmux_call.change(tmux_server.tmux.socket, "copy-mode", "-t", window.pane_id)
    assert tmux_server.sweep().panes[window.pane_id].in_mode
    tmux_call.change(tmux_server.tmux.socket, "set-option", "-w", "-t", window.window_id, "remain-on-exit", "on")
    os.kill(window.pane_pid, signal.SIGKILL)
    eventually(lambda: tmux_server.sweep().panes[window.pane_id].dead)


def test_a_lost_exit_status_appears_after_run_shell(tmux_server: PrivateServer, caller: CallerPane) -> None:
    window = open_window(tmux_server, caller, "worker", "sh", "-c", "read line; exit 7")
    tmux_call.change(tmux_server.tmux.socket, "set-option", "-w", "-t", window.window_id, "remain-on-exit", "on")
    tmux_server.tmux.send_keys(window.pane_id, "Enter")

    def status() -> int | None:
        tmux_server.tmux.run_shell_true()
        return tmux_server.sweep().panes[window.pane_id].dead_status

    assert eventually(status) == 7


# --- presence: present, absent, unknown


def test_presence_follows_the_pane_and_its_tag(tmux_server: PrivateServer, caller: CallerPane) -> None:
    window = open_window(tmux_server, caller)
    assert presence(tmux_server, window, caller.server) is Presence.PRESENT
    assert presence(tmux_server, window, caller.server, "other") is Presence.ABSENT
    tmux_server.tmux.rename_window(window.window_id, "renamed by a human")
    assert presence(tmux_server, window, caller.server) is Presence.PRESENT
    assert tmux_server.tmux.kill_window(window.window_id, expect_pane=window.pane_id, expect_tag="worker")
    assert presence(tmux_server, window, caller.server) is Presence.ABSENT


def test_x4_the_same_ids_in_a_new_server_are_absent(tmux_server: PrivateServer, caller: CallerPane) -> None:
    window = open_window(tmux_server, caller)
    tmux_server.tmux.kill_server()
    eventually(lambda: not processes.is_alive(caller.server))
    assert tmux_server.sweep().outcome is Outcome.NO_SERVER
    assert presence(tmux_server, window, caller.server) is Presence.ABSENT
    again = open_window(tmux_server, tmux_server.start())
    assert (again.pane_id, again.window_id) == (window.pane_id, window.window_id)
    assert presence(tmux_server, window, caller.server) is Presence.ABSENT


def test_a_pane_of_another_living_server_is_unknown_here(
    tmux_server: PrivateServer, caller: CallerPane, second_server: PrivateServer
) -> None:
    window = open_window(tmux_server, caller)
    second_server.start()
    assert presence(second_server, window, caller.server) is Presence.UNKNOWN
    assert presence(tmux_server, window, caller.server) is Presence.PRESENT


def test_an_unlinked_socket_of_a_living_server_proves_nothing(tmux_server: PrivateServer, caller: CallerPane) -> None:
    window = open_window(tmux_server, caller)
    caller.socket.unlink()
    try:
        assert tmux_server.sweep().outcome is Outcome.NO_SERVER
        assert presence(tmux_server, window, caller.server) is Presence.UNKNOWN
        replacement = tmux_server.start()
        assert presence(tmux_server, window, caller.server) is Presence.UNKNOWN
        assert replacement.server != caller.server
        tmux_server.tmux.kill_server()
    finally:
        os.kill(caller.server.pid, signal.SIGUSR1)
        eventually(lambda: tmux_server.sweep().server == caller.server)
    assert presence(tmux_server, window, caller.server) is Presence.PRESENT


def test_without_a_recorded_server_only_an_answer_counts(tmux_server: PrivateServer, caller: CallerPane) -> None:
    window = open_window(tmux_server, caller)
    assert tmux_server.sweep().presence(window.pane_id, None, "worker") is Presence.PRESENT
    assert tmux_server.sweep().presence("%99", None, "worker") is Presence.ABSENT
    tmux_server.tmux.kill_server()
    assert tmux_server.sweep().presence(window.pane_id, None, "worker") is Presence.UNKNOWN


def test_a_wedged_server_is_unknown_and_changes_fail_in_time(
    tmux_server: PrivateServer, caller: CallerPane, monkeypatch: pytest.MonkeyPatch
) -> None:
    window = open_window(tmux_server, caller)
    tmux_server.freeze()
    sweep = tmux_server.tmux.sweep(deadline=0.5)
    assert sweep.outcome is Outcome.NO_ANSWER
    assert sweep.presence(window.pane_id, caller.server, "worker") is Presence.UNKNOWN
    with pytest.raises(TmuxUnreachableError):
        tmux_call.change(caller.socket, "rename-window", "-t", window.window_id, "x", deadline=0.5)
    # The tmux client that libtmux had started is gone: nothing piles up.
    commands = [processes.command_line(ref.pid) for ref in processes.descendants(os.getpid())]
    assert not [command for command in commands if str(caller.socket) in command]
    tmux_server.thaw()
    assert eventually(lambda: presence(tmux_server, window, caller.server) is Presence.PRESENT)


def test_every_verb_has_a_deadline(
    tmux_server: PrivateServer, caller: CallerPane, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmux = tmux_server.tmux
    tmux_server.freeze()
    monkeypatch.setattr(tmux_call.raw, "__kwdefaults__", {"deadline": 0.3, "input": None})
    monkeypatch.setattr(tmux_call.change, "__kwdefaults__", {"deadline": 0.3})
    verbs: list[Callable[[], object]] = [
        lambda: tmux.capture(caller.pane_id),
        lambda: tmux.send_keys(caller.pane_id, "Enter"),
        lambda: tmux.set_option(caller.pane_id, "@x", "y"),
        lambda: open_window(tmux_server, caller),
        lambda: tmux.kill_window(caller.window_id, expect_pane=caller.pane_id, expect_tag="x"),
    ]
    for verb in verbs:
        with pytest.raises(TmuxUnreachableError):
            verb()


# --- windows


def test_every_argument_variable_and_folder_arrives_whole(tmux_server: PrivateServer, caller: CallerPane) -> None:
    folder = tmux_server.folder / "cwd #{x} %Y #[b;'\"é$(x)`;"
    folder.mkdir()
    code = (
        "import json, os, sys; out = os.environ['SA_OUT'];"
        "json.dump([sys.argv[1:], os.getcwd(), os.environ['SA_X']], open(out, 'w'));"
        "os.rename(out, out + '.done'); input()"
    )
    out = tmux_server.folder / "out"
    window = tmux_server.tmux.new_window(
        session_id=caller.session_id,
        name="n;#{x} %Y",
        cwd=folder,
        argv=(sys.executable, "-c", code, *NASTY),
        tag="worker",
        env={"SA_X": "a b;#{x}%Y\n'\";", "SA_OUT": str(out)},
    )
    done = Path(f"{out}.done")
    eventually(done.exists)
    assert json.loads(done.read_text(encoding="utf-8")) == [NASTY, str(folder), "a b;#{x}%Y\n'\";"]
    assert tmux_server.sweep().panes[window.pane_id].window_name == "n;#{x} %Y"
    assert window.session_name == "main"


def test_a_new_window_stays_in_the_background_and_closes_with_its_program(tmux_server: PrivateServer) -> None:
    caller = tmux_server.start(options=["set -g remain-on-exit on", "set -g automatic-rename on"])
    window = open_window(tmux_server, caller)
    panes = tmux_server.sweep().panes
    assert panes[caller.pane_id].active
    assert not panes[window.pane_id].active
    tmux_server.tmux.send_keys(window.pane_id, "C-d")
    eventually(lambda: window.pane_id not in tmux_server.sweep().panes)


def test_hooks_of_the_user_that_split_and_rename_do_not_confuse_us(tmux_server: PrivateServer) -> None:
    hook = "set-hook -g after-new-window 'split-window -hb cat ; rename-window hooked'"
    caller = tmux_server.start(options=[hook])
    log = tmux_server.folder / "log"
    window = open_window(
        tmux_server, caller, "worker", "sh", "-c", "echo hello; exec cat -u", pipe_to=("sh", "-c", f"cat > {log}")
    )
    panes = tmux_server.sweep().panes
    assert [pane_id for pane_id, pane in panes.items() if pane.agent_tag] == [window.pane_id]
    assert len([pane for pane in panes.values() if pane.window_id == window.window_id]) == 2
    eventually(lambda: log.exists() and b"hello" in log.read_bytes())


def test_logs_begin_with_the_first_byte(tmux_server: PrivateServer, caller: CallerPane) -> None:
    for number in range(10):
        log = tmux_server.folder / f"log-{number}"
        program = ("sh", "-c", f"printf first-{number}; exec cat -u")
        open_window(tmux_server, caller, f"w{number}", *program, pipe_to=("sh", "-c", f"cat > {log}"))
        eventually(partial(holds, log, f"first-{number}".encode()))


@pytest.mark.parametrize("name", NASTY_FOLDERS)
def test_x14_output_is_logged_whatever_the_path(tmux_server: PrivateServer, caller: CallerPane, name: str) -> None:
    folder = tmux_server.folder / name
    folder.mkdir()
    log = folder / f"{name}.log"
    sink = ("sh", "-c", 'cat >> "$1"', "sink", str(log))
    window = open_window(tmux_server, caller, "worker", "sh", "-c", "echo one; exec cat -u", pipe_to=sink)
    eventually(lambda: log.exists() and b"one" in log.read_bytes())
    tmux_server.tmux.paste(window.pane_id, b"two\n")
    eventually(lambda: b"two" in log.read_bytes())
    assert not list(tmux_server.folder.glob("**/x"))


def test_a_pipe_can_be_replaced_and_ended(tmux_server: PrivateServer, caller: CallerPane) -> None:
    first, second = tmux_server.folder / "one", tmux_server.folder / "two"
    window = open_window(tmux_server, caller, pipe_to=("tee", str(first)))
    tmux_server.tmux.pipe_pane(window.pane_id, ("tee", str(second)))
    tmux_server.tmux.paste(window.pane_id, b"word\n")
    eventually(lambda: second.exists() and b"word" in second.read_bytes())
    assert not first.exists() or b"word" not in first.read_bytes()
    tmux_server.tmux.pipe_pane(window.pane_id, None)
    assert not tmux_server.sweep().panes[window.pane_id].piped


def test_a_window_that_cannot_be_set_up_is_not_left_behind(tmux_server: PrivateServer, caller: CallerPane) -> None:
    with pytest.raises(TmuxError) as caught:
        open_window(tmux_server, caller, "worker", "echo", "x" * 20_000)
    assert "long" in caught.value.stderr
    assert set(tmux_server.sweep().panes) == {caller.pane_id}


def test_an_unknown_session_is_an_error_in_tmuxs_own_words(tmux_server: PrivateServer, caller: CallerPane) -> None:
    with pytest.raises(TmuxError, match="can't find session"):
        tmux_server.tmux.new_window(session_id="$99", name="x", cwd=tmux_server.folder, argv=("cat", "-u"), tag="w")


def test_names_are_never_taken_for_ids(tmux_server: PrivateServer, caller: CallerPane) -> None:
    for wrong in ("main", "", "%1;kill-server", "@1", "=main", "%"):
        with pytest.raises(UsageError):
            tmux_server.tmux.send_keys(wrong, "Enter")
    with pytest.raises(UsageError):
        open_window(tmux_server, caller, "worker", "only-one-item")


def test_only_the_tagged_pane_is_closed(tmux_server: PrivateServer, caller: CallerPane) -> None:
    tmux = tmux_server.tmux
    window, other = open_window(tmux_server, caller), open_window(tmux_server, caller, "other")
    wrong = [(window.window_id, window.pane_id, "other"), (other.window_id, window.pane_id, "worker")]
    wrong += [(caller.window_id, caller.pane_id, "worker")]
    for window_id, pane_id, tag in wrong:
        with pytest.raises(RefusedError):
            tmux.kill_window(window_id, expect_pane=pane_id, expect_tag=tag)
    assert len(tmux_server.sweep().panes) == 3
    assert tmux.kill_window(window.window_id, expect_pane=window.pane_id, expect_tag="worker")
    assert not tmux.kill_window(window.window_id, expect_pane=window.pane_id, expect_tag="worker")
    assert set(tmux_server.sweep().panes) == {caller.pane_id, other.pane_id}


def test_a_pane_that_a_human_split_off_outlives_the_agent(tmux_server: PrivateServer, caller: CallerPane) -> None:
    window = open_window(tmux_server, caller)
    tmux_call.change(caller.socket, "split-window", "-d", "-t", window.pane_id, "cat", "-u")
    assert tmux_server.tmux.kill_window(window.window_id, expect_pane=window.pane_id, expect_tag="worker")
    panes = tmux_server.sweep().panes
    assert window.pane_id not in panes
    assert [pane for pane in panes.values() if pane.window_id == window.window_id]


def test_sixteen_windows_at_once_each_get_their_own_tag(tmux_server: PrivateServer, caller: CallerPane) -> None:
    made: list[WindowRef] = []
    threads = [
        threading.Thread(target=lambda n=n: made.append(open_window(tmux_server, caller, f"w{n}"))) for n in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    tags = {pane.agent_tag for pane in tmux_server.sweep().panes.values()}
    assert tags == {"", *(f"w{n}" for n in range(16))}
    assert len({window.pane_id for window in made}) == 16


# --- text


def receiver(server: PrivateServer, caller: CallerPane, tag: str, *, bracketed: bool) -> tuple[WindowRef, Path]:
    """A pane that writes down every byte it is given, in raw mode, until a ctrl-D."""
    out = server.folder / f"received-{tag}"
    code = (
        "import os,sys,tty; tty.setraw(0)\n"
        f"os.write(1, {b'READY' + (bytes([27]) + b'[?2004h' if bracketed else b'')!r})\n"
        "f = open(sys.argv[1], 'wb', 0)\n"
        "while (data := os.read(0, 65536)) and data != b'\\x04': f.write(data)\n"
    )
    window = open_window(server, caller, tag, sys.executable, "-c", code, str(out))
    eventually(lambda: screen_has(server, window.pane_id, "READY") and out.exists())
    return window, out


def test_text_arrives_as_one_bracketed_paste(tmux_server: PrivateServer, caller: CallerPane) -> None:
    window, out = receiver(tmux_server, caller, "worker", bracketed=True)
    text = "-x /a @b 'q\" $(x) `x` ; é世界\nsecond\n\nlast".encode()
    tmux_server.tmux.paste(window.pane_id, text)
    expected = b"\x1b[200~" + text.replace(b"\n", b"\r") + b"\x1b[201~"
    eventually(lambda: out.read_bytes() == expected)
    tmux_server.tmux.send_keys(window.pane_id, "Enter", "Escape")
    eventually(lambda: out.read_bytes() == expected + b"\r\x1b")


def test_two_megabytes_arrive(tmux_server: PrivateServer, caller: CallerPane) -> None:
    window, out = receiver(tmux_server, caller, "worker", bracketed=True)
    text = b"".join(b"%07d\n" % number for number in range(262_144))
    tmux_server.tmux.paste(window.pane_id, text)
    expected = b"\x1b[200~" + text.replace(b"\n", b"\r") + b"\x1b[201~"
    eventually(lambda: out.stat().st_size >= len(expected), deadline=30)
    assert out.read_bytes() == expected


def test_x25_two_senders_at_once_do_not_mix(tmux_server: PrivateServer, caller: CallerPane) -> None:
    targets = {name: receiver(tmux_server, caller, name, bracketed=False) for name in ("one", "two")}

    def send(name: str) -> None:
        for number in range(20):
            tmux_server.tmux.paste(targets[name][0].pane_id, f"<{name}-{number}>".encode())

    threads = [threading.Thread(target=send, args=(name,)) for name in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name, (_, out) in targets.items():
        expected = "".join(f"<{name}-{number}>" for number in range(20)).encode()
        eventually(partial(holds, out, expected))
    assert tmux_call.change(caller.socket, "list-buffers") == ""


def test_a_paste_that_fails_leaves_no_buffer(tmux_server: PrivateServer, caller: CallerPane) -> None:
    with pytest.raises(TmuxError, match="can't find pane"):
        tmux_server.tmux.paste("%99", b"secret")
    assert tmux_call.change(caller.socket, "list-buffers") == ""


def test_captures_have_scrollback_colours_and_joined_lines_on_demand(
    tmux_server: PrivateServer, caller: CallerPane
) -> None:
    code = "i=0; while [ $i -lt 80 ]; do echo line-$i; i=$((i+1)); done; printf '\\033[31mred\\033[0m'; exec cat"
    window = open_window(tmux_server, caller, "worker", "sh", "-c", code)
    eventually(lambda: screen_has(tmux_server, window.pane_id, "red"))
    assert "line-0" not in tmux_server.tmux.capture(window.pane_id)
    assert "line-0" in tmux_server.tmux.capture(window.pane_id, history=100)
    assert "\x1b[31mred" in "".join(tmux_server.tmux.capture(window.pane_id, escapes=True))
    tmux_server.tmux.paste(window.pane_id, b"w" * 300)
    eventually(lambda: screen_has(tmux_server, window.pane_id, "wwww"))
    assert any("w" * 300 in line for line in tmux_server.tmux.capture(window.pane_id, join=True))


@pytest.mark.parametrize("text", [text for text in NASTY if text and "\n" not in text and "\t" not in text])
def test_messages_are_literal(caller: CallerPane, text: str) -> None:
    shown = tmux_call.change(
        caller.socket, "display-message", "-p", "-t", caller.pane_id, "--", tmux_call.argument(tmux_call.untimed(text))
    )
    assert shown == text


def test_a_message_to_nobody_is_no_error(tmux_server: PrivateServer, caller: CallerPane) -> None:
    tmux_server.tmux.display_message(caller.pane_id, "done: 100% #{x}")


# --- servers


def test_killing_a_server_touches_no_other(tmux_server: PrivateServer, second_server: PrivateServer) -> None:
    tmux_server.start()
    other = second_server.start()
    tmux_server.tmux.kill_server()
    tmux_server.tmux.kill_server()
    assert tmux_server.sweep().outcome is Outcome.NO_SERVER
    assert second_server.sweep().server == other.server


def test_failures_are_recognised_by_tmuxs_own_words(tmux_server: PrivateServer) -> None:
    with pytest.raises(TmuxUnreachableError, match="No such file"):
        tmux_server.tmux.capture("%0")
    with pytest.raises(TmuxUnreachableError, match="No such file"):
        tmux_server.tmux.select_window("@0")
    caller = tmux_server.start()
    tmux_server.tmux.kill_server()
    eventually(lambda: not processes.is_alive(caller.server))
    with pytest.raises(TmuxUnreachableError):
        tmux_server.tmux.select_window("@0")


def test_the_version_is_a_pair_of_numbers() -> None:
    assert (3, 0) <= version() < (100, 0)


def test_looking_and_sending_load_neither_libtmux_nor_git() -> None:
    code = (
        "import sys, side_agents.infra.tmux; print(sorted({'libtmux', 'git', 'psutil', 'filelock'} & set(sys.modules)))"
    )
    done = proc.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2])
    assert done.text == "[]"

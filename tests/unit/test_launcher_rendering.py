"""The generated launcher: valid shell whatever the values, each constant exactly what was given, limits refused early."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from side_agents.core import launcher
from side_agents.core.launcher import LaunchSpec
from side_agents.errors import NotFoundError, UsageError
from side_agents.models import WindowClose
from side_agents.resources import template_path, template_text

PROMPTLESS = LaunchSpec(
    agent_id="fix",
    root=Path("/r"),
    worktree=Path("/w"),
    runtime_dir=Path("/run"),
    branch="side-agent/fix",
    client="pi",
    argv=("pi",),
    launch_token="t",
)
TEXT = st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=40)


def constants(spec: LaunchSpec, *names: str) -> list[bytes]:
    """The values that bash itself sees in these variables, arrays item by item."""
    head = launcher.render(spec).partition("\nreadonly sa_stop=")[0]
    show = "".join(f'printf "%s\\0" "${{{name}[@]}}"; ' for name in names)
    script = f"{head}\n{show}".encode("utf-8", "surrogateescape")
    done = subprocess.run(("bash",), input=script, capture_output=True, check=True, timeout=20)
    assert done.stderr == b""
    return done.stdout.split(b"\0")[:-1]


def test_f_k1_the_generated_launcher_is_valid_shell_without_placeholders() -> None:
    text = launcher.render(replace(PROMPTLESS, argv=("pi", "it's\n$(x) `y`"), client_env={"A": "'\"'"}))
    subprocess.run(("bash", "-n"), input=text.encode(), check=True, timeout=20)
    assert "@constants@" not in text
    assert re.findall(r"PI_SIDE_[A-Z_]+=", text) == [
        "PI_SIDE_AGENT_ID=",
        "PI_SIDE_PARENT_SESSION=",
        "PI_SIDE_PARENT_REPO=",
        "PI_SIDE_PARENT_BRANCH=",
        "PI_SIDE_PARENT_AGENT_ID=",
        "PI_SIDE_AGENT_DEPTH=",
        "PI_SIDE_AGENTS_ROOT=",
        "PI_SIDE_RUNTIME_DIR=",
    ]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(TEXT, min_size=1, max_size=4).filter(lambda items: bool(items[0])), TEXT, TEXT)
def test_f_q1_every_value_arrives_whole(argv: list[str], value: str, session: str) -> None:
    spec = replace(PROMPTLESS, argv=tuple(argv), client_env={"KEY": value}, parent_session=session)
    seen = constants(spec, "sa_argv", "sa_client_env", "sa_coordination")
    expected = [*argv, f"KEY={value}", *(f"{k}={v}" for k, v in launcher.coordination(spec).items())]
    assert seen == [item.encode() for item in expected]
    assert f"PI_SIDE_PARENT_SESSION={session}" in expected


def test_every_byte_but_nul_arrives() -> None:
    word = bytes(range(1, 256)).decode("utf-8", "surrogateescape")
    spec = replace(PROMPTLESS, argv=("x", word), worktree=Path("/w") / word.replace("/", ""))
    assert constants(spec, "sa_argv", "sa_worktree") == [
        b"x",
        bytes(range(1, 256)),
        b"/w/" + bytes(range(1, 256)).replace(b"/", b""),
    ]


def test_error_texts_for_the_marker_are_json_whatever_the_path() -> None:
    spec = replace(PROMPTLESS, worktree=Path("/w 'x\"\n\udcff"))
    for text in constants(spec, "sa_json_missing", "sa_json_unknown", "sa_json_toplevel", "sa_json_branch"):
        assert "/w 'x\"\n\udcff" in json.loads(text)


@pytest.mark.parametrize(
    ("policy", "ends"),
    [
        (WindowClose.KEY, [b"key", b"key"]),
        (WindowClose.CLOSE, [b"close", b"key"]),
        (WindowClose.KEEP, [b"keep", b"keep"]),
    ],
)
def test_the_window_policy_never_closes_at_once_after_a_failure(policy: WindowClose, ends: list[bytes]) -> None:
    assert constants(replace(PROMPTLESS, window_close=policy), "sa_on_success", "sa_on_failure") == ends


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"argv": ()}, "no command"),
        ({"argv": ("",)}, "no command"),
        ({"argv": ("pi", "a\0b")}, "NUL"),
        ({"argv": ("pi", "x" * 131_072)}, "131072 bytes"),
        ({"argv": ("pi", "ü" * 65_536)}, "131072 bytes"),
        ({"argv": ("pi", "\ud800")}, "UTF-8"),
        ({"client_env": {"A": "x" * 131_070}}, "131072 bytes"),
        ({"client_env": {"A=B": "x"}}, "'A=B' is no name"),
        ({"client_env": {"1A": "x"}}, "'1A' is no name"),
        ({"client_env": {"A\n": "x"}}, "is no name"),
        ({"branch": "a\0b"}, "NUL"),
    ],
)
def test_what_no_process_can_be_given_is_refused_before_anything_starts(change: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        launcher.render(replace(PROMPTLESS, **change))
    assert "othing was started" in caught.value.message


def test_the_longest_argument_that_linux_takes_is_taken() -> None:
    assert constants(replace(PROMPTLESS, argv=("pi", "x" * 131_071)), "sa_argv")[1] == b"x" * 131_071


@pytest.mark.parametrize("folder", ["/plain/x", "/a %Y #{x} ; 'q' \"d\" $H \\ ü/日本"])
def test_x14_the_backlog_program_gets_its_paths_whole(tmp_path: Path, folder: str) -> None:
    runtime = tmp_path / folder.lstrip("/")
    runtime.mkdir(parents=True)
    subprocess.run(launcher.backlog_argv(runtime), input=b"one\ntwo", check=True, timeout=20)
    assert (runtime / "backlog.log").read_bytes() == b"one\ntwo"


def test_the_backlog_is_cut_to_its_last_half_and_no_input_is_lost_on_the_way(tmp_path: Path) -> None:
    data = b"".join(b"%07d\n" % number for number in range(700_000))
    subprocess.run(launcher.backlog_argv(tmp_path), input=data, check=True, timeout=60)
    kept = (tmp_path / "backlog.log").read_bytes()
    assert data.endswith(kept)
    assert launcher.BACKLOG_CAP // 2 <= len(kept) <= launcher.BACKLOG_CAP + 256 * 1024
    assert [path.name for path in tmp_path.iterdir()] == ["backlog.log"]


def test_a_backlog_that_cannot_be_written_still_takes_all_input(tmp_path: Path) -> None:
    (tmp_path / "backlog.log").mkdir()
    subprocess.run(launcher.backlog_argv(tmp_path), input=b"x" * 3_000_000, check=True, timeout=60)


def test_b26_an_earlier_runtime_folder_is_archived_and_named(tmp_path: Path) -> None:
    runtime, archive = tmp_path / "runtime" / "fix", tmp_path / "runtime-archive" / "fix"
    assert launcher.prepare_runtime(runtime, archive) is None
    (runtime / "exit.json").write_text("{}")
    warning = launcher.prepare_runtime(runtime, archive)
    (kept,) = archive.iterdir()
    assert warning is not None
    assert str(kept) in warning
    assert sorted(path.name for path in kept.iterdir()) == ["backlog.log", "exit.json"]
    assert [path.name for path in runtime.iterdir()] == ["backlog.log"]
    assert (runtime.stat().st_mode & 0o777, archive.stat().st_mode & 0o777) == (0o700, 0o700)


def test_b26_a_dangling_link_in_the_place_of_the_runtime_folder_is_archived_too(tmp_path: Path) -> None:
    runtime = tmp_path / "fix"
    runtime.symlink_to(tmp_path / "gone")
    assert launcher.prepare_runtime(runtime, tmp_path / "archive") is not None
    assert runtime.is_dir()
    assert not runtime.is_symlink()


def test_the_launcher_is_written_private_and_executable(tmp_path: Path) -> None:
    path = launcher.write(replace(PROMPTLESS, runtime_dir=tmp_path))
    assert path.stat().st_mode & 0o777 == 0o700
    assert launcher.window_argv(path) == ("bash", str(path))


@pytest.mark.parametrize("name", ["launch.sh", "suspended-shell.sh", "log-cap.sh"])
def test_templates_are_found_and_valid(name: str) -> None:
    assert template_text(name) == template_path(name).read_text(encoding="utf-8")
    subprocess.run(("bash", "-n", str(template_path(name))), check=True, timeout=20)


def test_a_missing_template_is_named() -> None:
    with pytest.raises(NotFoundError, match="no-such"):
        template_text("no-such")


def test_b41_no_gnu_only_options_in_the_templates() -> None:
    for name in ("launch.sh", "log-cap.sh", "suspended-shell.sh"):
        assert not re.search(
            r"date -d|readlink -f|sed -i|head -[0-9]|--show-current|stat -c|sort -V", template_text(name)
        )

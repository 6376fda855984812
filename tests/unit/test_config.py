"""Settings from TOML: defaults, precedence, and everything that is refused."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from side_agents import config
from side_agents.client_spec import CustomClientSpec, PromptDelivery, StatusSource
from side_agents.config import Config, load
from side_agents.errors import UsageError
from side_agents.models import WindowClose
from side_agents.paths import user_config
from side_agents.schemas import validate


def file(folder: Path, content: str | bytes, name: str = "config.toml") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_without_a_file_everything_has_its_default(tmp_path: Path) -> None:
    assert load((tmp_path / "none.toml", tmp_path / "nowhere" / "none.toml")) == Config()
    assert load(()) == Config()
    assert list(tmp_path.iterdir()) == []


def test_without_a_file_nothing_heavy_is_loaded(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from side_agents.config import load; load((Path(sys.argv[1]),));"
        "print(sorted({'pydantic', 'filelock', 'git', 'libtmux', 'psutil'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "none.toml"],
        cwd=Path(config.__file__).parents[1],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert done.stdout.strip() == "[]"


def test_settings_of_every_kind_can_be_set(tmp_path: Path) -> None:
    path = file(
        tmp_path,
        """
        client = "mine"
        model = "m/x:high"
        max_depth = 3
        window_close = "close"
        backlog_max_bytes = 65536
        lock_timeout = 5
        git_timeout = 1.5
        git_hooks = true
        send_timeout = 0
        start_owner_timeout = 60
        parent_session_in_prompt = false
        [clients.mine]
        argv = ["mine", "--flag"]
        prompt = "file"
        prompt_args = ["{prompt_file}"]
        status = "journal"
        env = { KEY = "value" }
        """,
    )
    assert load((path,)) == Config(
        client="mine",
        model="m/x:high",
        max_depth=3,
        window_close=WindowClose.CLOSE,
        backlog_max_bytes=65536,
        lock_timeout=5.0,
        git_timeout=1.5,
        git_hooks=True,
        send_timeout=0.0,
        start_owner_timeout=60.0,
        parent_session_in_prompt=False,
        clients={
            "mine": CustomClientSpec(
                name="mine",
                argv=("mine", "--flag"),
                prompt=PromptDelivery.FILE,
                prompt_args=("{prompt_file}",),
                status=StatusSource.JOURNAL,
                env={"KEY": "value"},
            )
        },
    )


def test_the_projects_file_wins_over_the_users_key_by_key(tmp_path: Path) -> None:
    user = file(
        tmp_path, 'client = "pi"\nmodel = "u"\n[clients.a]\nargv = ["u-a"]\n[clients.b]\nargv = ["u-b"]', "user.toml"
    )
    project = file(tmp_path, 'model = "p"\n[clients.b]\nargv = ["p-b"]\n[clients.c]\nargv = ["p-c"]', "project.toml")
    merged = load((user, project))
    assert (merged.client, merged.model) == ("pi", "p")
    assert {name: spec.argv for name, spec in merged.clients.items()} == {
        "a": ("u-a",), "b": ("p-b",), "c": ("p-c",)
    }  # fmt: skip
    assert load((user, tmp_path / "none")).model == "u"


REFUSED = [
    ("max_dept = 3", "max_dept"),
    ("[limits]\nmax_depth = 3", "limits"),
    ('max_depth = "3"', "max_depth"),
    ("max_depth = 2.0", "max_depth"),
    ("max_depth = true", "max_depth"),
    ("max_depth = -1", "max_depth"),
    ("client = 5", "client"),
    ("client = 2026-03-03", "not JSON serializable"),
    ("git_hooks = 1", "git_hooks"),
    ('window_close = "later"', "window_close"),
    ("lock_timeout = -0.5", "lock_timeout"),
    ("lock_timeout = nan", "float"),
    ("lock_timeout = inf", "float"),
    ("git_timeout = 0", "git_timeout"),
    ("send_timeout = -1", "send_timeout"),
    ("start_owner_timeout = 0", "start_owner_timeout"),
    ("backlog_max_bytes = 10", "backlog_max_bytes"),
    ("clients = 5", "clients"),
    ("clients = []", "clients"),
    ("[clients]\nmine = 5", "clients"),
    ("[clients.mine]\n", "argv"),
    ('[clients.mine]\nargv = "mine"', "argv"),
    ('[clients.mine]\nargv = ["mine"]\nname = "pi"', "leave the name out"),
    ('[clients.mine]\nargv = ["mine"]\nname = 5', "leave the name out"),
    ('[clients.mine]\nargv = ["mine"]\ncolour = "red"', "colour"),
    ('[clients.mine]\nargv = ["mine"]\nprompt = "mail"', "prompt"),
    ('[clients.mine]\nargv = ["mine"]\nenv = { A = 1 }', "env"),
    ("not toml", "not valid TOML"),
    ('model = "a"\nmodel = "b"', "not valid TOML"),
]


@pytest.mark.parametrize(("content", "named"), REFUSED)
def test_what_cannot_be_right_is_refused_with_the_file_and_the_reason(tmp_path: Path, content: str, named: str) -> None:
    path = file(tmp_path, content)
    with pytest.raises(UsageError) as caught:
        load((path,))
    assert str(path) in caught.value.message
    assert named in caught.value.message


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not valid TOML"):
        load((file(tmp_path, b'model = "\xff"'),))


def test_a_folder_in_place_of_the_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        load((tmp_path,))


def test_a_fault_in_the_users_file_is_blamed_on_it_also_where_the_project_overrides_it(tmp_path: Path) -> None:
    user, project = file(tmp_path, "max_depth = -1", "user.toml"), file(tmp_path, "max_depth = 2", "project.toml")
    with pytest.raises(UsageError, match=r"user\.toml"):
        load((user, project))


def test_every_setting_has_a_description() -> None:
    assert set(config.DESCRIPTIONS) == {field.name for field in dataclasses.fields(Config)}


def test_the_effective_settings_can_be_shown_as_json(tmp_path: Path) -> None:
    loaded = load((file(tmp_path, 'max_depth = 3\n[clients.mine]\nargv = ["mine"]'),))
    shown = json.loads(json.dumps(config.effective(loaded)))
    assert shown["max_depth"] == 3
    assert shown["window_close"] == "key"
    assert shown["clients"]["mine"]["argv"] == ["mine"]


@pytest.mark.parametrize(
    ("environment", "folder"),
    [({}, "/h/.config"), ({"XDG_CONFIG_HOME": "/x"}, "/x"), ({"XDG_CONFIG_HOME": "rel"}, "/h/.config")],
)
def test_the_users_file_is_where_the_system_keeps_settings(environment: dict[str, str], folder: str) -> None:
    assert str(user_config(environment, Path("/h"))) == f"{folder}/side-agents/config.toml"


PLAIN_SETTINGS = """
client = "mine"
window_close = "keep"
lock_timeout = 3
send_timeout = 2.5
git_hooks = true

[clients.mine]
argv = ["mine", "--fast"]
prompt = "argv"
prompt_args = ["--", "{prompt}"]
quiet_seconds = 1
env = { MODE = "x" }
"""


def test_plain_settings_are_read_as_pydantic_reads_them_but_without_it(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(PLAIN_SETTINGS)
    table = tomllib.loads(PLAIN_SETTINGS)
    table["clients"]["mine"]["name"] = "mine"
    assert config.load((path,)) == validate(config.Config, table, what="test")
    code = f"import sys; from pathlib import Path; from side_agents import config; config.load((Path({str(path)!r}),))"
    shown = subprocess.run(
        [sys.executable, "-c", f"{code}; print('pydantic' in sys.modules)"], capture_output=True, text=True, check=True
    )
    assert shown.stdout == "False\n"


def test_a_misspelt_setting_is_answered_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"clinet: there is no such setting; did you mean client\?\. Nothing"):
        load((file(tmp_path, 'clinet = "pi"\n'),))
    with pytest.raises(UsageError, match=r"zzzzzz: there is no such setting\. Nothing"):
        load((file(tmp_path, "zzzzzz = 1\n"),))

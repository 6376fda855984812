"""What setup proposes for a project, and the syntax of the list of files to copy; git itself is the judge of the latter."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from side_agents.core import include_list
from side_agents.core.bootstrap import Folder, propose, propose_below, worth_copying
from side_agents.core.check_proposals import propose_checks
from side_agents.core.include_list import Mode
from side_agents.core.settings_edit import differing, with_values
from side_agents.core.setup_survey import folders_of
from side_agents.errors import UsageError
from tests.support.repositories import Repository, make_repository


def folder(*names: str, **texts: str) -> Folder:
    """Keyword names stand for files whose text matters; ``__`` is a dot."""
    found = {name.replace("__", "."): text for name, text in texts.items()}
    return Folder(frozenset((*names, *found)), found)


def commands(given: Folder, *, chosen: bool = True) -> list[str]:
    return [step.command for step in propose(given) if step.chosen is chosen]


NODE = {
    "package-lock.json": "npm ci --prefer-offline --no-audit --no-fund",
    "npm-shrinkwrap.json": "npm ci --prefer-offline --no-audit --no-fund",
    "pnpm-lock.yaml": "pnpm install --frozen-lockfile --prefer-offline",
    "yarn.lock": "yarn install --frozen-lockfile --prefer-offline",
    "bun.lock": "bun install --frozen-lockfile",
    "bun.lockb": "bun install --frozen-lockfile",
}


@pytest.mark.parametrize("lock", NODE)
def test_the_lock_file_decides_the_node_package_manager(lock: str) -> None:
    assert commands(folder("package.json", lock)) == [NODE[lock]]


def test_the_declared_package_manager_decides_between_two_lock_files() -> None:
    two = folder("package-lock.json", "pnpm-lock.yaml", package__json='{"packageManager": "npm@10.1.0"}')
    assert commands(two) == [NODE["package-lock.json"]]


def test_a_declared_manager_without_its_lock_file_does_not_beat_the_lock_that_is_there() -> None:
    assert commands(folder("yarn.lock", package__json='{"packageManager": "bun@1"}')) == [NODE["yarn.lock"]]


@pytest.mark.parametrize("manager", ["npm", "pnpm", "yarn", "bun"])
def test_without_a_lock_file_none_is_written(manager: str) -> None:
    (command,) = commands(folder(package__json=f'{{"packageManager": "{manager}@1"}}'))
    assert re.fullmatch(rf"{manager} install .*--no-(package-lock|lockfile|save).*", command)


def test_yarn_berry_is_told_by_its_settings() -> None:
    assert commands(folder("package.json", "yarn.lock", ".yarnrc.yml")) == ["yarn install --immutable"]
    assert commands(folder("package.json", yarn__lock="__metadata:\n")) == ["yarn install --immutable"]


@pytest.mark.parametrize("text", ["", "{", "[]", "[" * 100_000, '{"packageManager": 3, "scripts": []}'])
def test_broken_files_are_no_obstacle(text: str) -> None:
    broken = folder(package__json=text, pyproject__toml=text)
    assert commands(broken) == ["npm install --no-package-lock --no-audit --no-fund"]
    assert propose_checks(broken) == ()


@pytest.mark.parametrize(
    ("names", "command"),
    [
        (("uv.lock", "pyproject.toml"), "uv sync --frozen"),
        (("poetry.lock", "pyproject.toml"), "poetry install --no-interaction"),
        (("pdm.lock", "pyproject.toml"), "pdm sync"),
        (("Pipfile.lock",), "pipenv sync --dev"),
        (("Cargo.toml", "Cargo.lock"), "cargo fetch --locked"),
        (("Cargo.toml",), "cargo fetch"),
        (("go.mod",), "go mod download"),
        (("App.sln", "packages.lock.json"), "dotnet restore --locked-mode"),
        (("App.csproj",), "dotnet restore"),
        (("Gemfile", "Gemfile.lock"), "BUNDLE_FROZEN=true bundle install"),
        (("composer.json", "composer.lock"), "composer install --no-interaction"),
        (("mix.exs",), "mix deps.get"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_ecosystem_has_its_step(names: tuple[str, ...], command: str) -> None:
    assert commands(folder(*names)) == [command]


def test_requirements_go_into_a_virtual_environment_that_is_made_once() -> None:
    (command,) = commands(folder("requirements.txt", "requirements-dev.txt"))
    assert command.startswith("[ -d .venv ] || python3 -m venv .venv && .venv/bin/python -m pip install")
    assert command.endswith("-r requirements.txt -r requirements-dev.txt")


def test_a_python_package_without_a_lock_is_installed_editable() -> None:
    (command,) = commands(folder(pyproject__toml='[build-system]\nrequires = ["x"]\n'))
    assert command.endswith("--editable .")
    assert commands(folder(pyproject__toml="[tool.ruff]\n")) == []


def test_what_may_do_anything_is_offered_but_not_chosen() -> None:
    project = folder(
        ".gitmodules", "pom.xml", "mvnw", "gradlew", "build.gradle.kts",
        Makefile="CC := gcc\nsetup: deps\n\techo\n.PHONY: x\n", justfile="set shell := ['x']\nbootstrap arg='1':\n  x\n",
        __gitattributes="*.psd filter=lfs diff=lfs\n",
    )  # fmt: skip
    assert commands(project) == []
    assert commands(project, chosen=False) == [
        "git submodule update --init --recursive", "git lfs pull", "./gradlew --quiet dependencies",
        "./mvnw --quiet --batch-mode dependency:go-offline", "make setup", "just bootstrap",
    ]  # fmt: skip


def test_folders_below_count_by_their_lock_files_and_are_quoted() -> None:
    _, below = folders_of(
        Path("/nowhere"),
        ["my app/package.json", "my app/package-lock.json", "lib/package.json", "$(x)/go.sum", "$(x)/go.mod"],
    )
    found = [step.command for step in propose_below(below)]
    assert found == ["(cd -- '$(x)' && go mod download)", f"(cd -- 'my app' && {NODE['package-lock.json']})"]


CHECKS = {
    "make check": folder(Makefile="all: x\ncheck test: x\n"),
    "just test": folder(justfile="@test *args:\n  x\n"),
    "CI=1 pnpm test": folder("pnpm-lock.yaml", package__json='{"scripts": {"test": "vitest"}}'),
    "CI=1 bun run test": folder("bun.lock", package__json='{"scripts": {"test": "x"}}'),
    "uv run pytest -q": folder("uv.lock", pyproject__toml="[tool.pytest.ini_options]\n"),
    ".venv/bin/python -m pytest -q": folder("requirements.txt", "pytest.ini"),
    "python3 -m pytest -q": folder("conftest.py"),
    "cargo test": folder("Cargo.toml"),
    "go test ./...": folder("go.mod"),
    "bundle exec rspec": folder("Gemfile", "spec"),
    "./gradlew --quiet check": folder("gradlew", "settings.gradle"),
    "mvn --quiet --batch-mode verify": folder("pom.xml"),
    "composer test": folder(composer__json='{"scripts": {"test": "phpunit"}}'),
}


@pytest.mark.parametrize("command", CHECKS)
def test_the_likeliest_check_comes_first(command: str) -> None:
    assert propose_checks(CHECKS[command])[0].command == command


@pytest.mark.parametrize("script", ['echo \\"Error: no test specified\\" && exit 1', "vitest --watch"])
def test_a_test_script_that_tests_nothing_or_never_ends_is_no_check(script: str) -> None:
    assert propose_checks(folder(package__json=f'{{"scripts": {{"test": "{script}"}}}}')) == ()


def test_private_settings_are_worth_copying_and_nothing_that_can_be_made_anew() -> None:
    private = [".env", "web/.env.local", ".dev.vars", "config/master.key", "config/credentials/dev.key", "a.local.json"]
    others = [
        "node_modules/x/.env",
        "debug.log",
        ".env.swp",
        "node_modules/",
        ".claude/settings.local.json",
        "a.pyc",
        "env",
    ]
    assert worth_copying([*private, *others]) == tuple(private)


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory, guard_session: None) -> Repository:
    return make_repository(tmp_path_factory.mktemp("judge") / "repo")


WORDS = st.text("ab.*?[]!-\\ #é", min_size=1, max_size=5)
LINES = st.lists(
    st.builds(
        lambda before, parts, after: before + "/".join(parts) + after,
        st.sampled_from(["", "", "!", "/", "!/"]), st.lists(st.one_of(WORDS, st.just("**")), min_size=1, max_size=3),
        st.sampled_from(["", "", "/", " ", "\\ "]),
    ),
    min_size=1, max_size=4,
)  # fmt: skip
PATHS = st.lists(
    st.text("ab.!-é", min_size=1, max_size=3).filter(lambda name: name.strip(".") != ""), min_size=1, max_size=3
)


@settings(
    max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(lines=LINES, parts=PATHS)
def test_patterns_mean_what_they_mean_to_git(judge: Repository, lines: list[str], parts: list[str]) -> None:
    path = "/".join(parts)
    (judge.path / ".gitignore").write_text("\n".join(lines) + "\n", encoding="utf-8")
    shown = judge.git("check-ignore", "--no-index", "--", path, check=False)
    ours = include_list.choose(include_list.parse("\n".join(lines)), path)
    assert (ours is Mode.COPY) == bool(shown), (lines, path)


@pytest.mark.parametrize(
    ("line", "path", "mode"),
    [
        ("link:node_modules/", "node_modules/", Mode.LINK),
        ("link: data/*.bin", "data/a.bin", Mode.LINK),
        ("copy:.env", "x/.env", Mode.COPY),
        (r"\link:x", "link:x", Mode.COPY),
        (r"a\/b", "a/b", Mode.COPY),
        ("node_modules/", "node_modules", None),
        (".env\r", ".env", Mode.COPY),
        ("\ufeff.env", ".env", Mode.COPY),
    ],
)
def test_a_prefix_says_how(line: str, path: str, mode: Mode | None) -> None:
    assert include_list.choose(include_list.parse(line), path) is mode


def test_a_link_can_be_taken_back_for_one_name() -> None:
    patterns = include_list.parse("link:data/*\n!data/own\n")
    assert include_list.choose(patterns, "data/big") is Mode.LINK
    assert include_list.choose(patterns, "data/own") is None


@pytest.mark.parametrize(
    ("line", "inside", "leads"),
    [
        ("build/secret.key", "build/", True),
        ("build/**/x", "build/a/b/", True),
        ("*/x", "build/", True),
        ("secret.key", "build/", False),
        ("**/secret.key", "build/", False),
        ("build", "build/", False),
        ("other/x", "build/", False),
        ("!build/x", "build/", False),
    ],
)
def test_a_folder_that_git_ignores_is_entered_only_by_name(line: str, inside: str, leads: bool) -> None:
    assert include_list.leads_into(include_list.parse(line), inside) is leads


@given(
    st.text(st.characters(exclude_characters="/\n\0", exclude_categories=["Cs"]), min_size=1).filter(
        lambda n: n not in (".", "..")
    )
)
def test_a_literal_line_matches_its_path_and_no_other(name: str) -> None:
    patterns = include_list.parse(include_list.literal(name))
    assert include_list.choose(patterns, name) is Mode.COPY
    assert include_list.choose(patterns, f"x{name}") is None
    assert include_list.choose(patterns, f"x/{name}") is None


SETTINGS_TEXT = '# mine\nclient = "own" # why\n# finish_check =\n\n[clients.own]\nargv = ["x"]\nfinish_policy = "no"\n'


def test_settings_are_set_in_place_and_everything_else_stays() -> None:
    changed = with_values(SETTINGS_TEXT, {"finish_policy": "merge", "finish_check": 'a "b" \\ é'})
    assert changed == SETTINGS_TEXT.replace("# finish_check =", 'finish_check = "a \\"b\\" \\\\ é"').replace(
        "\n\n[", '\nfinish_policy = "merge"\n\n['
    )
    assert tomllib.loads(changed)["finish_check"] == 'a "b" \\ é'
    assert with_values(changed, {"finish_check": None, "finish_policy": None}) == SETTINGS_TEXT.replace(
        "# finish_check =\n", ""
    )


def test_settings_of_an_empty_file_end_in_a_line_break() -> None:
    assert with_values("", {"a": "1", "b": None}) == 'a = "1"\n'
    assert differing('a = "1"\n', {"a": "2", "b": "3"}) == ("a",)


@pytest.mark.parametrize(
    "text", ['a = """\n[x]\nfinish_policy = 1\n"""\nfinish_policy = "y"\n', 'finish_policy = """\nx\n"""\n', "a = "]
)
def test_settings_that_cannot_be_set_safely_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        with_values(text, {"finish_policy": "merge"})


def test_a_value_that_toml_cannot_hold_is_refused() -> None:
    with pytest.raises(UsageError):
        with_values("", {"finish_check": "caf\udce9"})

"""Who may import whom (DESIGN 3), who may start programs, print and read the environment: read from the source."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import side_agents

PACKAGE = "side_agents"
ROOT = Path(side_agents.__file__).parent

# What each layer may import, besides itself: its names are the first parts below side_agents.
PURE = frozenset(("errors", "models", "names"))
LOWER = PURE | {"paths", "config", "schemas", "client_spec", "resources", "infra"}
ALLOWED: dict[str, frozenset[str]] = {
    **dict.fromkeys(PURE, frozenset()),
    "client_spec": PURE,
    "paths": PURE,
    "resources": PURE,
    "schemas": PURE,
    "config": PURE | {"schemas", "client_spec"},
    "infra": PURE | {"paths"},
    "forum": PURE | {"paths", "config", "schemas", "infra"},
    "core": LOWER | {"clients", "forum"},
    "clients": LOWER,
    "tools": LOWER | {"core", "clients", "forum"},
    "companion": LOWER | {"core", "clients", "tools"},
    "cli": LOWER | {"core", "clients", "tools", "companion", "forum"},
    "__main__": frozenset(("cli",)),
}
# Siblings in infra know each other only through these, and within one family (git_*, tmux_*).
INFRA_COMMON = frozenset(("proc", "fs", "clock", "processes"))
# The core knows clients through their interface and the table that finds them.
CLIENT_FACES = frozenset(("clients", "clients.interface"))
# Within the forum, from below: the store knows no rule, the service no transport, the client no shortcut past the API.
FORUM_LAYERS: dict[str, frozenset[str]] = {
    "store": frozenset(),
    "service": frozenset(("store",)),
    "server": frozenset(("service", "store")),
    "client": frozenset(),
}
# The one door through which a client reaches a forum in its own process.
IN_PROCESS = "forum.client.in_process"
# Where a library may be used at all; of these only the light ones may be imported at the top of a module.
LIBRARIES: dict[str, tuple[str, ...]] = {
    "anyascii": ("infra.text",),
    "apsw": ("forum.store",),
    "click": ("cli",),
    "filelock": ("infra.fs",),
    "git": ("infra.git",),
    "httpx": ("forum.client",),
    "inotify_simple": ("infra.events",),
    "libtmux": ("infra.tmux",),
    "platformdirs": ("cli",),
    "psutil": ("infra.processes", "infra.tmux_call"),
    "pydantic": ("schemas",),
    "starlette": ("forum.server",),
    "subprocess": ("infra.proc",),
    "uvicorn": ("forum.server",),
}
# Modules that extend a class of a heavy library; whoever needs one loads it late.
EXTENSIONS = {("forum.server.http_server", "uvicorn")}
# apsw loads in 3 ms, and only what opens a forum loads the store.
LIGHT = frozenset(("apsw", "click", "subprocess"))
# Loaded by a program that serves, inside the function that does; there a library's classes are extended.
SERVING = "forum.server.http_server"
SQL = re.compile(
    r"\b(SELECT\s.+\sFROM\s|INSERT\s+(OR\s+\w+\s+)?INTO\s|UPDATE\s+\w+\s+SET\s|DELETE\s+FROM\s|CREATE\s+(VIRTUAL\s+)?TABLE"
    r"|PRAGMA\s+\w+|BEGIN\s+IMMEDIATE)",
    re.DOTALL,
)
# The command line is the border; git's door takes foreign variables out of our environment before it passes it on.
ENVIRONMENT_READERS = ("cli", "infra.git_call")
# A program of its own that owns a terminal, not part of the product's process.
PROGRAM = "clients.script_"


@dataclass(frozen=True)
class Import:
    """One import: ``top`` when it runs as the module is loaded."""

    module: str
    name: str
    line: int
    top: bool


@dataclass(frozen=True)
class Module:
    name: str
    tree: ast.Module
    imports: tuple[Import, ...] = field(default=())

    @property
    def layer(self) -> str:
        return self.name.split(".")[0]


@cache
def modules() -> dict[str, Module]:
    """All modules by their name below the package; the package itself is ``""``."""
    files = {_name_of(path): path for path in ROOT.rglob("*.py")}
    parsed = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in files.items()}
    return {name: Module(name, tree, tuple(_imports(name, tree, set(files)))) for name, tree in parsed.items()}


def _name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(module: str, tree: ast.Module, known: set[str]) -> Iterator[Import]:
    top = {id(node) for statement in tree.body for node in _at_load(statement)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}:{node.lineno}: relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            yield Import(module, _resolve(name, known), node.lineno, id(node) in top)


def _resolve(name: str, known: set[str]) -> str:
    """``side_agents.infra.fs.replace`` as ``side_agents.infra.fs``; names of others as they are."""
    if name != PACKAGE and not name.startswith(f"{PACKAGE}."):
        return name
    below = name.removeprefix(PACKAGE).removeprefix(".")
    while below and below not in known:
        below = below.rpartition(".")[0]
    return f"{PACKAGE}.{below}" if below else PACKAGE


def _at_load(statement: ast.stmt) -> Iterator[ast.AST]:
    if isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.dump(statement.test):
        return
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        return
    yield statement
    for child in ast.iter_child_nodes(statement):
        if isinstance(child, ast.stmt | ast.ExceptHandler):
            yield from _at_load(child)  # type: ignore[arg-type]  # handlers only have statements below them


def own_imports() -> Iterator[tuple[Module, Import, str]]:
    """Imports of our own modules: who, where, and the target's name below the package ("" is the package)."""
    for module in modules().values():
        for found in module.imports:
            if found.name == PACKAGE or found.name.startswith(f"{PACKAGE}."):
                yield module, found, found.name.removeprefix(PACKAGE).removeprefix(".")


def is_within(name: str, places: tuple[str, ...]) -> bool:
    """Whether a module is one of the places, below one, or of its family (``infra.git`` covers ``infra.git_call``)."""
    return any(name == place or name.startswith((f"{place}.", f"{place}_")) for place in places)


def test_every_module_belongs_to_a_layer() -> None:
    assert {module.layer for name, module in modules().items() if name} <= set(ALLOWED)


def test_layers_import_only_what_lies_below_them() -> None:
    faults = [
        f"{module.name}:{found.line} imports {target}"
        for module, found, target in own_imports()
        if target and module.name and target.split(".")[0] not in ALLOWED[module.layer] | {module.layer}
    ]
    assert faults == []


def test_only_the_tool_command_knows_the_tools() -> None:
    assert {module.name for module, _, target in own_imports() if module.layer == "cli" and "tools" in target} == {
        "cli.tool"
    }


def test_siblings_in_infra_know_each_other_only_through_the_common_ones() -> None:
    faults = []
    for module, found, target in own_imports():
        if not (module.name.startswith("infra.") and target.startswith("infra.")):
            continue
        here, there = module.name.split(".")[1], target.split(".")[1]
        if there not in INFRA_COMMON and here.split("_")[0] != there.split("_")[0]:
            faults.append(f"{module.name}:{found.line} imports {target}")
    assert faults == []


def test_the_core_knows_clients_only_through_their_interface() -> None:
    faults = [
        f"{module.name}:{found.line} imports {target}"
        for module, found, target in own_imports()
        if module.layer == "core" and target.split(".")[0] == "clients" and target not in CLIENT_FACES
    ]
    assert faults == []


def test_the_core_knows_the_forum_only_as_a_client_and_by_its_bounds() -> None:
    faults = [
        f"{module.name}:{found.line} imports {target}"
        for module, found, target in own_imports()
        if module.layer == "core"
        and target.startswith("forum")
        and not is_within(target, ("forum.client", "forum.limits"))
    ]
    assert faults == []


def test_the_forums_parts_import_only_what_lies_below_them() -> None:
    faults = []
    for module, found, target in own_imports():
        here, there = _forum_part(module.name), _forum_part(target)
        if here and there and there != here and there not in FORUM_LAYERS[here] and module.name != IN_PROCESS:
            faults.append(f"{module.name}:{found.line} imports {target}")
    assert faults == []


def _forum_part(name: str) -> str | None:
    part = name.removeprefix("forum.").split(".")[0] if name.startswith("forum.") else None
    return part if part in FORUM_LAYERS else None


def test_sql_is_written_only_in_the_forums_store() -> None:
    faults = [
        f"{module.name}:{node.lineno}"
        for module in modules().values()
        if not is_within(module.name, ("forum.store",))
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and SQL.search(node.value)
    ]
    assert faults == []


def test_the_search_for_sql_finds_what_the_store_has() -> None:
    found = {
        module.name
        for module in modules().values()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and SQL.search(node.value)
    }
    assert {"forum.store.schema", "forum.store.identities", "forum.store.writer"} <= found


def test_pure_modules_use_nothing_but_the_standard_library() -> None:
    faults = [
        f"{name} imports {found.name}"
        for name in PURE
        for found in modules()[name].imports
        if found.name.split(".")[0] not in sys.stdlib_module_names or found.name.split(".")[0] in ("os", "socket", "io")
    ]
    assert faults == []


@pytest.mark.parametrize("library", LIBRARIES)
def test_each_library_is_used_in_one_place(library: str) -> None:
    faults = [
        f"{module.name}:{found.line}"
        for module in modules().values()
        for found in module.imports
        if found.name.split(".")[0] == library and not is_within(module.name, LIBRARIES[library])
    ]
    assert faults == []


def test_no_other_library_is_used() -> None:
    known = {*LIBRARIES, *sys.stdlib_module_names, PACKAGE}
    used = {found.name.split(".")[0] for module in modules().values() for found in module.imports}

    assert used - known == set()


def test_heavy_libraries_are_imported_inside_functions() -> None:
    heavy = set(LIBRARIES) - LIGHT
    faults = [
        f"{module.name}:{found.line} imports {found.name} when it is loaded"
        for module in modules().values()
        for found in module.imports
        if found.top and found.name.split(".")[0] in heavy and module.name != SERVING
    ]
    assert faults == []


def test_what_serves_is_itself_imported_inside_functions() -> None:
    assert [module.name for module, found, target in own_imports() if target == SERVING and found.top] == []


def test_there_are_no_cycles_not_even_through_late_imports() -> None:
    graph: dict[str, set[str]] = {name: set() for name in modules()}
    for module, _, target in own_imports():
        # A package re-exports its modules; importing one of them loads the package, which is no cycle.
        if target != module.name and not (target and module.name.startswith(f"{target}.")):
            graph[module.name].add(target)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"cycle: {' -> '.join(map(str, error.args[1]))}")


def _calls(module: Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call):
            yield node.lineno, ast.unparse(node.func)


def test_nothing_but_the_command_line_prints() -> None:
    writers = ("print", "sys.stdout.write", "sys.stderr.write", "sys.stdout.buffer.write", "click.echo", "input")
    faults = [
        f"{module.name}:{line} calls {called}"
        for module in modules().values()
        if module.layer != "cli" and not module.name.startswith(PROGRAM)
        for line, called in _calls(module)
        if called in writers
    ]
    assert faults == []


def test_nothing_below_the_command_line_reads_the_environment_or_changes_directory() -> None:
    words = {"os.environ", "os.environb", "os.getenv", "os.chdir", "os.putenv", "Path.home", "Path.cwd", "os.getcwd"}
    faults = [
        f"{module.name}:{node.lineno} uses {ast.unparse(node)}"
        for module in modules().values()
        if not is_within(module.name, ENVIRONMENT_READERS) and not module.name.startswith(PROGRAM)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node) in words
    ]
    assert faults == []


def test_no_program_is_started_around_the_door() -> None:
    starters = ("os.system", "os.popen", "os.fork", "os.spawn", "os.posix_spawn", "os.exec", "pty.")
    faults = [
        f"{module.name}:{line} calls {called}"
        for module in modules().values()
        if module.name != "infra.proc" and not module.name.startswith(PROGRAM)
        for line, called in _calls(module)
        if called.startswith(starters)
    ]
    assert faults == []


def test_the_check_itself_sees_late_and_top_imports() -> None:
    source = "import a\nif TYPE_CHECKING:\n    import b\ndef f():\n    import c\ntry:\n    import d\nexcept E:\n    import e\n"
    found = {each.name: each.top for each in _imports("x", ast.parse(source), set())}

    assert found == {"a": True, "b": False, "c": False, "d": True, "e": True}

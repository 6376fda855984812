"""Where a repository's directories are, found by reading a few small files: no git process, no GitPython.

This is on the path of every ``list`` and ``status``. The answers equal those of ``git rev-parse`` for ordinary clones,
linked worktrees, bare repositories with worktrees, separate git directories and submodules.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from side_agents.errors import NotARepositoryError


@dataclass(frozen=True, slots=True)
class RepositoryLayout:
    """All paths are real (no symbolic links).

    ``worktree_top`` is the checkout that holds the starting directory; None when that is a bare repository.
    ``main_top`` is the same for every worktree of one repository: the top of the main checkout or, for a bare one, the
    folder around ``.bare`` or ``.git``, or else the bare repository itself. Git keeps no trace of the main checkout of
    a repository with a separate git directory; seen from a linked worktree, ``main_top`` is then that directory.
    """

    worktree_top: Path | None
    git_dir: Path
    common_dir: Path
    main_top: Path
    is_linked: bool
    is_bare_layout: bool
    is_submodule: bool


def find_layout(start: Path) -> RepositoryLayout:
    """The repository around a directory. Raises NotARepositoryError, also for the inside of a ``.git`` directory."""
    try:
        start = start.resolve(strict=True)
    except OSError as error:
        raise NotARepositoryError(f"{start} cannot be read: {error.strerror}.") from error
    for folder in (start, *start.parents):
        dot_git = folder / ".git"
        git_dir = _git_dir_of(dot_git)
        if git_dir is not None:
            return _layout(git_dir, folder)
        if _is_git_dir(folder):
            return _from_inside(folder, start)
    raise NotARepositoryError(
        f"{start} is in no git repository.", hint="Change to a repository, or make one with `git init`."
    )


def read_config(path: Path) -> dict[str, str]:
    """The plain ``section.key`` entries of a git config file, keys in lower case; no subsections, no includes.

    Enough for ``core.bare`` and its like, which git writes itself; nothing else may be read this way.
    """
    found: dict[str, str] = {}
    section = ""
    for raw in _read(path).splitlines():
        line = raw.strip()
        if line.startswith("["):
            section = line[1:].split("]", 1)[0].strip().lower()
        elif line and line[0] not in "#;" and '"' not in section:
            key, separator, value = line.partition("=")
            text = value.split(" #")[0].split(" ;")[0].strip().strip('"')
            found[f"{section}.{key.strip().lower()}"] = text if separator else "true"
    return found


def is_true(value: str | None) -> bool:
    """Whether git takes a config value for true."""
    return (value or "").lower() in {"true", "yes", "on", "1"}


def _from_inside(folder: Path, start: Path) -> RepositoryLayout:
    layout = _layout(folder, None)
    if layout.worktree_top is None and layout.is_bare_layout and not layout.is_linked:
        return layout
    raise NotARepositoryError(
        f"{start} is inside the git directory {folder}, not inside a checkout.", hint="Change to the checkout itself."
    )


def _layout(git_dir: Path, checkout: Path | None) -> RepositoryLayout:
    pointer = _read(git_dir / "commondir").strip()
    common_dir = (git_dir / pointer).resolve() if pointer else git_dir
    config = read_config(common_dir / "config")
    if is_true(config.get("extensions.worktreeconfig")):
        config |= read_config(common_dir / "config.worktree")
    bare = is_true(config.get("core.bare"))
    elsewhere = config.get("core.worktree")
    named_top = (common_dir / elsewhere).resolve() if elsewhere and not bare else None
    if common_dir != git_dir:
        top, main_top = checkout, named_top or _top_of(common_dir, bare=bare)
    else:
        top = None if bare else named_top or checkout
        main_top = top or _top_of(common_dir, bare=bare)
    return RepositoryLayout(
        worktree_top=top,
        git_dir=git_dir,
        common_dir=common_dir,
        main_top=main_top,
        is_linked=common_dir != git_dir,
        is_bare_layout=bare,
        is_submodule=any(p.name == "modules" and (p.parent / "HEAD").is_file() for p in common_dir.parents),
    )


def _top_of(common_dir: Path, *, bare: bool) -> Path:
    if common_dir.name == ".git" or (bare and common_dir.name == ".bare"):
        return common_dir.parent
    return common_dir


def _git_dir_of(dot_git: Path) -> Path | None:
    if dot_git.is_dir():
        return dot_git.resolve() if _is_git_dir(dot_git) else None
    prefix, separator, target = _read(dot_git).partition("gitdir: ")
    if not separator or prefix:
        return None
    git_dir = (dot_git.parent / target.rstrip("\n")).resolve()
    if not _is_git_dir(git_dir):
        raise NotARepositoryError(
            f"{dot_git} names {git_dir}, which is not a git directory.",
            hint="If the repository was moved, run `git worktree repair` in it.",
        )
    return git_dir


def _is_git_dir(folder: Path) -> bool:
    if not (folder / "HEAD").is_file():
        return False
    return (folder / "commondir").is_file() or ((folder / "objects").is_dir() and (folder / "refs").is_dir())


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8", "surrogateescape")
    except OSError:
        return ""

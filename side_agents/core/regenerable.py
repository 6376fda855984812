"""Which ignored files may go: those that a tool makes anew, and copies of what the main checkout has.

Everything else that git ignores (a database, a ``.env`` that was changed) may be the only copy and is precious.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from side_agents.infra import fs_tree
from side_agents.paths import META_DIR, is_lease

FOLDERS = frozenset(
    (
        "node_modules", "bower_components", ".venv", "venv", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache",
        ".hypothesis", ".tox", ".nox", ".eggs", "target", "dist", "build", ".next", ".nuxt", ".svelte-kit", ".turbo",
        ".parcel-cache", ".gradle", "coverage", "htmlcov", ".nyc_output", "DerivedData", ".dart_tool", "_build",
    )
)  # fmt: skip
FOLDER_SUFFIXES = (".egg-info",)
FILE_SUFFIXES = frozenset((".pyc", ".pyo", ".o", ".obj", ".class", ".tsbuildinfo"))
FILES = frozenset((".DS_Store", "Thumbs.db", ".eslintcache", ".coverage"))
# Inside a folder of builds these are nobody's build product: somebody keeps data there.
_DATA_SUFFIXES = frozenset((".db", ".sqlite", ".sqlite3", ".sql", ".key", ".pem", ".tfstate"))
_MERGE_LOCK = f"{META_DIR}/merge.lock"


def is_regenerable(path: str) -> bool:
    """Whether a path inside a checkout names something that a tool makes anew; a folder's path ends in ``/``."""
    pure = PurePosixPath(path)
    if is_lease(path) or path == _MERGE_LOCK:
        return True
    parts = pure.parts if path.endswith("/") else pure.parts[:-1]
    in_folder = any(part in FOLDERS or part.endswith(FOLDER_SUFFIXES) for part in parts)
    if in_folder:
        # What packages bring along below node_modules and the like is theirs; data right in a build folder is not.
        return path.endswith("/") or pure.suffix not in _DATA_SUFFIXES or _is_of_packages(parts)
    return not path.endswith("/") and (pure.name in FILES or pure.suffix in FILE_SUFFIXES)


def _is_of_packages(parts: Iterable[str]) -> bool:
    return any(part in ("node_modules", "bower_components", ".venv", "venv", ".tox", ".nox") for part in parts)


def precious(slot: Path, main: Path | None, ignored: Iterable[str]) -> list[str]:
    """The ignored files that would be lost with a checkout; ``main`` is the main one, whose identical files do not count.

    Raises StateError for a folder that cannot be looked through.
    """
    found: list[str] = []
    for item in ignored:
        if item.endswith("/") and _is_of_packages(PurePosixPath(item).parts):
            continue
        for file in fs_tree.files_below(slot / item.rstrip("/")):
            path = file.relative_to(slot).as_posix()
            if not (is_regenerable(path) or _is_spare(file, main / path if main is not None else None)):
                found.append(path)
    return sorted(found)


def _is_spare(file: Path, copy: Path | None) -> bool:
    # A link holds nothing but the name of something else; an empty file holds nothing at all.
    if file.is_symlink() or (file.is_file() and file.stat().st_size == 0):
        return True
    return copy is not None and fs_tree.has_same_content(file, copy)

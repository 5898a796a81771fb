"""Who may import whom, read from the sources."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("gateway", "engine")
HEAVY = {"torch", "vllm", "transformers", "safetensors", "torchaudio"}


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {
    module_name(path): path for package in PACKAGES for path in (ROOT / package).rglob("*.py")
}


def imports(path: Path, *, lazy: bool) -> set[str]:
    """Modules that `path` imports when it is loaded; with `lazy` also inside its functions."""

    def nodes(parent: ast.AST) -> Iterator[ast.AST]:
        for node in ast.iter_child_nodes(parent):
            if not lazy and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                continue
            if not lazy and isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                continue
            yield node
            yield from nodes(node)

    found = set()
    for node in nodes(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute here"
            base = node.module or ""
            found |= {
                full if (full := f"{base}.{alias.name}") in MODULES else base
                for alias in node.names
            }
    return found


def test_sources_are_found() -> None:
    assert {"gateway.protocol", "engine.api", "engine.synthesizer"} <= set(MODULES)


@pytest.mark.parametrize("name", [name for name in MODULES if name.startswith("gateway")])
def test_gateway_knows_the_engine_only_by_its_public_surface(name: str) -> None:
    every = imports(MODULES[name], lazy=True)
    assert not {target for target in every if target.split(".")[0] in HEAVY}
    at_load = imports(MODULES[name], lazy=False)
    assert {target for target in at_load if target.startswith("engine")} <= {"engine.api"}
    assert {target for target in every if target.startswith("engine")} <= {
        "engine.ahead",
        "engine.api",
        "engine.settings",
        "engine.synthesizer",
    }


@pytest.mark.parametrize("name", [name for name in MODULES if name.startswith("engine")])
def test_engine_never_imports_the_gateway(name: str) -> None:
    every = imports(MODULES[name], lazy=True)
    assert not {target for target in every if target.split(".")[0] in ("gateway", "bench")}


def test_no_import_cycles() -> None:
    graph = {
        name: {target for target in imports(path, lazy=False) if target in MODULES} - {name}
        for name, path in MODULES.items()
    }
    settled: set[str] = set()
    while len(settled) < len(graph):
        ready = {name for name in graph if name not in settled and graph[name] <= settled}
        assert ready, f"import cycle among {sorted(set(graph) - settled)}"
        settled |= ready

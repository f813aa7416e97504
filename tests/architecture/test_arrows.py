"""The tree is the architecture: which folder may import which, which file may import which library, how large folders,
files and functions may be."""

from __future__ import annotations

import ast
import functools
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.architecture.sources import parse_file, walk_statements

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "toolscript"
MAX_FILE_LINES = 500
# They exist for readers. At 50 lines, functions were cut into private helpers of a few lines that one place calls; at
# 20 files, subjects were cut into folders of one file.
MAX_FUNCTION_LINES = 70
MAX_FOLDER_FILES = 30

# What each folder may import of the package; the longest matching prefix counts.
ALLOWED_IMPORTS: dict[str, set[str]] = {
    "domain": {"domain"},
    "ports": {"domain"},
    "retrieval": {"configuration/tables", "domain", "ports", "retrieval"},
    "retrieval/text": {"domain", "retrieval/text"},
    "services/support": {"domain", "ports", "services/support"},
    "services/access": {"configuration/tables", "domain", "ports", "services/access", "services/support"},
    "services/trust": {"domain", "ports", "services/support", "services/trust"},
    "services/catalogue": {
        "domain",
        "ports",
        "retrieval",
        "services/catalogue",
        "services/support",
        "services/trust",
    },
    "services/servers": {"domain", "ports", "services/catalogue", "services/servers", "services/support"},
    "services/skills": {
        "configuration/tables",
        "domain",
        "ports",
        "retrieval",
        "services/catalogue",
        "services/skills",
        "services/support",
    },
    "services/tools": {
        "domain",
        "ports",
        "retrieval",
        "services/catalogue",
        "services/servers",
        "services/skills",
        "services/support",
        "services/tools",
    },
    "services/catalogue_check": {
        "domain",
        "ports",
        "retrieval",
        "services/catalogue",
        "services/catalogue_check",
        "services/support",
        "services/tools",
        "services/trust",
    },
    "services/documents": {
        "domain",
        "ports",
        "retrieval",
        "services/access",
        "services/documents",
        "services/support",
    },
    "services/code": {
        "codegen",
        "domain",
        "ports",
        "services/catalogue",
        "services/code",
        "services/support",
        "services/tools",
    },
    "services/results": {"domain", "ports", "retrieval", "services/results", "services/tools/token_costs"},
    "services/ingest": {
        "domain",
        "ports",
        "services/documents",
        "services/ingest",
        "services/knowledge",
        "services/support",
    },
    "services/registry": {
        "domain",
        "ports",
        "retrieval",
        "services/registry",
        "services/support",
        "services/trust",
    },
    "services/knowledge": {"domain", "ports", "retrieval", "services/knowledge", "services/support"},
    "codegen": {"codegen", "domain"},
    "evaluation": {"domain", "evaluation", "services"},
    "adapters": {"adapters", "domain", "ports"},
    "settings.py": {"domain"},
    "configuration": {"configuration", "domain"},
    "app": {"adapters", "app", "domain", "ports", "retrieval", "services", "settings"},
    "surfaces/json": {"app", "codegen", "configuration", "domain", "evaluation", "services", "surfaces/json"},
    "surfaces/console": {"surfaces/console"},
    "surfaces/mcp": {
        "app",
        "codegen",
        "configuration",
        "domain",
        "pipe",
        "services",
        "surfaces/callers",
        "surfaces/json",
        "surfaces/mcp",
    },
    "surfaces/http": {
        "app",
        "codegen",
        "configuration",
        "domain",
        "evaluation",
        "services",
        "settings",
        "surfaces/callers",
        "surfaces/console",
        "surfaces/http",
        "surfaces/json",
        "surfaces/mcp",
        "surfaces/owner",
    },
    "surfaces": {"app", "codegen", "configuration", "domain", "evaluation", "pipe", "services", "settings", "surfaces"},
    "pipe": {"pipe"},
    "__main__.py": {"configuration", "pipe", "surfaces/cli"},
}
# Which libraries beside the standard one; again the longest matching prefix counts.
ALLOWED_LIBRARIES: dict[str, set[str]] = {
    "domain": {"numpy"},
    "retrieval": {"numpy", "rapidfuzz", "Stemmer"},
    "services": {"numpy"},
    "services/ingest/finder.py": {"pathspec"},
    "services/ingest/ignore_files.py": {"pathspec"},
    "evaluation": {"numpy"},
    "configuration/formats/yaml.py": {"yaml"},
    "surfaces/cli": {"click", "rich"},
    "surfaces/cli/commands/gateway.py": {"click", "rich", "uvloop"},
    "surfaces/cli/ingest/watch.py": {"click", "watchfiles"},
    "surfaces/cli/client/remote_gateway.py": {"httpx", "mcp", "mcp_types"},
    "surfaces/cli/commands/mcp.py": {"click", "mcp", "rich"},
    "surfaces/console": {"starlette"},
    "surfaces/http": {"fastapi", "pydantic", "pydantic_core", "starlette"},
    "surfaces/http/connection.py": {"uvicorn"},
    "surfaces/http/server.py": {"uvicorn"},
    "surfaces/json/filters.py": {"pydantic"},
    "surfaces/mcp": {"anyio", "httpx2", "mcp", "mcp_types", "pydantic", "starlette"},
    "adapters/agent_skills/main_file.py": {"yaml"},
    "adapters/deno": {"deno"},
    "adapters/files/office/docx.py": {"docx"},
    "adapters/files/office/rtf.py": {"striprtf"},
    "adapters/files/code/syntax.py": {"tree_sitter"},
    "adapters/files/markup/markdown.py": {"markdown_it"},
    "adapters/files/pdf": {"pypdfium2"},
    "adapters/files/pdf/scans.py": {"pypdfium2", "rapidocr"},
    "adapters/json_schema": {"jsonschema", "jsonschema_specifications", "referencing"},
    "adapters/mcp": {"anyio", "httpx2", "mcp", "mcp_types"},
    "adapters/mcp/process_tree.py": {"win32api", "win32con", "win32job"},
    "adapters/memory.py": {"numpy"},
    "adapters/models/http_reranker.py": {"httpx"},
    "adapters/models/vector_cache_files.py": {"numpy"},
    "adapters/monty": {"pydantic_monty"},
    "adapters/mongo": {"bson", "pymongo"},
    "adapters/observability/event_sinks.py": {"httpx"},
    "adapters/observability/prometheus.py": {"prometheus_client"},
    "adapters/observability/telemetry.py": {"opentelemetry"},
    "adapters/onnx": {"httpx", "huggingface_hub", "numpy", "onnxruntime", "tokenizers"},
    "adapters/openapi": {"httpx2", "yaml"},
    "adapters/openai_api": {"httpx2", "jsonschema", "numpy", "openai"},
    "adapters/outgoing": {"httpx2"},
    "adapters/registry": {"httpx2"},
    "adapters/pgvector": {"numpy", "pgvector", "psycopg"},
    "adapters/qdrant": {"filelock", "numpy", "qdrant_edge"},
    "adapters/qdrant/server.py": {"httpx", "numpy", "qdrant_client"},
    "adapters/sql/feedback.py": {"numpy"},
    "adapters/sql/postgres.py": {"psycopg"},
    "adapters/storage/postgres.py": {"psycopg", "psycopg_pool"},
    "adapters/storage/sealing.py": {"cryptography"},
    "adapters/tokens": {"httpx", "jwt"},
}


def _files() -> Iterator[tuple[str, Path, ast.Module]]:
    for file in sorted(SOURCE.rglob("*.py")):
        yield file.relative_to(SOURCE).as_posix(), file, parse_file(file)


@functools.cache
def _imports(tree: ast.Module) -> list[str]:
    imported: list[str] = []
    for node in walk_statements(tree):
        if isinstance(node, ast.Import):
            imported += (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            imported += (f"{node.module}.{alias.name}" for alias in node.names)
    return imported


def _own_imports(tree: ast.Module) -> Iterator[str]:
    """The modules of the package that a file imports, as paths without a suffix."""
    for imported in _imports(tree):
        top, _, rest = imported.partition(".")
        if top == "toolscript" and rest not in {"", "__version__"}:
            yield _find_module(rest.replace(".", "/"))


@functools.cache
def _find_module(path: str) -> str:
    return path if (SOURCE / path).is_dir() or (SOURCE / f"{path}.py").is_file() else path.rpartition("/")[0]


def _find_prefix(name: str, rules: dict[str, set[str]]) -> set[str]:
    matching = [prefix for prefix in rules if name == prefix or name.startswith(f"{prefix}/")]
    return rules[max(matching, key=len)] if matching else set()


def _is_below(path: str, folders: set[str]) -> bool:
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)


@pytest.mark.slow
def test_imports_follow_the_arrows() -> None:
    wrong = [
        f"{name} imports {imported}"
        for name, _, tree in _files()
        for imported in _own_imports(tree)
        if not _is_below(imported, _find_prefix(name, ALLOWED_IMPORTS))
    ]
    assert wrong == []


def test_only_the_composition_root_imports_adapters() -> None:
    importers = {
        name.partition("/")[0]
        for name, _, tree in _files()
        if any(_is_below(imported, {"adapters"}) for imported in _own_imports(tree))
    }
    assert importers == {"adapters", "app"}


def test_only_an_adapter_imports_its_vendor() -> None:
    wrong = []
    for name, _, tree in _files():
        for imported in _imports(tree):
            top = imported.partition(".")[0]
            if top not in sys.stdlib_module_names | {"toolscript"} | _find_prefix(name, ALLOWED_LIBRARIES):
                wrong.append(f"{name} imports {top}")
    assert wrong == []


@pytest.mark.req("X-09")
def test_onnxruntime_is_imported_after_its_telemetry_is_stopped() -> None:
    """The import starts it. The files of these folders come after one that sets the variable."""
    stopped_by = {"training": ROOT / "training" / "__init__.py", "tests": ROOT / "tests" / "conftest.py"}
    assert all('setdefault("ORT_DISABLE_TELEMETRY", "1")' in file.read_text("utf-8") for file in stopped_by.values())
    importers = {
        file.relative_to(ROOT).as_posix()
        for top in {"benchmarks", "docs", "src", "tests", "training"} - stopped_by.keys()
        for file in (ROOT / top).rglob("*.py")
        for imported in _imports(parse_file(file))
        if imported.partition(".")[0] == "onnxruntime"
    }
    assert importers == {"src/toolscript/adapters/onnx/runtime.py"}


def test_no_import_circle() -> None:
    graph: dict[str, set[str]] = defaultdict(set)
    for name, _, tree in _files():
        graph[name.removesuffix(".py").removesuffix("/__init__")].update(_own_imports(tree))
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError(f"these modules import each other: {error.args[1]}") from None


@pytest.mark.slow
def test_folders_files_and_functions_stay_small() -> None:
    large = []
    for name, file, tree in _files():
        lines = len(file.read_text(encoding="utf-8").splitlines())
        if lines > MAX_FILE_LINES:
            large.append(f"{name}: {lines} lines")
        for node in walk_statements(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or 0) - node.lineno + 1
                if length > MAX_FUNCTION_LINES:
                    large.append(f"{name}: {node.name} has {length} lines")
    widths = Counter(file.parent for top in (SOURCE, ROOT / "tests") for file in top.rglob("*.py"))
    large += [
        f"{folder.relative_to(ROOT)}: {width} files" for folder, width in widths.items() if width > MAX_FOLDER_FILES
    ]
    assert large == []


def test_every_module_says_why_it_exists() -> None:
    assert [name for name, _, tree in _files() if not ast.get_docstring(tree)] == []


def test_unit_tests_mirror_the_source() -> None:
    unit = ROOT / "tests" / "unit"
    folders = {file.parent.relative_to(unit) for file in unit.rglob("test_*.py")}
    assert [
        str(folder) for folder in sorted(folders) if not any((top / folder).is_dir() for top in (SOURCE, ROOT))
    ] == []

"""The tree is the architecture: who may import whom, which adapter may import which vendor, how long things may be."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "toolscript"
LONGEST_FILE = 400
LONGEST_FUNCTION = 50

# What each room may import of ours, and which libraries beside the standard one.
ARROWS: dict[str, set[str]] = {
    "domain": {"domain"},
    "ports": {"domain"},
    "retrieval": {"domain", "ports", "retrieval"},
    "services": {"domain", "ports", "retrieval", "services"},
    "evaluation": {"domain", "services", "evaluation"},
    "adapters": {"domain", "ports", "adapters", ""},
    "codegen": {"codegen", "domain"},
    "settings": {"domain"},
    "jsonc": set(),
    "configuration": {"domain", "jsonc"},
    "app": {"app", "domain", "ports", "retrieval", "services", "adapters", "settings"},
    "surfaces": {"app", "codegen", "configuration", "domain", "services", "evaluation", "settings", "surfaces", ""},
    "__main__": {"surfaces"},
    "__init__": set(),
}
LIBRARIES: dict[str, set[str]] = {
    "domain": {"numpy"},
    "retrieval": {"numpy", "rapidfuzz", "Stemmer"},
    "services": {"numpy"},
    "services/call_tool.py": {"jsonschema", "referencing"},
    "evaluation": {"numpy"},
    "surfaces/cli": {"click", "rich"},
    "surfaces/cli/gateway.py": {"click", "rich", "uvloop"},
    "surfaces/cli/mcp.py": {"click", "httpx", "mcp", "mcp_types", "rich"},
    "surfaces/http": {"fastapi", "starlette"},
    "surfaces/http/bodies.py": {"fastapi", "pydantic", "starlette"},
    "surfaces/http/documents.py": {"fastapi", "pydantic_core", "starlette"},
    "surfaces/http/documents_models.py": {"pydantic"},
    "surfaces/http/hierarchical.py": {"fastapi", "orjson", "pydantic", "pydantic_core", "starlette"},
    "surfaces/http/knowledge.py": {"fastapi", "pydantic_core", "starlette"},
    "surfaces/http/knowledge_models.py": {"pydantic"},
    "surfaces/http/openapi.py": {"pydantic"},
    "surfaces/http/serve.py": {"uvicorn"},
    "surfaces/http/skills.py": {"fastapi", "pydantic"},
    "surfaces/http/whole.py": {"uvicorn"},
    "surfaces/mcp.py": {"mcp", "mcp_types", "pydantic", "starlette"},
    "surfaces/mcp_documents.py": {"pydantic"},
    "surfaces/mcp_tools.py": {"mcp_types"},
    "adapters/books_docx.py": {"docx"},
    "adapters/books_markdown.py": {"markdown_it"},
    "adapters/books_pdf.py": {"pypdfium2"},
    "adapters/embedding_files.py": {"numpy"},
    "adapters/jwks.py": {"httpx", "jwt"},
    "adapters/jwt.py": {"jwt"},
    "adapters/events.py": {"httpx"},
    "adapters/http_reranker.py": {"httpx"},
    "adapters/mcp_client.py": {"anyio", "httpx2", "mcp", "mcp_types"},
    "adapters/mcp_stdio.py": {"anyio", "mcp", "mcp_types"},
    "adapters/memory.py": {"numpy"},
    "adapters/model_folders.py": {"huggingface_hub", "httpx"},
    "adapters/mongo.py": {"bson", "pymongo"},
    "adapters/onnx.py": {"numpy", "onnxruntime", "tokenizers"},
    "adapters/onnx_apart.py": {"numpy"},
    "adapters/onnx_reranker.py": {"numpy"},
    "adapters/openai.py": {"numpy", "openai"},
    "adapters/openai_chat.py": {"httpx2", "jsonschema", "openai"},
    "adapters/pgvector.py": {"psycopg"},
    "adapters/pgvector_connections.py": {"psycopg"},
    "adapters/pgvector_graph.py": {"psycopg"},
    "adapters/pgvector_language.py": {"numpy"},
    "adapters/pgvector_tables.py": {"psycopg"},
    "adapters/prometheus.py": {"prometheus_client"},
    "adapters/qdrant_edge.py": {"qdrant_edge", "filelock"},
    "adapters/qdrant_edge_points.py": {"qdrant_edge"},
    "adapters/qdrant_copy.py": {"numpy"},
    "adapters/qdrant_shard.py": {"numpy", "qdrant_edge"},
    "adapters/qdrant_server.py": {"httpx", "numpy", "qdrant_client"},
    "adapters/sql_postgres.py": {"psycopg"},
    "adapters/telemetry.py": {"opentelemetry"},
}


def _files() -> Iterator[tuple[str, Path, ast.Module]]:
    for file in sorted(SOURCE.rglob("*.py")):
        yield str(file.relative_to(SOURCE)), file, ast.parse(file.read_text(encoding="utf-8"))


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _room(name: str) -> str:
    return name.partition("/")[0].removesuffix(".py")


def _allowed_libraries(name: str) -> set[str]:
    fitting = [place for place in LIBRARIES if name == place or name.startswith(f"{place}/")]
    return LIBRARIES[max(fitting, key=len)] if fitting else set()


def test_imports_follow_the_arrows() -> None:
    wrong = []
    for name, _, tree in _files():
        for imported in _imports(tree):
            ours = imported.split(".")
            room = "" if imported == "toolscript.__version__" else ours[1] if len(ours) > 1 else ""
            if ours[0] == "toolscript" and room not in ARROWS[_room(name)]:
                wrong.append(f"{name} imports {imported}")
    assert wrong == []


def test_only_the_composition_root_imports_adapters() -> None:
    outside = [n for n, _, tree in _files() if any(i.startswith("toolscript.adapters") for i in _imports(tree))]
    assert {n.partition("/")[0] for n in outside} == {"adapters", "app"}


def test_only_an_adapter_imports_its_vendor() -> None:
    wrong = []
    for name, _, tree in _files():
        for imported in _imports(tree):
            top = imported.partition(".")[0]
            if top not in sys.stdlib_module_names | {"toolscript", "__future__"} | _allowed_libraries(name):
                wrong.append(f"{name} imports {top}")
    assert wrong == []


def test_files_and_functions_stay_short() -> None:
    long = []
    for name, file, tree in _files():
        lines = len(file.read_text(encoding="utf-8").splitlines())
        if lines > LONGEST_FILE:
            long.append(f"{name}: {lines} lines")
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or 0) - node.lineno + 1
                if length > LONGEST_FUNCTION:
                    long.append(f"{name}: {node.name} has {length} lines")
    assert long == []


def test_every_module_says_why_it_exists() -> None:
    assert [name for name, _, tree in _files() if not ast.get_docstring(tree)] == []

"""Generated clients pass the usual compilers and run under the usual runtimes."""

from __future__ import annotations

import gzip
import json
import os
import random
import re
import subprocess
import sys
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.api_documents import read_sample
from tests.fixtures.examples import choose, scale_examples
from tests.fixtures.http_services import HttpDouble
from toolscript.codegen.python import generate_python
from toolscript.codegen.typescript import generate_typescript
from toolscript.domain.catalog import Item

BIN = Path(sys.executable).parent
DENO, NODE = BIN / "deno", BIN / "node"
TSC = BIN.parent / "node" / "node_modules" / ".bin" / "tsc"

MAX_OPERATIONS = 60

# Stricter than --strict: users may compile generated files with any of these options.
COMPILER_OPTIONS = {
    "strict": True,
    "target": "es2022",
    "lib": ["es2022", "dom"],
    "module": "esnext",
    "moduleResolution": "bundler",
    "types": [],
    "rewriteRelativeImportExtensions": True,
    "erasableSyntaxOnly": True,
    "exactOptionalPropertyTypes": True,
    "isolatedModules": True,
    "noImplicitReturns": True,
    "noPropertyAccessFromIndexSignature": True,
    "noUncheckedIndexedAccess": True,
    "noUnusedLocals": True,
    "noUnusedParameters": True,
    "verbatimModuleSyntax": True,
    "skipLibCheck": True,  # the declarations that come with the compiler
}

NAMES = [
    *(
        "a",
        "b",
        "list",
        "str",
        "type",
        "class",
        "constructor",
        "__proto__",
        "toString",
        "valueOf",
        "x-y",
        "日本",
        "None",
    ),
    *("self", "items", "keys", "Any", "import", "__init__", "é", "ﬁ", "*/", '"', "\\", "`", "${x}", "Params", "Result"),
    *(
        "new",
        "get",
        "TypedDict",
        "NotRequired",
        "_",
        "__x",
        "dict",
        "default",
        "_call",
        "ToolCallError",
        "tools",
        "then",
    ),
    *("async", "await", "😀", "𝒳", "ß", "ŉ", "ǰ", "1", "$ref", "True", "lambda", "match", "readonly", "STParams", "os"),
    *("answer", "params", "asyncio", "json", "Mapping", "", "a b", "a\nb", "\u2028", "\u202e", "\ud800"),
]
TEXTS = [
    *("plain", "*/ alert(1) /*", "line\nbreak", "\u2028sep\u2029", "@ts-expect-error", "@deprecated\n@ts-ignore"),
    *('"""', 'ends with "', "back\\slash\\", "\x00\x1b\ud800", "'''", "${x}`", "// @ts-nocheck", "type: ignore"),
    *(
        "@jsxImportSource npm:preact",
        "{@link import('npm:x')}",
        '@deno-types="./x.d.ts"',
        "type: x y",
        "\r\n x \r y\x0bz\x85",
        " ",
    ),
]
WORDS = dict.fromkeys(
    [
        *("patternProperties", "additionalProperties", "required", "items", "prefixItems", "anyOf", "oneOf", "allOf"),
        *("enum", "$ref", "nullable", "description", "format", "default"),
    ],
    0.15,
) | {"properties": 0.8}


class Chance:
    """Random good and bad schemas, from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def name(self) -> str:
        return self._random.choice(NAMES)

    def item(self) -> Item:
        server = self._random.choice(["s", "my-server", "my_server", "日本", "7zip", "class", "constructor", "Async"])
        output = self._schema(0) if self._random.random() < 0.5 else None
        text = self._random.choice(TEXTS)
        return Item(server, self.name(), text, input_schema=self._schema(0), output_schema=output)

    def _schema(self, depth: int) -> Any:
        chance = self._random
        if depth > 3 or chance.random() < 0.06:
            return chance.choice([True, False, {}, None, "x", {"type": "string"}, {"type": ["integer", "null"]}])
        schema = {word: self._part(word, depth + 1) for word in WORDS if chance.random() < WORDS[word]}
        if chance.random() < 0.9:
            odd = ["string", "number", "integer", "boolean", "null", "array", ["object", "null"], "file", []]
            schema["type"] = "object" if "properties" in schema and chance.random() < 0.9 else chance.choice(odd)
        if depth == 0:
            schema["$defs"] = {name: self._schema(depth + 1) for name in ("A", "B", "a/b")}
        return schema

    def _part(self, word: str, depth: int) -> Any:
        chance = self._random
        match word:
            case "properties" | "patternProperties":
                return {self.name(): self._schema(depth) for _ in range(chance.randrange(4))}
            case "anyOf" | "oneOf" | "allOf" | "prefixItems":
                return [self._schema(depth) for _ in range(chance.randrange(3))]
            case "items" | "additionalProperties":
                return self._schema(depth)
            case "required":
                return [self.name() for _ in range(chance.randrange(3))]
            case "enum":
                return [chance.choice([*NAMES, *TEXTS, 1, 0.5, -0.0, 10**400, True, None, [], {}]) for _ in range(3)]
            case "$ref":
                return chance.choice(
                    ["#", "#/$defs/A", "#/$defs/B", "#/$defs/a~1b", "#/properties/a", "#/no", "x.json"]
                )
            case "nullable":
                return True
            case _:
                return chance.choice(TEXTS)


def _deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"properties": {"a": {"items": schema}}}
    return schema


def _hostile() -> dict[str, list[Item]]:
    """Tools with every kind of fault, by the kind."""
    node = {"properties": {"children": {"items": {"$ref": "#/$defs/Node"}}, "tree": {"$ref": "#/$defs/Tree"}}}
    tree = {"anyOf": [{"type": "string"}, {"items": {"$ref": "#/$defs/Tree"}}, {"$ref": "#/$defs/Loop"}]}
    recursive = {
        "properties": {"node": {"$ref": "#/$defs/Node"}, "self": {"$ref": "#"}, "gone": {"$ref": "#/$defs/Gone"}},
        "$defs": {"Node": node, "Tree": tree, "Loop": {"$ref": "#/$defs/Pool"}, "Pool": {"$ref": "#/$defs/Loop"}},
    }
    chain = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(1000)} | {"d1000": {"type": "string"}}
    alike = [Item(server, name) for server in ("my-server", "my_server", "My server") for name in ("a-b", "a_b", "aB")]
    named = [Item("s", name, input_schema={"properties": {name: {}}, "required": [name]}) for name in NAMES]
    optional = [Item("o", name, input_schema={"properties": {name: {"type": "string"}}}) for name in NAMES]
    answers = {f"t{i}": {"description": text, "default": text, "format": text} for i, text in enumerate(TEXTS)}
    tools = {
        "recursive": recursive,
        "chain": {"properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": chain},
        "deep": _deep(1000),
        "texts": {"properties": answers},
        "enum": {"properties": {"a": {"enum": [f"v{i}" for i in range(10_000)]}, "b": {"enum": [*NAMES, *TEXTS]}}},
        "extra": {"properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "number"}},
        "shadows": {"properties": {name: {"type": "array"} for name in ("list", "dict", "str", "Any", "Literal")}},
        "none": None,
        "true": True,
        "false": False,
        "text": {"type": "string"},
    }
    schemas: dict[str, Any] = tools
    return {
        "nothing": [],
        "alike": alike,
        "named": [*named, *optional],
        "answers": [Item("s", f"t{i}", text) for i, text in enumerate(TEXTS)],
        "schemas": [Item("s", name, input_schema=s, output_schema=s) for name, s in schemas.items()],
        **{f"chance{seed}": [Chance(seed * 1000 + i).item() for i in range(50)] for seed in range(scale_examples(6))},
    }


def _real(data: Path) -> dict[str, list[Item]]:
    """The tools of each real server."""
    modules: dict[str, list[Item]] = {}
    for file in sorted((data / "mcp_servers").glob("*.json")):
        server = file.stem.replace("__", "-")
        modules[server] = [_item(server, tool) for tool in json.loads(file.read_text(encoding="utf-8"))["tools"]]
    for file in (data / "tools" / "azure_mcp").glob("tools.jsonl*"):
        content = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
        rows = [json.loads(line) for line in content.splitlines()]
        modules["every-azure"] = [_item(row["server"], row) for row in rows]
    assert sum(map(len, modules.values())) > 1_700
    return modules


def _item(server: str, tool: dict[str, Any]) -> Item:
    return Item(
        server,
        tool["name"],
        tool.get("description") or "",
        input_schema=tool.get("inputSchema") or tool.get("input_schema"),
        output_schema=tool.get("outputSchema"),
    )


USES_TS = """\
import { tools } from "./client.ts";

export async function use() {
  const found = await tools.myServer.search({ query: { tags: ["a"], deep: { n: 1 } }, mode: "fast" });
  const score: number = found.hits[0]?.score ?? 0;
  await tools.myServer["get-env"]();
  // @ts-expect-error a required property is missing
  await tools.myServer.search({});
  // @ts-expect-error a value that is not of the enum
  await tools.myServer.search({ query: {}, mode: "medium" });
  // @ts-expect-error a property that is not there
  found.nothing;
  return score;
}
"""

USES_PY = """\
from client import async_tools, tools


async def use() -> float:
    found = tools.my_server.search({"query": {"tags": ["a"], "deep": {"n": 1}}, "mode": "fast"})
    score: float = found["hits"][0]["score"]
    await async_tools.my_server.get_env()
    tools.my_server.search({})  # type: ignore[typeddict-item]
    tools.my_server.search({"query": {}, "mode": "medium"})  # type: ignore[typeddict-item]
    found["nothing"]  # type: ignore[typeddict-item]
    return score
"""

SEARCH = {
    "properties": {
        "query": {
            "properties": {
                "tags": {"items": {"type": "string"}},
                "deep": {"properties": {"n": {"type": "number"}}, "additionalProperties": True},
            },
        },
        "mode": {"enum": ["fast", "slow"]},
    },
    "required": ["query"],
}
HIT = {"properties": {"score": {"type": "number"}}, "required": ["score"]}
FOUND = {"properties": {"hits": {"items": HIT}}, "required": ["hits"]}
CLIENT = [
    Item("my-server", "search", "Finds.", input_schema=SEARCH, output_schema=FOUND),
    Item("my-server", "get-env"),
    Item("my-server", "a/b"),
    Item("my-server", "refused"),
    Item("my-server", "broken"),
]


def _run(command: list[str | Path], folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    program = Path(command[0])
    if not program.exists() or not all(Path(a).exists() for a in command[1:] if a == TSC):
        pytest.skip(f"{' '.join(map(str, command[:2]))} is not installed: `make test` brings it")
    offline = {"DENO_DIR": str(folder / ".deno"), "DENO_NO_UPDATE_CHECK": "1", "NO_COLOR": "1", "HOME": str(folder)}
    environment = {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", **offline, **variables}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def _compile(command: list[str | Path], folder: Path) -> None:
    done = _run(command, folder)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"[:5000]


@pytest.fixture(scope="module", params=choose(["hostile", "real", "apis"], "hostile"))
def modules(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a TypeScript and a Python module for each group of tools."""
    if request.param == "apis":
        groups = {name: list(api.items)[:MAX_OPERATIONS] for name, api in read_sample().items()}
    else:
        groups = _hostile() if request.param == "hostile" else _real(request.getfixturevalue("shared_data"))
    folder = tmp_path_factory.mktemp(request.param)
    for name, items in {**groups, "client": CLIENT}.items():
        stem = re.sub(r"\W", "_", name)
        (folder / f"{stem}.ts").write_text(generate_typescript(items), encoding="utf-8")
        (folder / f"{stem}.py").write_text(generate_python(items), encoding="utf-8")
    (folder / "uses.ts").write_text(USES_TS, encoding="utf-8")
    (folder / "uses.py").write_text(USES_PY, encoding="utf-8")
    (folder / "tsconfig.json").write_text(json.dumps({"compilerOptions": COMPILER_OPTIONS, "include": ["*.ts"]}))
    return folder


@pytest.mark.req("G-06")
def test_every_typescript_module_passes_the_strict_compiler(modules: Path) -> None:
    _compile([NODE, TSC, "--project", ".", "--noEmit"], modules)


@pytest.mark.extended
@pytest.mark.req("G-06")
def test_every_typescript_module_passes_deno_check(modules: Path) -> None:
    _compile([DENO, "check", "--quiet", "--no-config", "--no-remote", "--no-npm", "."], modules)


@pytest.mark.req("G-07")
def test_every_python_module_passes_strict_mypy(modules: Path) -> None:
    cache = modules.parent / "mypy-cache"
    _compile([sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={cache}", "."], modules)


class Gateway(HttpDouble):
    """A gateway that returns the arguments of a call, or fails in one of two ways."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, str | None, Any]] = []

    def answer(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        self.calls.append((request.path, request.headers["Authorization"], json.loads(body)))
        if request.path.endswith("__refused"):
            error = {"code": "invalid", "message": "path: is required", "details": {"field": "path"}}
            self.send(request, 422, json.dumps({"error": error}).encode())
        elif request.path.endswith("__broken"):
            self.send(request, 500, b"<h1>oops</h1>", {"Content-Type": "text/html"})
        else:
            self.send(request, 200, json.dumps({"got": json.loads(body)}).encode())


ARGUMENTS = {"query": {"tags": ["a", "é"], "deep": {"n": 1.5, "on": True, "nothing": None}}, "mode": "fast"}

CALLS_TS = (
    """\
import { tools } from "./client.ts";

const server = tools.myServer;
const answers: unknown[] = [];
for (const call of [
  () => server.search("""
    + json.dumps(ARGUMENTS)
    + """),
  () => server["get-env"](),
  () => server["a/b"]({ x: 1 }),
  () => server.refused(),
  () => server.broken(),
]) {
  try {
    answers.push(await call());
  } catch (error) {
    const { message, cause } = error as Error & { cause?: { code: string; details: unknown } };
    answers.push([message, cause?.code ?? null, cause?.details ?? null]);
  }
}
console.log(JSON.stringify(answers));
"""
)

CALLS_PY = f"""\
import asyncio, inspect, json, sys
import client

async def main():
    server = getattr(client, sys.argv[1]).my_server
    answers = []
    for tool, *arguments in (
        (server.search, {ARGUMENTS}),
        (server.get_env,),
        (server.a_b, {{"x": 1}}),
        (server.refused,),
        (server.broken,),
    ):
        try:
            answer = tool(*arguments)
            answers.append(await answer if inspect.isawaitable(answer) else answer)
        except client.ToolCallError as error:
            code = None if error.code.startswith("http_") else error.code
            answers.append([str(error), code, error.details])
        except RuntimeError as error:
            answers.append([str(error), None, None])
    print(json.dumps(answers))

asyncio.run(main())
"""

ALLOWED = ["--allow-net=127.0.0.1", "--allow-env=TOOLSCRIPT_GATEWAY_URL,TOOLSCRIPT_API_KEY"]
RUNTIMES: dict[str, list[str | Path]] = {
    "deno": [DENO, "run", "--quiet", "--no-config", "--no-remote", "--no-npm", "--no-prompt", *ALLOWED, "calls.ts"],
    "node": [NODE, "--disable-warning=ExperimentalWarning", "calls.ts"],
    "node, compiled": [NODE, "compiled/calls.js"],
    "python": [sys.executable, "calls.py", "tools"],
    "python, async": [sys.executable, "calls.py", "async_tools"],
}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the client and, in each language, a program that calls every tool."""
    folder = tmp_path_factory.mktemp("programs")
    (folder / "client.ts").write_text(generate_typescript(CLIENT), encoding="utf-8")
    (folder / "client.py").write_text(generate_python(CLIENT), encoding="utf-8")
    (folder / "calls.ts").write_text(CALLS_TS, encoding="utf-8")
    (folder / "calls.py").write_text(CALLS_PY, encoding="utf-8")
    options = COMPILER_OPTIONS | {"outDir": "compiled"}
    (folder / "tsconfig.json").write_text(json.dumps({"compilerOptions": options, "include": ["*.ts"]}))
    _compile([NODE, TSC, "--project", "."], folder)
    (folder / "package.json").write_text('{"type": "module"}')
    return folder


@pytest.mark.extended
@pytest.mark.req("G-06", "G-07")
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_generated_client_calls_the_gateway(runtime: str, programs: Path) -> None:
    with Gateway() as gateway:
        url = {"TOOLSCRIPT_GATEWAY_URL": f"{gateway.root}/", "TOOLSCRIPT_API_KEY": "secret"}
        done = _run(RUNTIMES[runtime], programs, **url)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [
        {"got": ARGUMENTS},
        {"got": {}},
        {"got": {"x": 1}},
        ["Tool call failed: path: is required", "invalid", {"field": "path"}],
        ["Tool call failed: Internal Server Error", None, None],
    ]
    assert gateway.calls[0] == ("/tools/my-server__search", "Bearer secret", ARGUMENTS)
    assert [path for path, _, _ in gateway.calls[1:3]] == ["/tools/my-server__get-env", "/tools/my-server__a%2Fb"]


@pytest.mark.req("G-06", "G-07")
@pytest.mark.parametrize("runtime", choose(RUNTIMES, "node", "python"))
def test_without_a_key_no_header_is_sent_and_without_a_url_no_request(runtime: str, programs: Path) -> None:
    with Gateway() as gateway:
        assert _run(RUNTIMES[runtime], programs, TOOLSCRIPT_GATEWAY_URL=gateway.root).returncode == 0
        assert {authorization for _, authorization, _ in gateway.calls} == {None}
        gateway.calls.clear()
        done = _run(RUNTIMES[runtime], programs)
        assert gateway.calls == []
    assert json.loads(done.stdout) == [["TOOLSCRIPT_GATEWAY_URL not set", None, None]] * 5

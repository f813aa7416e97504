"""The servers behind the gateway, from `.toolscript.json` or from the file of another client, read as it is.

Everything that is wrong is collected and told in one error with file, key and line, so that a person mends the files
once and nothing is started from half of them. What `env` and `headers` hold are secrets: no error shows a value.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from toolscript.configuration.jsonc import JsoncError, Node, read
from toolscript.domain.errors import Invalid
from toolscript.domain.servers import ServerSpec, Transport

FILE_NAME = ".toolscript.json"
LARGEST_FILE = 5_000_000
TOLD_AT_ONCE = 5

# Folders in which other clients keep a project's file; what is relative in it is relative to the project.
_CLIENT_FOLDERS = frozenset({".vscode", ".cursor"})
_TRANSPORTS = {
    "stdio": Transport.STDIO,
    "http": Transport.HTTP,
    "streamablehttp": Transport.HTTP,
    "sse": Transport.SSE,
}
_KINDS = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
_ADDRESSES = ("httpUrl", "url", "serverUrl")

# Patterns as texts: `re` compiles each when it is first used, not when the command line starts.
_VARIABLE = (
    r"\$\{(?P<env>env:)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}"
    r"|\$\{input:(?P<input>[^}\x00-\x1f]+)\}"
    r"|\$\{(?P<other>config|command):[^}]*\}"
)
# An item's id is `server__item`: a name with "__", or with "_" at its end, would make two ids the same.
_NAME = r"(?!\s)(?!.*__)[^/,\x00-\x1f\x7f-\x9f\u2028\u2029]{1,64}(?<![\s_])"
_NAME_RULE = (
    'is no usable name: a server\'s name has 1 to 64 characters, without "__", "/", "," and control characters, '
    'without spaces at its ends and without "_" at its end'
)
_VARIABLE_NAME = r"[^=\x00-\x1f\x7f]+"
_HEADER_NAME = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_ANYTHING = r"(?s:.*)"
_HEADER_VALUE = r"[\t\x20-\x7e]*"
_NOT_IN_A_URL = "[\x00-\x20\x7f\ud800-\udfff]"


@dataclass(frozen=True, slots=True)
class Configuration:
    """The servers to start, and every file that has a say in it, whether it exists yet or not."""

    servers: tuple[ServerSpec, ...]
    files: tuple[Path, ...]


def load_configuration(
    path: Path | None = None, *, home: Path, folder: Path, environment: Mapping[str, str]
) -> Configuration:
    """Reads one file, or else that of the home folder and then that of this folder, which wins per server.

    A server that is disabled is left out; so is what an earlier file says of a server that a later one names.
    Raises one Invalid with all that is wrong.
    """
    candidates = [home / FILE_NAME, folder / FILE_NAME] if path is None else [folder / _at_home(str(path), home)]
    sources = [_Source(file, home, environment) for file in dict.fromkeys(candidates)]
    entries: dict[str, _Entry] = {}
    for source in sources:
        entries |= source.entries(required=path is not None)
    specs = [entry.spec() for entry in entries.values()]
    problems = [problem for source in sources for problem in sorted(source.problems, key=lambda p: p.line or 0)]
    if problems:
        raise _invalid(problems)
    watched = [*(s.file for s in sources), *(file for s in sources for file in s.env_files)]
    return Configuration(tuple(s for s in specs if s is not None), tuple(dict.fromkeys(watched)))


class _Problem(NamedTuple):
    file: Path
    key: str
    line: int | None
    message: str


def _invalid(problems: list[_Problem]) -> Invalid:
    told = [p.message for p in problems[:TOLD_AT_ONCE]]
    if len(problems) > TOLD_AT_ONCE:
        told.append(f"and {len(problems) - TOLD_AT_ONCE} more")
    all_of_them = [{"file": str(p.file), "key": p.key, "line": p.line, "message": p.message} for p in problems]
    first = {k: v for k, v in all_of_them[0].items() if k != "message"}
    return Invalid("\n".join(told), details={**first, "problems": all_of_them})


@dataclass(frozen=True, slots=True)
class _Source:
    """One file: what it says, and what is wrong with it."""

    file: Path
    home: Path
    environment: Mapping[str, str]
    problems: list[_Problem] = field(default_factory=list)
    env_files: list[Path] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        """What relative paths are relative to."""
        parent = self.file.parent
        return parent.parent if parent.name in _CLIENT_FOLDERS else parent

    def wrong(self, node: Node, message: str) -> None:
        self._note(f", line {node.line}: {f'{node.key} {message}'.strip()}", node.key, node.line)

    def _note(self, told: str, key: str = "", line: int | None = None) -> None:
        self.problems.append(_Problem(self.file, key, line, f"{self.file}{told}"))

    def entries(self, *, required: bool) -> dict[str, _Entry]:
        """The servers that the file names, under whichever key its client keeps them."""
        entries: dict[str, _Entry] = {}
        for servers in self._shapes(self._root(required=required)):
            if not isinstance(servers.value, dict):
                self.wrong(servers, f"must be an object with a server under each name, not {_kind(servers)}")
                continue
            for written, node in servers.value.items():
                # VS Code calls a server from its gallery publisher/server.
                name = written if servers.name == "mcpServers" else written.replace("/", "-")
                if name in entries:
                    there = entries[name].node
                    self.wrong(node, f"is named already by {there.key} in line {there.line}")
                if not re.fullmatch(_NAME, name):
                    self.wrong(node, _NAME_RULE)
                if isinstance(node.value, dict):
                    entries[name] = _Entry(self, name, node, node.value)
                else:
                    self.wrong(node, f"must be an object, not {_kind(node)}")
        return entries

    def _shapes(self, root: Node | None) -> list[Node]:
        if root is None:
            return []
        if not isinstance(root.value, dict):
            self.wrong(root, f"the file must hold an object, not {_kind(root)}")
            return []
        nested = root.value["mcp"].value if "mcp" in root.value else None
        within = nested if isinstance(nested, dict) else {}
        shapes = [root.value.get("mcpServers"), root.value.get("servers"), within.get("servers")]
        if root.value and not any(shapes):
            self.wrong(root, "mcpServers is missing (or, as VS Code has them, servers or mcp.servers)")
        return [node for node in shapes if node is not None]

    def _root(self, *, required: bool) -> Node | None:
        try:
            text = _text_of(self.file)
            document = read(text) if text is not None else None
        except JsoncError as error:
            told = f", line {error.line}, column {error.column}: {error.message}"
            self._note(told, error.key, error.line)
            return None
        except ValueError as error:
            self._note(f" {error}")
            return None
        if document is None:
            if required:
                self._note(" does not exist")
            return None
        for repeated in document.repeated:
            self.wrong(repeated.first, f"is there twice: again in line {repeated.line}")
        return document.root

    def fill(self, node: Node, *, or_number: bool = False) -> str | None:
        """A text with its variables filled in, once: what a variable holds is not looked at again."""
        if or_number and isinstance(node.value, bool | int | float):
            return node.written
        if not isinstance(node.value, str):
            self.wrong(node, f"must be a text, not {_kind(node)}")
            return None
        wrong: list[str] = []
        filled = re.sub(_VARIABLE, lambda found: self._variable(found, wrong), node.value)
        if "\0" in filled:
            wrong.append("must not have a NUL character")
        for message in wrong:
            self.wrong(node, message)
        return None if wrong else filled

    def _variable(self, found: re.Match[str], wrong: list[str]) -> str:
        name, default, asked = found["name"], found["default"], found["input"]
        if found["other"]:
            wrong.append(f"uses ${{{found['other']}:…}}, which only the client it was written for can fill in")
            return ""
        if asked:
            name = re.sub(r"[^A-Z0-9]", "_", asked.upper())
            if name not in self.environment:
                wrong.append(f"asks for the input {asked}: give it in the environment variable {name}")
            return self.environment.get(name, "")
        places = {
            "workspaceFolder": str(self.folder),
            "workspaceFolderBasename": self.folder.name,
            "userHome": str(self.home),
            "pathSeparator": os.sep,
        }
        if name in places and not found["env"]:
            return places[name]
        if default is None and name not in self.environment:
            wrong.append(f"needs the variable {name}, which is not set: set it, or write ${{{name}:-default}}")
        elif default is not None and "${" in default:
            wrong.append(f"has a variable in the default of {name}, which would not be filled in")
        return self.environment.get(name) or default or ""


@dataclass(frozen=True, slots=True)
class _Entry:
    """What a file says of one server. A key that is null is as good as none."""

    source: _Source
    name: str
    node: Node
    members: Mapping[str, Node]

    def spec(self) -> ServerSpec | None:
        """The server, or None when it is disabled or (which has been written down) wrong."""
        if self._flag("disabled", default=False) or not self._flag("enabled", default=True):
            return None
        address = next((node for name in _ADDRESSES if (node := self._member(name))), None)
        stated = self._member("type") or self._member("transport")
        transport = self._stated(stated) if stated else self._guessed(address)
        if transport is None:
            return None
        spec = ServerSpec(
            self.name,
            transport,
            include_tools=self._texts("includeTools") if self._member("includeTools") else None,
            exclude_tools=self._texts("excludeTools"),
        )
        if transport is Transport.STDIO:
            return replace(spec, command=self._command(), args=self._texts("args"), env=self._env(), cwd=self._cwd())
        if address is None:
            self.source.wrong(self.node, f"has no url, which a server of type {transport} needs")
            return None
        url = self._url(address)
        if not stated and address.name != "httpUrl" and urlsplit(url).path.rstrip("/").endswith("/sse"):
            transport = Transport.SSE
        return replace(spec, transport=transport, url=url, headers=self._headers())

    def _member(self, name: str) -> Node | None:
        node = self.members.get(name)
        return node if node is not None and node.value is not None else None

    def _flag(self, name: str, *, default: bool) -> bool:
        node = self._member(name)
        if node is None:
            return default
        if not isinstance(node.value, bool):
            self.source.wrong(node, f"must be true or false, not {_kind(node)}")
        return bool(node.value)

    def _stated(self, node: Node) -> Transport | None:
        said = re.sub("[-_]", "", node.value).lower() if isinstance(node.value, str) else ""
        if said not in _TRANSPORTS:
            self.source.wrong(node, "must be stdio, http (or streamable-http) or sse")
        return _TRANSPORTS.get(said)

    def _guessed(self, address: Node | None) -> Transport | None:
        command = self._member("command")
        if command and address:
            self.source.wrong(self.node, f"has both command and {address.name}: remove one, or say which with type")
        if command:
            return Transport.STDIO
        if address is None:
            self.source.wrong(self.node, "needs a command (a program to start) or a url (a server to reach)")
            return None
        return Transport.HTTP

    def _command(self) -> str:
        node = self._member("command")
        if node is None:
            self.source.wrong(self.node, "has no command, which a server of type stdio needs")
            return ""
        command = self.source.fill(node)
        if command is not None and not command.strip():
            self.source.wrong(node, "must not be empty")
        return _at_home(command or "", self.source.home)

    def _cwd(self) -> str | None:
        node = self._member("cwd")
        text = self.source.fill(node) if node else None
        return str(self.source.folder / _at_home(text, self.source.home)) if text else None

    def _url(self, node: Node) -> str:
        url = self.source.fill(node)
        if url is None:
            return ""
        try:
            parts = urlsplit(url)
            usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
        except ValueError:
            usable = False
        if usable and not re.search(_NOT_IN_A_URL, url):
            return url
        self.source.wrong(node, "must be an http or https address with a host, such as https://example.com/mcp")
        return ""

    def _texts(self, name: str) -> tuple[str, ...]:
        node = self._member(name)
        if node is None:
            return ()
        if not isinstance(node.value, list):
            self.source.wrong(node, f"must be a list of texts, not {_kind(node)}")
            return ()
        return tuple(text for each in node.value if (text := self.source.fill(each, or_number=True)) is not None)

    def _headers(self) -> dict[str, str]:
        headers = self._texts_by_name("headers", _HEADER_NAME, _HEADER_VALUE)
        return {name: value.strip(" \t") for name, value in headers.items()}

    def _env(self) -> dict[str, str]:
        env: dict[str, str] = {}
        node = self._member("envFile")
        text = self.source.fill(node) if node else None
        if node and text:
            file = self.source.folder / _at_home(text, self.source.home)
            self.source.env_files.append(file)
            try:
                env.update(_assignments(_text_of(file) or ""))
            except ValueError as error:
                self.source.wrong(node, f"names {file}, which {error}")
        return env | self._texts_by_name("env", _VARIABLE_NAME, _ANYTHING)

    def _texts_by_name(self, name: str, names: str, values: str) -> dict[str, str]:
        node = self._member(name)
        if node is None:
            return {}
        if not isinstance(node.value, dict):
            self.source.wrong(node, f"must be an object with a text under each name, not {_kind(node)}")
            return {}
        texts: dict[str, str] = {}
        for key, each in node.value.items():
            text = self.source.fill(each, or_number=True) if each.value is not None else None
            if not re.fullmatch(names, key):
                self.source.wrong(each, f"has a name that cannot be used in {name}")
            elif text is not None and not re.fullmatch(values, text):
                self.source.wrong(each, "must be one line of printable ASCII characters")
            elif text is not None:
                texts[key] = text
        return texts


def _text_of(file: Path) -> str | None:
    """The text of a file, None where there is none. Raises ValueError with the rest of a sentence about the file."""
    try:
        if file.is_fifo() or file.is_char_device():
            raise ValueError("is not a file that can be read as a whole")
        with file.open("rb") as opened:
            content = opened.read(LARGEST_FILE + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ValueError(f"cannot be read: {(error.strerror or str(error)).lower()}") from error
    if len(content) > LARGEST_FILE:
        raise ValueError(f"is larger than {LARGEST_FILE // 1_000_000} MB")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(f"is not in UTF-8 (line {line})") from error
    if "\0" in text:
        raise ValueError("is not a text in UTF-8: it has NUL characters")
    return text


def _assignments(text: str) -> Iterator[tuple[str, str]]:
    """The NAME=value lines of an environment file; quotes around a value and a comment after it are no part of it."""
    for line in text.split("\n"):
        name, equals, value = (part.strip() for part in line.partition("="))
        name, quote = name.removeprefix("export ").strip(), value[:1]
        if not equals or name.startswith("#") or not re.fullmatch(_VARIABLE_NAME, name):
            continue
        end = value.find(quote, 1) if quote in {"'", '"'} else -1
        yield name, value[1:end] if end > 0 else value.partition(" #")[0].rstrip()


def _at_home(path: str, home: Path) -> str:
    return f"{home}{path[1:]}" if path == "~" or path.startswith(("~/", "~\\")) else path


def _kind(node: Node) -> str:
    return _KINDS.get(type(node.value), "a number")

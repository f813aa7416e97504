"""Reads the servers behind the gateway from `.toolscript.json`, or from the configuration file of another MCP client.

All problems are collected and reported in one error with file, key and line, and nothing starts from a file with
errors. Values in `env` and `headers` are secrets: no error contains a value.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from toolscript.configuration.agent_skill_folders import AGENT_SKILL_FOLDERS, read_agent_skill_folders
from toolscript.configuration.env_files import VARIABLE_NAME, parse_env_file
from toolscript.configuration.jsonc import JsoncError, JsoncNode, parse_jsonc
from toolscript.configuration.limits import read_limits
from toolscript.configuration.profiles import APPROVAL_RULE, ProfileReader, resembles_profiles
from toolscript.configuration.sandboxes import read_sandbox
from toolscript.configuration.text_files import read_text
from toolscript.configuration.tool_overrides import read_tool_overrides
from toolscript.configuration.variables import resolve_variables
from toolscript.domain.access import ApprovalPolicy
from toolscript.domain.errors import Invalid
from toolscript.domain.profiles import Profile
from toolscript.domain.servers import MAX_IDLE_MINUTES, OAuthSpec, ServerSpec, ServerStart, Transport, TrustPolicy
from toolscript.domain.spelling import find_nearest, suggest

Choice = TypeVar("Choice", bound=StrEnum)

FILE_NAME = ".toolscript.json"
MAX_REPORTED_PROBLEMS = 5

# Other clients keep a project's file in these folders; its relative paths are relative to the project.
_CLIENT_FOLDERS = frozenset({".vscode", ".cursor"})
_TRANSPORTS = {each.value: each for each in Transport if each is not Transport.INTERNAL} | {
    "streamablehttp": Transport.HTTP
}
_KINDS = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
_URL_KEYS = ("httpUrl", "url", "serverUrl")
# Other clients have more keys, which are ignored unless they look like a misspelling of one of these.
_ENTRY_KEYS = (
    *("command", "args", "env", "envFile", "cwd", *_URL_KEYS, "openapi", "headers"),
    *("type", "transport", "disabled", "enabled", "includeTools", "excludeTools", "start", "idleMinutes", "trust"),
    *("limits", "approval", "sandbox", "tools"),
    *("oauth", "auth"),  # the second is another client's, and left alone
)
_OAUTH_KEYS = ("clientId", "clientSecret", "scopes", "redirectPort", "callbackPort", "perUser")
MAX_PORT = 65535

# Patterns are strings: `re` compiles each at its first use, not when the command line starts.
# An item's id is `server__item`: with "__" inside or "_" at the end of a name, two ids could be the same.
_NAME = r"(?!\s)(?!.*__)[^/,\x00-\x1f\x7f-\x9f\u2028\u2029]{1,64}(?<![\s_])"
_NAME_RULE = (
    'invalid server name: use 1 to 64 characters without "__", "/", "," and control characters, and without spaces '
    'at the ends or "_" at the end'
)
_HEADER_NAME = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_ANYTHING = r"(?s:.*)"
_HEADER_VALUE = r"[\t\x20-\x7e]*"
_NOT_IN_A_URL = "[\x00-\x20\x7f\ud800-\udfff]"


@dataclass(frozen=True, slots=True)
class Configuration:
    """The servers to start, the tools that each caller sees, and every file that can change either, including files
    that do not exist yet."""

    servers: tuple[ServerSpec, ...]
    files: tuple[Path, ...]
    profiles: tuple[Profile, ...] = ()
    agent_skill_folders: tuple[str, ...] = ()
    """Folders whose subfolders are agent skills."""


def load_configuration(
    path: Path | None = None, *, home: Path, folder: Path, environment: Mapping[str, str]
) -> Configuration:
    """Reads one file, or the file of the home folder and then the file of this folder. The latter wins per server and
    profile.

    Disabled servers are left out, and so are the entries of an earlier file that a later one replaces. Raises one
    Invalid with all problems.
    """
    sources = [_ConfigurationFile(file, home, environment) for file in list_files(path, home=home, folder=folder)]
    entries: dict[str, _ServerEntry] = {}
    profiles: dict[str, Profile] = {}
    folders: list[str] = []
    roots = [(source, source.read_root(required=path is not None)) for source in sources]
    for source, root in roots:
        entries |= source.read_entries(root)
        profiles |= source.read_profiles(root)
    for source, root in roots:
        if root and (node := root.find(AGENT_SKILL_FOLDERS)):
            folders += read_agent_skill_folders(node, source.report, source.resolve_path, entries)
    specs = [entry.build_spec() for entry in entries.values()]
    problems = [problem for source in sources for problem in sorted(source.problems, key=lambda p: p["line"] or 0)]
    if problems:
        raise _build_error(problems)
    watched = [*(s.file for s in sources), *(file for s in sources for file in s.env_files)]
    files, agent_skills = tuple(dict.fromkeys(watched)), tuple(dict.fromkeys(folders))
    return Configuration(tuple(filter(None, specs)), files, tuple(profiles.values()), agent_skills)


def list_files(path: Path | None, *, home: Path, folder: Path) -> list[Path]:
    """The files that are read, whether they exist or not; later files win."""
    candidates = [home / FILE_NAME, folder / FILE_NAME] if path is None else [folder / _expand_home(str(path), home)]
    return list(dict.fromkeys(candidates))


def check_name(name: str) -> str | None:
    """Why a server cannot have this name; None if it can."""
    return None if re.fullmatch(_NAME, name) else _NAME_RULE


def parse_entry(name: str, source: str, *, file: Path, home: Path, environment: Mapping[str, str]) -> ServerSpec | None:
    """The server of one entry, as if it were in that file; None if it is disabled. Raises Invalid with all problems, in
    one line and without the file."""
    reader = _ConfigurationFile(file, home, environment)
    document = parse_jsonc(f'{{"mcpServers": {{{json.dumps(name)}: {source}}}}}')
    node = document.root.find("mcpServers", name)
    if node is None or not isinstance(node.value, dict):
        raise Invalid("must be an object")
    for first, _ in document.repeated:
        reader.report(first, "duplicate key")
    spec = _ServerEntry(reader, name, node, node.value).build_spec()
    if reader.problems:
        messages = (p["message"].removeprefix(f"{file}: ").removeprefix(node.key) for p in reader.problems)
        raise Invalid("; ".join(re.sub(r" \(line \d+\)$", "", message).lstrip(".: ") for message in messages))
    return spec


def _build_error(problems: list[dict[str, Any]]) -> Invalid:
    messages = [p["message"] for p in problems[:MAX_REPORTED_PROBLEMS]]
    if len(problems) > MAX_REPORTED_PROBLEMS:
        messages.append(f"and {len(problems) - MAX_REPORTED_PROBLEMS} more")
    first = {name: problems[0][name] for name in ("file", "key", "line")}
    return Invalid("\n".join(messages), details={**first, "problems": problems})


@dataclass(frozen=True, slots=True)
class _ConfigurationFile:
    """One file and the problems found in it."""

    file: Path
    home: Path
    environment: Mapping[str, str]
    problems: list[dict[str, Any]] = field(default_factory=list)
    """Each with `file`, `key`, `line` and `message`, as in the details of the error."""
    env_files: list[Path] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        """The folder that relative paths start from."""
        parent = self.file.parent
        return parent.parent if parent.name in _CLIENT_FOLDERS else parent

    def report(self, node: JsoncNode, message: str) -> None:
        """Records a problem with the value at a key."""
        self._record(f"{f'{node.key}: ' if node.key else ''}{message} (line {node.line})", node.key, node.line)

    def _record(self, message: str, key: str = "", line: int | None = None) -> None:
        self.problems.append({"file": str(self.file), "key": key, "line": line, "message": f"{self.file}: {message}"})

    def read_entries(self, root: JsoncNode | None) -> dict[str, _ServerEntry]:
        """Reads the servers of the file, under the key that its client uses."""
        entries: dict[str, _ServerEntry] = {}
        for servers in self._find_server_lists(root):
            if not isinstance(servers.value, dict):
                self.report(servers, f"must be an object of servers by name, not {_describe_kind(servers)}")
                continue
            for key, node in servers.value.items():
                # VS Code names a server from its gallery publisher/server.
                name = key if servers.name == "mcpServers" else key.replace("/", "-")
                if name in entries:
                    first = entries[name].node
                    self.report(node, f"already defined as {first.key} in line {first.line}")
                if problem := check_name(name):
                    self.report(node, problem)
                if isinstance(node.value, dict):
                    entries[name] = _ServerEntry(self, name, node, node.value)
                else:
                    self.report(node, f"must be an object, not {_describe_kind(node)}")
        return entries

    def read_profiles(self, root: JsoncNode | None) -> dict[str, Profile]:
        """Reads the profiles of the file."""
        members = root.value if root and isinstance(root.value, dict) else {}
        is_own = self.file.name == FILE_NAME  # other clients have keys of their own
        unclear = {k: n for k, n in members.items() if is_own or resembles_profiles(n)}
        self.report_misspelt(unclear, ["profiles", AGENT_SKILL_FOLDERS])
        return ProfileReader(self.report).read(members["profiles"]) if "profiles" in members else {}

    def _find_server_lists(self, root: JsoncNode | None) -> list[JsoncNode]:
        if root is None:
            return []
        if not isinstance(root.value, dict):
            self.report(root, f"the file must contain an object, not {_describe_kind(root)}")
            return []
        nested = root.value["mcp"].value if "mcp" in root.value else None
        mcp = nested if isinstance(nested, dict) else {}
        lists = [root.value.get("mcpServers"), root.value.get("servers"), mcp.get("servers")]
        if root.value and not any(lists) and AGENT_SKILL_FOLDERS not in root.value:
            misspelt = self.report_misspelt(root.value, ["mcpServers", "servers", "mcp"])
            if not misspelt and not self.report_misspelt(mcp, ["servers"]):
                self.report(root, "missing key: mcpServers (or servers or mcp.servers, as in VS Code)")
        return [node for node in lists if node is not None]

    def report_misspelt(self, members: Mapping[str, JsoncNode], known: Sequence[str]) -> set[str]:
        """Records a problem for each unknown key that resembles a known key; returns the resembled keys."""
        meant = {key: find_nearest(key, known) for key in members if key not in known}
        for key, intended in meant.items():
            if intended:
                self.report(members[key], f'unknown key, did you mean "{intended}"?')
        return {intended for intended in meant.values() if intended}

    def read_root(self, *, required: bool) -> JsoncNode | None:
        """Reads the file; None if it does not exist or is not valid JSON."""
        try:
            text = read_text(self.file)
            document = parse_jsonc(text) if text is not None else None
        except JsoncError as error:
            self._record(f"{error.message} (line {error.line}, column {error.column})", error.key, error.line)
            return None
        except ValueError as error:
            self._record(str(error))
            return None
        if document is None:
            if required:
                self._record("no such file")
            return None
        for first, line in document.repeated:
            self.report(first, f"duplicate key, again in line {line}")
        return document.root

    def resolve(self, node: JsoncNode, *, or_number: bool = False) -> str | None:
        """Returns a string with its variables replaced, or None with a problem reported. Values are not searched for
        further variables."""
        if or_number and isinstance(node.value, bool | int | float):
            return node.literal
        if not isinstance(node.value, str):
            self.report(node, f"must be a string, not {_describe_kind(node)}")
            return None
        places = {
            "workspaceFolder": str(self.folder),
            "workspaceFolderBasename": self.folder.name,
            "userHome": str(self.home),
            "pathSeparator": os.sep,
        }
        resolved, problems = resolve_variables(node.value, places, self.environment)
        for message in problems:
            self.report(node, message)
        return None if problems else resolved

    def resolve_path(self, node: JsoncNode) -> Path | None:
        """Returns the path that a string names; None for an empty one, or with a problem reported."""
        text = self.resolve(node)
        return self.folder / _expand_home(text, self.home) if text else None


@dataclass(frozen=True, slots=True)
class _ServerEntry:
    """The entry of one server in a file. Null counts as a missing key."""

    source: _ConfigurationFile
    name: str
    node: JsoncNode
    members: Mapping[str, JsoncNode]

    def build_spec(self) -> ServerSpec | None:
        """Returns the server, or None if it is disabled or has problems. Problems are reported."""
        if self._read_flag("disabled", default=False) or not self._read_flag("enabled", default=True):
            return None
        misspelt = self.source.report_misspelt(self.members, _ENTRY_KEYS)
        url_node = next((node for name in _URL_KEYS if (node := self._get(name))), None)
        type_node = self._get("type") or self._get("transport")
        transport = self._read_transport(type_node) if type_node else self._infer_transport(url_node, misspelt)
        if transport is None:
            return None
        source, (limit, tool_limits) = self.source, read_limits(self._get("limits"), self.source.report)
        spec = ServerSpec(
            self.name,
            transport,
            include_tools=self._read_list("includeTools") if self._get("includeTools") else None,
            exclude_tools=self._read_list("excludeTools"),
            trust=self._read_choice("trust", TrustPolicy, '"open", "changed", "all" or "review"'),
            start=self._read_choice("start", ServerStart, '"eager" (with the gateway) or "lazy" (with the first call)'),
            idle_minutes=self._read_idle_minutes(),
            approval=self._read_choice("approval", ApprovalPolicy, APPROVAL_RULE) or ApprovalPolicy.NEVER,
            limit=limit,
            tool_limits=tool_limits,
            sandbox=read_sandbox(self._get("sandbox"), transport, source.report, source.resolve, source.resolve_path),
            tools=read_tool_overrides(self._get("tools"), source.report, source.resolve),
        )
        if transport is Transport.STDIO:
            command, args, cwd = self._read_command(), self._read_list("args"), self._read_path("cwd")
            return replace(spec, command=command, args=args, env=self._read_env(), cwd=str(cwd) if cwd else None)
        if transport is Transport.OPENAPI:
            return self._build_api(spec, url_node)
        if url_node is None:
            self.source.report(self.node, f"a server of type {transport} needs a url")
            return None
        url = self._read_url(url_node)
        if not type_node and url_node.name != "httpUrl" and urlsplit(url).path.rstrip("/").endswith("/sse"):
            transport = Transport.SSE
        return replace(spec, transport=transport, url=url, headers=self._read_headers(), oauth=self._read_oauth())

    def _build_api(self, spec: ServerSpec, url_node: JsoncNode | None) -> ServerSpec:
        """The server of an API: its document is a file or at a URL, where its address may be missing."""
        node = self._get("openapi")
        document = (self.source.resolve(node) or "") if node else ""
        if node is None:
            self.source.report(self.node, "a server of type openapi needs an openapi: the file or URL of its document")
        elif "://" in document:
            document = self._read_url(node)
        elif document:
            document = str(self.source.folder / _expand_home(document, self.source.home))
            if url_node is None:
                self.source.report(node, "is a file: add the `url` that calls go to, such as https://example.com/v1")
        url = self._read_url(url_node) if url_node else document
        if "@" in urlsplit(url).netloc:
            self.source.report(url_node or node or self.node, "must have no user and password: use `headers`")
        return replace(spec, url=url, openapi=document, headers=self._read_headers(), oauth=self._read_oauth())

    def _get(self, name: str) -> JsoncNode | None:
        node = self.members.get(name)
        return node if node is not None and node.value is not None else None

    def _read_flag(self, name: str, *, default: bool) -> bool:
        node = self._get(name)
        if node is None:
            return default
        if not isinstance(node.value, bool):
            self.source.report(node, f"must be true or false, not {_describe_kind(node)}")
        return bool(node.value)

    def _read_choice(self, name: str, kind: type[Choice], allowed: str) -> Choice | None:
        node = self._get(name)
        if node is None or (name == "trust" and isinstance(node.value, bool)):  # another client's key
            return None
        if node.value in list(kind):
            return kind(node.value)
        hint = suggest(node.value, kind) if isinstance(node.value, str) else ""
        self.source.report(node, f"must be {allowed}{hint}")
        return None

    def _read_idle_minutes(self) -> float | None:
        node = self._get("idleMinutes")
        if node is None:
            return None
        minutes = node.value if isinstance(node.value, int | float) and not isinstance(node.value, bool) else -1
        if 0 <= minutes <= MAX_IDLE_MINUTES:
            return float(minutes)
        self.source.report(node, f"must be a number of minutes from 0 (never stop it) to {MAX_IDLE_MINUTES:g}")
        return None

    def _read_transport(self, node: JsoncNode) -> Transport | None:
        name = re.sub("[-_]", "", node.value).lower() if isinstance(node.value, str) else ""
        if name not in _TRANSPORTS:
            self.source.report(node, "must be stdio, http (or streamable-http), sse or openapi")
        return _TRANSPORTS.get(name)

    def _infer_transport(self, url_node: JsoncNode | None, misspelt: set[str]) -> Transport | None:
        command, document = self._get("command"), self._get("openapi")
        other = document or url_node
        if command and other:
            self.source.report(self.node, f"has both command and {other.name}: remove one, or set type")
        if document and not command:
            return Transport.OPENAPI
        if command:
            return Transport.STDIO
        if url_node is None:
            if misspelt.isdisjoint({"command", "openapi", *_URL_KEYS}):
                self._report_neither_command_nor_url()
            return None
        return Transport.HTTP

    def _report_neither_command_nor_url(self) -> None:
        from difflib import get_close_matches

        for key, node in self.members.items():
            for intended in get_close_matches(key, ["command", "openapi", *_URL_KEYS], n=1):
                if key != intended:
                    self.source.report(node, f'unknown key, did you mean "{intended}"?')
                    return
        choices = "a command (a program to start), a url (a server to connect to) or an openapi (an API's document)"
        self.source.report(self.node, f"needs {choices}")

    def _read_command(self) -> str:
        node = self._get("command")
        if node is None:
            self.source.report(self.node, "a server of type stdio needs a command")
            return ""
        command = self.source.resolve(node)
        if command is not None and not command.strip():
            self.source.report(node, "must not be empty")
        return _expand_home(command or "", self.source.home)

    def _read_path(self, name: str) -> Path | None:
        node = self._get(name)
        return self.source.resolve_path(node) if node else None

    def _read_url(self, node: JsoncNode) -> str:
        url = self.source.resolve(node)
        if url is None:
            return ""
        try:
            parts = urlsplit(url)
            usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
        except ValueError:
            usable = False
        if usable and not re.search(_NOT_IN_A_URL, url):
            return url
        self.source.report(node, "must be an http or https URL with a host, such as https://example.com/mcp")
        return ""

    def _read_list(self, name: str) -> tuple[str, ...]:
        node = self._get(name)
        if node is None:
            return ()
        if not isinstance(node.value, list):
            self.source.report(node, f"must be a list of strings, not {_describe_kind(node)}")
            return ()
        return tuple(text for each in node.value if (text := self.source.resolve(each, or_number=True)) is not None)

    def _read_oauth(self) -> OAuthSpec:
        node = self._get("oauth")
        if node is None or not isinstance(node.value, dict):
            if node is not None:
                self.source.report(node, f"must be an object, not {_describe_kind(node)}")
            return OAuthSpec()
        self.source.report_misspelt(node.value, _OAUTH_KEYS)
        own = replace(self, node=node, members=node.value)
        client_id, client_secret, scopes = (
            own._read_text("clientId"),
            own._read_text("clientSecret"),
            own._read_list("scopes"),
        )
        if client_secret and not client_id:
            self.source.report(node, "has a clientSecret and no clientId")
        return OAuthSpec(client_id, client_secret, scopes, own._read_port(), own._read_flag("perUser", default=False))

    def _read_port(self) -> int:
        node = self._get("redirectPort") or self._get("callbackPort")
        if node is None:
            return 0
        if not isinstance(node.value, int) or isinstance(node.value, bool) or not 0 < node.value <= MAX_PORT:
            self.source.report(node, f"must be a whole number from 1 to {MAX_PORT}")
            return 0
        return node.value

    def _read_text(self, name: str) -> str:
        node = self._get(name)
        return (self.source.resolve(node) or "") if node else ""

    def _read_headers(self) -> dict[str, str]:
        headers = self._read_mapping("headers", _HEADER_NAME, _HEADER_VALUE)
        return {name: value.strip(" \t") for name, value in headers.items()}

    def _read_env(self) -> dict[str, str]:
        env: dict[str, str] = {}
        file = self._read_path("envFile")
        if file:
            self.source.env_files.append(file)
            try:
                env.update(parse_env_file(read_text(file) or ""))
            except ValueError as error:
                self.source.report(self.members["envFile"], f"{file}: {error}")
        return env | self._read_mapping("env", VARIABLE_NAME, _ANYTHING)

    def _read_mapping(self, name: str, names: str, values: str) -> dict[str, str]:
        node = self._get(name)
        if node is None:
            return {}
        if not isinstance(node.value, dict):
            self.source.report(node, f"must be an object of strings by name, not {_describe_kind(node)}")
            return {}
        texts: dict[str, str] = {}
        for key, each in node.value.items():
            text = self.source.resolve(each, or_number=True) if each.value is not None else None
            if not re.fullmatch(names, key):
                self.source.report(each, f"invalid name in {name}")
            elif text is not None and not re.fullmatch(values, text):
                self.source.report(each, "must be one line of printable ASCII characters")
            elif text is not None:
                texts[key] = text
        return texts


def _expand_home(path: str, home: Path) -> str:
    return f"{home}{path[1:]}" if path == "~" or path.startswith(("~/", "~\\")) else path


def _describe_kind(node: JsoncNode) -> str:
    return _KINDS.get(type(node.value), "a number")

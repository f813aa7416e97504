"""How a server of a registry would be started or reached: an entry for the configuration, made of what its publisher
states and of values that a person gives. Nothing here runs or fetches anything."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from toolscript.domain.errors import Invalid
from toolscript.domain.registry.entry import Json, RegistryEntry, to_objects

# The runner of each kind of package. Another program that an entry names is refused: it could be any.
_RUNNERS: Mapping[str, Sequence[str]] = {
    "npm": ("npx", "bunx"),
    "pypi": ("uvx",),
    "oci": ("docker", "podman"),
    "nuget": ("dnx",),
}
_REMOTES = {"streamable-http": "http", "http": "http", "sse": "sse"}
_IDENTIFIER = re.compile(r"[A-Za-z0-9@][A-Za-z0-9@/._:+-]*")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BRACES = re.compile(r"\{([^{}]+)\}")
_REFERENCE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")
# Variables that decide which program runs, or where it is downloaded: the runner reads them before the server does.
_RUNNER_VARIABLES = re.compile(
    r"PATH|HOME|SHELL|BASH_ENV|(LD|DYLD|UV|PIP|NPM_CONFIG|BUN|DOCKER|CONTAINERS?|NUGET|XDG|CORECLR)_.*|"
    r"GIT_(SSH.*|CONFIG.*|ASKPASS|EXEC_PATH|PROXY_COMMAND)|"
    r"NODE_(OPTIONS|PATH|EXTRA_CA_CERTS|TLS_REJECT_UNAUTHORIZED)|PYTHON(?!UNBUFFERED$|IOENCODING$|UTF8$).*|"
    r"DOTNET_(STARTUP_HOOKS|ADDITIONAL_DEPS|SHARED_STORE|ROOT.*|CLI_HOME)|(HTTPS?|ALL|NO)_PROXY|SSL_CERT_.*",
    re.IGNORECASE,
)
_VALUELESS = {"type", "name"}
MAX_TEXT = 300
# Of the variables in braces of one launch: they nest, so that a small entry could ask for millions.
MAX_VARIABLES = 100
MAX_VARIABLE_TEXT = 8 * 1024
GENERIC_NAMES = frozenset({"mcp", "server", "mcp-server", "mcp-remote"})


@dataclass(frozen=True, slots=True)
class RegistryInput:
    """A value that a person gives: a variable, or a part of a header, an argument or an address."""

    name: str
    place: str
    description: str = ""
    is_required: bool = False
    is_secret: bool = False
    default: str | None = None
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RegistryLaunch:
    """One way to use a server: a package that runs on this machine, or an address."""

    about: str
    """`npm package @ann/weather 1.0.2`, or the address."""
    entry: Mapping[str, Any]
    """The entry for the configuration; values that are missing are `<NAME>`."""
    inputs: tuple[RegistryInput, ...]
    missing: tuple[str, ...]
    """The inputs that are required and have no value yet."""
    stated: tuple[str, ...]
    """The variables and headers that have a value of the publisher: `variable NODE_ENV=production`."""
    is_remote: bool = False
    problem: str = ""
    """Why Toolscript cannot use it."""
    package_digest: str = ""
    """The SHA-256 of the package's file that its publisher states. The runner does not check it."""

    @property
    def may_need_login(self) -> bool:
        """Whether the server may ask for a login: registries do not say so."""
        return self.is_remote and not any(each.is_secret for each in self.inputs)


def list_launches(entry: RegistryEntry, values: Mapping[str, str] | None = None) -> list[RegistryLaunch]:
    """Every way to use a server, usable ones first, packages before addresses. Raises Invalid for a value that is not
    among the allowed ones."""
    packages, remotes = (to_objects(entry.definition.get(key)) for key in ("packages", "remotes"))
    launches = [_plan(package, values or {}, is_remote=False) for package in packages]
    launches += [_plan(remote, values or {}, is_remote=True) for remote in remotes]
    return sorted(launches, key=lambda launch: bool(launch.problem))


def suggest_name(entry: RegistryEntry) -> str:
    """A name for the server in the configuration."""
    namespace, _, name = entry.name.partition("/")
    words = re.sub(r"__+", "_", name)
    return namespace.rpartition(".")[2] if words.lower() in GENERIC_NAMES else words


@dataclass(slots=True)
class _Filling:
    """Puts values into what the publisher states, and notes what is asked for."""

    values: Mapping[str, str]
    inputs: dict[str, RegistryInput] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    stated: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    variables_left: int = MAX_VARIABLES
    text_left: int = MAX_VARIABLE_TEXT

    def fill(self, name: str, spec: Json, place: str) -> str | None:
        """The value of a variable, header or argument; None if it is optional and not given."""
        fixed = spec.get("value")
        if not isinstance(fixed, str) or not fixed:
            return self.ask(name, spec, place)
        self.state(name, fixed, place)
        return self.resolve(fixed, spec, place)

    def resolve(self, text: str, spec: Json, place: str) -> str | None:
        """A fixed text, with values for its variables in braces."""
        variables = spec.get("variables")
        known = variables if isinstance(variables, Mapping) else {}
        self.check(text)
        is_complete = True

        def replace(found: re.Match[str]) -> str:
            nonlocal is_complete
            if not isinstance(variable := known.get(found[1]), Mapping):
                return found[0]
            self.variables_left -= 1
            value = self.fill(found[1], variable, place) if self.variables_left >= 0 and self.text_left >= 0 else ""
            self.text_left -= len(value or "")
            is_complete = is_complete and value is not None
            return value or ""

        filled = _BRACES.sub(replace, text)
        return filled if is_complete or spec.get("isRequired") is True else None

    def ask(self, name: str, spec: Json, place: str) -> str | None:
        default = spec.get("default")
        default = str(default) if isinstance(default, str | int | float) else None
        choices = tuple(map(str, spec["choices"])) if isinstance(spec.get("choices"), list) else ()
        wanted = RegistryInput(
            name[:MAX_TEXT],
            place,
            " ".join(str(spec.get("description") or "").split())[:MAX_TEXT],
            spec.get("isRequired") is True,
            spec.get("isSecret") is True,
            default,
            choices,
        )
        self.inputs[name] = wanted
        value = self.values.get(name, default)
        if value is not None and name not in self.values:
            self.check(value)
            self.state(name, value, place)
        if name in self.values and choices and value not in choices and not _REFERENCE.fullmatch(value or ""):
            raise Invalid(
                f"{name}: {value!r} is not allowed: give one of {', '.join(choices[:20])}",
                details={"field": name, "allowed": list(choices[:20])},
            )
        if value is None and wanted.is_required:
            self.missing.append(name)
            return f"<{name}>"
        return value

    def state(self, name: str, value: str, place: str) -> None:
        """Notes a value of the publisher that neither the command line nor the address shows."""
        if place in {"variable", "header"}:
            self.stated.append(f"{place} {name}={value}")

    def check(self, text: str) -> None:
        """Notes a text of the publisher that the configuration would replace by a variable of this machine, which may
        be a secret and would go to the publisher."""
        if "${" in text:
            self.problems.append(f"it asks for variables of this machine: {text[:80]!r}")


def _plan(given: Json, values: Mapping[str, str], *, is_remote: bool) -> RegistryLaunch:
    filling = _Filling(values)
    about, entry = (_plan_remote if is_remote else _plan_package)(given, filling)
    if filling.variables_left < 0 or filling.text_left < 0:
        filling.problems.append("its values have too many variables")
    digest = given.get("fileSha256")
    return RegistryLaunch(
        about,
        # Also the first definitions of a server that nobody here has seen before wait for a person.
        {**entry, "trust": "review"},
        tuple(filling.inputs.values()),
        tuple(filling.missing),
        tuple(filling.stated),
        is_remote,
        "; ".join(filling.problems),
        digest[:64] if isinstance(digest, str) and not is_remote else "",
    )


def _plan_remote(remote: Json, filling: _Filling) -> tuple[str, dict[str, Any]]:
    url, kind = str(remote.get("url") or ""), str(remote.get("type") or "")
    if kind not in _REMOTES:
        filling.problems.append(f"its transport {kind[:50]!r} is unknown")
    if not url.startswith(("https://", "http://")):
        filling.problems.append("its address is not an http(s) URL")
    filled = filling.resolve(url, {**remote, "isRequired": True}, "address") or url
    headers = {}
    for spec in to_objects(remote.get("headers")):
        name = str(spec.get("name") or "")
        if (value := filling.fill(name, spec, "header")) is not None:
            headers[name] = value
    return url[:MAX_TEXT], {
        "type": _REMOTES.get(kind, "http"),
        "url": filled,
        **({"headers": headers} if headers else {}),
    }


def _plan_package(package: Json, filling: _Filling) -> tuple[str, dict[str, Any]]:
    kind, identifier, version = (str(package.get(key) or "") for key in ("registryType", "identifier", "version"))
    about = f"{kind} package {identifier} {version}".strip()[:MAX_TEXT]
    runners = _RUNNERS.get(kind, ())
    runner = str(package.get("runtimeHint") or (runners or ("",))[0])
    transport = package.get("transport")
    served = str(transport.get("type")) if isinstance(transport, Mapping) else "stdio"
    if not runners:
        filling.problems.append(f"Toolscript cannot run packages of the kind {kind[:50]!r}: see its documentation")
    elif runner not in runners:
        filling.problems.append(f"it wants to be run by {runner[:50]!r}: allowed for {kind} is {' or '.join(runners)}")
    if not _IDENTIFIER.fullmatch(identifier) or (version and not _VERSION.fullmatch(version)):
        filling.problems.append("its package has no usable name or version")
    if served != "stdio":
        filling.problems.append("it serves HTTP itself: start it, and add its address as `url`")
    env = {}
    for spec in to_objects(package.get("environmentVariables")):
        name = str(spec.get("name") or "")
        if not _VARIABLE_NAME.fullmatch(name):
            filling.problems.append(f"not the name of a variable: {name[:50]!r}")
        elif _RUNNER_VARIABLES.fullmatch(name) and any(spec.get(key) for key in ("value", "default", "choices")):
            filling.problems.append(f"it sets {name[:50]}, which decides what runs on this machine")
        elif (value := filling.fill(name, spec, "variable")) is not None:
            env[name] = value
    runtime = _list_arguments(package.get("runtimeArguments"), filling)
    own = _list_arguments(package.get("packageArguments"), filling)
    args = _build_arguments(kind, identifier, version, env, runtime) + own
    return about, {"command": runner, "args": args, **({"env": env} if env else {})}


def _build_arguments(
    kind: str, identifier: str, version: str, env: Mapping[str, str], runtime: Sequence[str]
) -> list[str]:
    if kind == "oci":
        given = [word for word in runtime if word not in {"run", "-i", "--rm"}]
        passed = [part for name in env for part in ("-e", name)]
        tagged = ":" in identifier.rpartition("/")[2] or "@" in identifier
        image = identifier if tagged or not version else f"{identifier}:{version}"
        return ["run", "-i", "--rm", *passed, *given, image]
    package = f"{identifier}@{version}" if version else identifier
    if kind == "npm":
        return ["-y", *(word for word in runtime if word not in {"-y", "--yes"}), package]
    if kind == "nuget":
        return [package, "--yes", *(word for word in runtime if word != "--yes"), "--"]
    return [*runtime, package]


def _list_arguments(given: Any, filling: _Filling) -> list[str]:
    arguments: list[str] = []
    for spec in to_objects(given):
        name = str(spec.get("name") or "")
        label = str(spec.get("valueHint") or name.lstrip("-") or "argument")
        if spec.get("type") != "named":
            value = filling.fill(label, spec, "argument")
            arguments += [] if value is None else [value]
            continue
        filling.check(name)
        if spec.keys() <= _VALUELESS:  # a flag such as `--read-only`
            arguments.append(name)
        elif (value := filling.fill(label, spec, "argument")) is not None:
            arguments += [name, value]
    return arguments

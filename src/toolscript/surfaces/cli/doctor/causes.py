"""What to do about a server that cannot be used, by the reason that its status gives."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cause:
    """A kind of failure."""

    name: str
    """For programs."""
    pattern: str
    """What the reason says, in any case of letters."""
    action: str
    """What to do. `{server}` stands for the server's name."""
    has_log: bool = False
    """Whether the server's log may say more."""


# The first that fits counts: a certificate that is refused also ends a program with a code.
CAUSES = (
    Cause(
        "command_not_found",
        r"^command not found: (npx|node|npm)\b",
        "install Node.js from https://nodejs.org. If a shell finds it, its PATH is another one than the gateway's: "
        "give the full path as `command`, or start the gateway from that shell",
    ),
    Cause(
        "command_not_found",
        r"^command not found: (uvx|uv)\b",
        "install uv from https://docs.astral.sh/uv. If a shell finds it, its PATH is another one than the gateway's: "
        "give the full path as `command`, or start the gateway from that shell",
    ),
    Cause(
        "sandbox_missing",
        r"^command not found: bwrap\b",
        "install bubblewrap (`apt-get install bubblewrap`, `dnf install bubblewrap`), or take docker or podman as "
        "`sandbox`",
    ),
    Cause(
        "sandbox_missing",
        r"^command not found: (docker|podman), which `sandbox`",
        "install it, or on Linux take bwrap as `sandbox`",
    ),
    Cause("sandbox_missing", r"^sandbox: bwrap is for Linux", "take docker or podman as `sandbox`, with an image"),
    Cause(
        "sandbox_forbidden",
        r"bwrap: (No permissions|setting up uid map|Creating new namespace|loopback: |Can't mount proc)",
        "this system lets bwrap create no namespaces. Ubuntu since 24.04: give bwrap a profile of AppArmor (package "
        "apparmor-profiles). In a container: allow user namespaces, or run the gateway outside. Or take docker or "
        "podman as `sandbox`",
    ),
    Cause("sandbox_old", r"bwrap: Unknown option", "install bubblewrap 0.8 or newer"),
    Cause(
        "sandbox_engine",
        r"Cannot connect to (the Docker daemon|Podman)|permission denied.* docker daemon socket",
        "start the engine, and let the gateway's user use it (`docker info` says more)",
    ),
    Cause(
        "sandbox_folders",
        r"\bthe sandbox (does not|cannot) show|^folder of the sandbox not found|bwrap: .*No such file or directory",
        "correct `folders` of `sandbox`: the server sees these, its `cwd` and the system's programs",
    ),
    Cause(
        "command_not_found",
        r"^command not found: ",
        "install the command, or give its full path as `command`: the gateway's PATH may be another one than that of "
        "your shell",
    ),
    Cause("folder_not_found", r"^working folder not found", "create the folder, or correct `cwd` of the entry"),
    Cause("cannot_run", r"^cannot run ", "check that the file is a program for this machine, and executable"),
    Cause(
        "certificate",
        r"CERTIFICATE_VERIFY_FAILED|SELF_SIGNED_CERT|self-signed certificate|UnknownIssuer|"
        r"UNABLE_TO_(GET_ISSUER_CERT|VERIFY_LEAF)|unable to (get local issuer|verify the first)|"
        r"use of system TLS certificates|invalid peer certificate",
        "if a proxy of your company signs certificates: set SSL_CERT_FILE and NODE_EXTRA_CA_CERTS to the file with its "
        "certificate (uvx: UV_SYSTEM_CERTS=true), and restart the gateway, which passes them on. A server of your own: "
        "give it a certificate that this machine trusts",
    ),
    Cause(
        "certificates_missing",
        r"^[^ ]+: \[Errno 2\] No such file",
        "a variable with certificates names a file that is not there: see Network below",
    ),
    Cause("not_tls", r"WRONG_VERSION_NUMBER|HTTP_REQUEST\]", "the address answers without TLS: write http:// in `url`"),
    Cause(
        "wrong_node",
        r"EBADENGINE|ERR_UNKNOWN_BUILTIN_MODULE|ERR_REQUIRE_ESM|No such built-in module|Unsupported engine|"
        r"(SyntaxError|ReferenceError|TypeError.* is not a (function|constructor)).*\(Node\.js v",
        "the server probably needs a newer Node.js than `node --version` says: install one, or give the full path of a "
        "newer npx as `command`",
    ),
    Cause(
        "package_not_found",
        r"npm (error|ERR!) 404|was not found in the package registry|is not in this registry",
        "check the name of the package in `args`, and that its registry can be reached from here",
    ),
    Cause("needs_login", r"toolscript login ", "run `toolscript login {server}`"),
    Cause(
        "http_401",
        r"HTTP status 401",
        "the server does not accept the credentials: correct `headers` of the entry, or remove them and run "
        "`toolscript login {server}`",
    ),
    Cause(
        "http_403",
        r"HTTP status 403",
        "the credentials are not allowed to use this server: check `headers` of the entry, and what the account may do",
    ),
    Cause(
        "http_404",
        r"HTTP status 404|'404 Not Found'",
        "nothing is at this path: check `url` of the entry (servers are often at /mcp; for /sse set `type` to sse)",
    ),
    Cause(
        "http_error",
        r"HTTP status [45]\d\d|(Client|Server) error '",
        "the server or a proxy before it refuses: try later",
    ),
    Cause(
        "not_mcp",
        r"Unexpected content type",
        "what answers at `url` does not speak MCP: check the address, and `type` (http or sse)",
    ),
    Cause(
        "name_not_resolved",
        r"Name or service not known|Temporary failure in name resolution|nodename nor servname|getaddrinfo|"
        r"\bENOTFOUND\b|EAI_AGAIN|failed to lookup address|dns error",
        "the name of the host is unknown here: check `url` or the registry, the network (a sandbox has one with "
        "`network: true` alone), and whether a proxy is needed (HTTPS_PROXY)",
    ),
    Cause(
        "refused",
        r"connection refused|ECONNREFUSED",
        "nothing listens there: start that server, or correct `url` (host and port)",
    ),
    Cause(
        "not_messages",
        r"lines to its standard output that are not messages",
        "a program for MCP writes nothing else there. Check that `args` start its stdio mode, or give its address as "
        "`url`",
    ),
    Cause(
        "timeout",
        r"^no answer within|did not list its tools within",
        "a first start may download packages: run the command once in a shell, or raise TOOLSCRIPT_CONNECT_TIMEOUT",
        has_log=True,
    ),
    Cause(
        "missing_module",
        r"ModuleNotFoundError|ERR_MODULE_NOT_FOUND|Cannot find (module|package)",
        "the program lacks a package: install the server again, or check the path in `args`",
    ),
    Cause(
        "exited",
        r"^(exited with code|killed by|it closed its standard output)",
        "run its command in a shell to see why it ends",
        has_log=True,
    ),
)
UNKNOWN = Cause("unknown", "", "run its command in a shell, or ask its address with curl, to see more", has_log=True)


def describe_action(cause: Cause, server: str, *, in_gateway: bool) -> str:
    """What to do about a server. A gateway keeps the logs of its servers."""
    server = shlex.quote(server)
    action = cause.action.format(server=server)
    return f"{action}. `toolscript servers log {server}` shows its log" if cause.has_log and in_gateway else action


def find_cause(reason: str) -> Cause:
    """The cause of a failure."""
    return next((cause for cause in CAUSES if re.search(cause.pattern, reason, re.IGNORECASE)), UNKNOWN)

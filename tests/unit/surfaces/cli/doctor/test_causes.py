"""The reasons of servers that cannot be used lead to a cause and to something to do."""

from __future__ import annotations

import pytest

from toolscript.surfaces.cli.doctor.causes import UNKNOWN, describe_action, find_cause

pytestmark = pytest.mark.req("A-05")

# As real programs and libraries write them, also those that no test can start here.
REASONS = {
    "command not found: npx. Install it, or give its full path": "command_not_found",
    "command not found: uvx. Install it, or give its full path": "command_not_found",
    "command not found: no-such. Install it, or give its full path": "command_not_found",
    "command not found: bwrap, which `sandbox` of the server asks for": "sandbox_missing",
    "command not found: docker, which `sandbox` of the server asks for": "sandbox_missing",
    "sandbox: bwrap is for Linux alone. Use docker or podman with an image": "sandbox_missing",
    "exited with code 1: bwrap: No permissions to create new namespace, likely because the kernel does not allow "
    "non-privileged user namespaces.": "sandbox_forbidden",
    "exited with code 1: bwrap: setting up uid map: Permission denied": "sandbox_forbidden",
    "exited with code 1: bwrap: Can't mount proc on /newroot/proc: Operation not permitted": "sandbox_forbidden",
    "exited with code 1: bwrap: Unknown option --disable-userns": "sandbox_old",
    "exited with code 125: docker: Cannot connect to the Docker daemon at unix:///var/run/docker.sock.": (
        "sandbox_engine"
    ),
    "folder of the sandbox not found: /nope": "sandbox_folders",
    "the sandbox cannot show /home/ann: Toolscript's data folder is /home/ann/.toolscript": "sandbox_folders",
    "the sandbox does not show /home/ann/server.py, which `args` name: add it to `folders`": "sandbox_folders",
    "exited with code 1: bwrap: execvp /home/ann/x: No such file or directory": "sandbox_folders",
    "working folder not found: /nope": "folder_not_found",
    "cannot run /opt/server: [Errno 8] Exec format error": "cannot_run",
    "exited with code 1: Consider enabling use of system TLS certificates": "certificate",
    "exited with code 1: npm error request to https://npm.example.com/x failed, reason: self-signed certificate in "
    "certificate chain": "certificate",
    "docs.example.com: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: unable to get local issuer "
    "certificate (_ssl.c:1006)": "certificate",
    "docs.example.com: [SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:1006)": "not_tls",
    "docs.example.com: [Errno 2] No such file or directory": "certificates_missing",
    "exited with code 1: Error [ERR_UNKNOWN_BUILTIN_MODULE]: No such built-in module: node:sqlite (Node.js v20.20.2)": (
        "wrong_node"
    ),
    "exited with code 1: SyntaxError: Unexpected token '??=' (Node.js v14.21.3)": "wrong_node",
    "exited with code 1: TypeError: structuredClone is not a function (Node.js v16.20.2)": "wrong_node",
    "exited with code 1: TypeError: fetch failed (Node.js v22.1.0)": "exited",
    "exited with code 1: npm error 404 Not Found - GET https://npm.example.com/no-such - Not found": (
        "package_not_found"
    ),
    "exited with code 1: cause: Because x was not found in the package registry and you require x": "package_not_found",
    "it needs a login: run `toolscript login docs`": "needs_login",
    "HTTP status 401: check its `headers`": "http_401",
    "HTTP status 403": "http_403",
    "HTTP status 404": "http_404",
    "127.0.0.1:9: Client error '404 Not Found' for url 'http://127.0.0.1:9/sse'": "http_404",
    "HTTP status 503": "http_error",
    "127.0.0.1:9: Unexpected content type: text/html": "not_mcp",
    "no-such.invalid: [Errno -2] Name or service not known": "name_not_resolved",
    "no-such.invalid: [Errno 8] nodename nor servname provided, or not known": "name_not_resolved",
    "no-such.invalid: [Errno 11001] getaddrinfo failed": "name_not_resolved",
    "127.0.0.1:9: connection refused": "refused",
    "no answer within 30 s": "timeout",
    "no answer within 30 s: the last line of its log: Need to install the following packages: x": "timeout",
    "no answer within 30 s: it writes lines to its standard output that are not messages of MCP: hello": "not_messages",
    "exited with code 1: ModuleNotFoundError: No module named 'server'": "missing_module",
    "exited with code 1: Error: Cannot find module '/opt/index.js' (Node.js v22.1.0)": "missing_module",
    "exited with code 3: no key": "exited",
    "killed by SIGSEGV": "exited",
    "its tools are not in the catalogue yet: disk full": UNKNOWN.name,
}


@pytest.mark.parametrize("reason", REASONS)
def test_a_reason_has_a_cause_and_an_action(reason: str) -> None:
    cause = find_cause(reason)
    assert cause.name == REASONS[reason]
    action = describe_action(cause, "docs", in_gateway=True)
    assert action
    assert "{" not in action
    assert ("toolscript servers log docs" in action) == cause.has_log


@pytest.mark.parametrize(
    "reason", ["it needs a login: run `toolscript login 'my server'`", "exited with code 3: no key"]
)
def test_the_name_of_a_server_is_quoted_for_a_shell(reason: str) -> None:
    assert "'my server'`" in describe_action(find_cause(reason), "my server", in_gateway=True)

"""The sandbox in the entry of a server: read, or refused with the key."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from toolscript.configuration.files import load_configuration
from toolscript.domain.errors import Invalid
from toolscript.domain.servers import SandboxKind, SandboxSpec, ServerSpec

pytestmark = pytest.mark.req("O-04", "X-03")


def load(folder: Path, sandbox: Any, **entry: Any) -> ServerSpec:
    entry = entry or {"command": "run"}
    (folder / ".toolscript.json").write_text(json.dumps({"mcpServers": {"git": {**entry, "sandbox": sandbox}}}))
    (spec,) = load_configuration(home=folder, folder=folder, environment={"OUT": "/srv/out"}).servers
    return spec


def test_a_name_is_enough_for_bubblewrap(tmp_path: Path) -> None:
    spec = load(tmp_path, "bwrap")
    assert spec.sandbox == SandboxSpec(SandboxKind.BWRAP)
    assert spec.sandbox.summary == "bwrap, no network"
    assert load(tmp_path, None).sandbox is None


def test_an_object_says_network_folders_and_image(tmp_path: Path) -> None:
    folders = ["~/notes", "data/../files:rw", "${OUT}:rw"]
    spec = load(tmp_path, {"kind": "docker", "network": True, "folders": folders, "image": "node:22"})
    expected = ((f"{tmp_path}/notes", False), (f"{tmp_path}/files", True), ("/srv/out", True))
    assert spec.sandbox == SandboxSpec(SandboxKind.DOCKER, True, expected, "node:22")
    assert spec.sandbox.summary == "docker, with network"


def test_another_sandbox_may_offer_other_tools(tmp_path: Path) -> None:
    spec = load(tmp_path, {"kind": "podman", "image": "a"})
    assert spec.sandbox
    others = [None, replace(spec.sandbox, image="b"), replace(spec.sandbox, network=True)]
    assert spec.digest not in {replace(spec, sandbox=other).digest for other in others}


@pytest.mark.parametrize(
    ("sandbox", "problem"),
    [
        (True, 'sandbox: must be "bwrap", or an object such as'),
        ("bubblewrap", 'sandbox: must be "bwrap", or an object such as'),
        ("bwarp", 'did you mean "bwrap"?'),
        ("docker", 'sandbox: docker needs an image that has the `command`, such as "image": "node:22"'),
        ({}, 'sandbox: must be "bwrap", or an object such as'),
        ({"kind": 7}, 'sandbox.kind: must be "bwrap", or an object such as'),
        (
            {"kind": "bwrap", "netwrok": True},
            'sandbox.netwrok: unknown key: allowed are kind, network, folders, image; did you mean "network"?',
        ),
        ({"kind": "bwrap", "network": "yes"}, "sandbox.network: must be true or false"),
        ({"kind": "bwrap", "image": "node"}, "sandbox.image: is for docker and podman"),
        ({"kind": "podman", "image": "--privileged"}, "sandbox.image: podman needs an image"),
        ({"kind": "bwrap", "folders": "/srv"}, "sandbox.folders: must be a list such as"),
        ({"kind": "bwrap", "folders": [7]}, "sandbox.folders[0]: must be a string"),
        ({"kind": "bwrap", "folders": ["/srv", "/../:rw"]}, "sandbox.folders[1]: must name a folder or a file"),
        ({"kind": "bwrap", "folders": [""]}, "sandbox.folders[0]: must name a folder or a file"),
    ],
)
def test_a_wrong_sandbox_is_refused_with_its_key(tmp_path: Path, sandbox: Any, problem: str) -> None:
    with pytest.raises(Invalid) as refused:
        load(tmp_path, sandbox)
    assert problem in refused.value.message


def test_a_server_that_runs_elsewhere_has_no_sandbox(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="sandbox: is for servers with a `command`"):
        load(tmp_path, "bwrap", url="https://example.com/mcp")

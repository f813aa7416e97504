"""The files of deploy/kubernetes/, as far as they can be checked without a cluster: they follow the schemas, what they
name is there, what they set is a setting, secrets are references, and pods have few rights."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from docs.generate import ROOT
from toolscript.configuration.files import load_configuration
from toolscript.settings import PREFIX, Settings, get_rule, get_variable, load_settings

pytestmark = pytest.mark.req("H-15", "H-16")

FOLDER = ROOT / "deploy" / "kubernetes"
VERSION = re.compile(r":v?\d[\w.-]*$")
VARIABLES = {get_variable(each.name): get_rule(each) for each in fields(Settings)}
# The oldest version that the files are meant for, and the newest that the validator knows.
KUBERNETES = ["1.31.0", "1.37.0"]
WORKLOADS = {"Deployment": "toolscript", "StatefulSet": "toolscript-pool"}
NAME = "app.kubernetes.io/name"

Manifest = dict[str, Any]


def read_manifests() -> Iterator[tuple[str, Manifest]]:
    yaml: Any = import_module("yaml")
    for file in sorted(FOLDER.glob("*.yaml")):
        yield from ((file.name, each) for each in yaml.safe_load_all(file.read_text(encoding="utf-8")))


@pytest.fixture(scope="module")
def manifests() -> dict[tuple[str, str], Manifest]:
    """Everything that is applied, by kind and name."""
    found = {
        (each["kind"], each["metadata"]["name"]): each
        for _, each in read_manifests()
        if each["kind"] != "Kustomization"
    }
    assert len(found) == sum(each["kind"] != "Kustomization" for _, each in read_manifests())
    return found


@pytest.fixture(params=WORKLOADS)
def workload(request: pytest.FixtureRequest, manifests: dict[tuple[str, str], Manifest]) -> Manifest:
    return manifests[request.param, WORKLOADS[request.param]]


def get_pod(workload: Manifest) -> Manifest:
    pod: Manifest = workload["spec"]["template"]["spec"]
    return pod


@pytest.mark.slow
@pytest.mark.parametrize("version", KUBERNETES)
def test_every_manifest_follows_the_schemas_of_kubernetes(
    manifests: dict[tuple[str, str], Manifest], version: str
) -> None:
    validate: Any = import_module("kubernetes_validate").validate
    for manifest in manifests.values():
        validate(manifest, version, strict=True)


def test_the_validator_finds_a_mistake(manifests: dict[tuple[str, str], Manifest]) -> None:
    validator: Any = import_module("kubernetes_validate")
    wrong = json.loads(json.dumps(manifests["Deployment", "toolscript"]))
    get_pod(wrong)["containers"][0]["readynessProbe"] = {}
    with pytest.raises(validator.ValidationError):
        validator.validate(wrong, KUBERNETES[0], strict=True)


def test_every_file_is_applied() -> None:
    (listed,) = (each["resources"] for _, each in read_manifests() if each["kind"] == "Kustomization")
    assert {*listed, "kustomization.yaml"} == {file.name for file in FOLDER.glob("*.yaml")}


def test_pods_run_with_few_rights(workload: Manifest) -> None:
    pod = get_pod(workload)
    assert pod["automountServiceAccountToken"] is False
    assert pod["enableServiceLinks"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == 10001
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in pod["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


def test_containers_have_versions_probes_and_resources(workload: Manifest) -> None:
    for container in get_pod(workload)["containers"]:
        assert VERSION.search(container["image"])
        assert {"startupProbe", "livenessProbe", "readinessProbe"} <= container.keys()
        assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
        assert "memory" in container["resources"]["limits"]


def test_what_a_pod_mounts_is_there(workload: Manifest, manifests: dict[tuple[str, str], Manifest]) -> None:
    pod = get_pod(workload)
    claims = workload["spec"].get("volumeClaimTemplates", [])
    volumes = {each["name"] for each in pod["volumes"]} | {each["metadata"]["name"] for each in claims}
    assert {each["name"] for container in pod["containers"] for each in container["volumeMounts"]} == volumes
    for volume in pod["volumes"]:
        if "configMap" in volume:
            assert ("ConfigMap", volume["configMap"]["name"]) in manifests


def test_the_gateway_s_variables_are_settings_and_secrets_are_references(
    manifests: dict[tuple[str, str], Manifest],
) -> None:
    (container,) = get_pod(manifests["Deployment", "toolscript"])["containers"]
    values = {each["name"]: each.get("value", "from-a-secret") for each in container["env"]}
    assert {name for name in values if name.startswith(PREFIX)} == values.keys() <= VARIABLES.keys()
    for each in container["env"]:
        assert VARIABLES[each["name"]].secret == ("valueFrom" in each), each["name"]
        if "valueFrom" in each:
            assert each["valueFrom"]["secretKeyRef"]["name"] == "toolscript"
    settings = load_settings(variables=values)
    assert (settings.environment, settings.search_model) == ("production", "toolscript-small-2")
    guide = (ROOT / "docs" / "guide" / "kubernetes.md").read_text(encoding="utf-8")
    for each in container["env"]:
        if "valueFrom" in each:
            assert f"--from-literal={each['valueFrom']['secretKeyRef']['key']}=" in guide
    assert not any(kind == "Secret" for kind, _ in manifests)


def test_services_policies_and_budgets_select_the_pods(manifests: dict[tuple[str, str], Manifest]) -> None:
    for kind, name in WORKLOADS.items():
        workload = manifests[kind, name]
        labels = {NAME: name}
        assert workload["spec"]["selector"]["matchLabels"] == labels
        assert workload["spec"]["template"]["metadata"]["labels"] == labels
        assert manifests["Service", name]["spec"]["selector"] == labels
        assert manifests["NetworkPolicy", name]["spec"]["podSelector"]["matchLabels"] == labels
        (container,) = get_pod(workload)["containers"]
        (service_port,) = manifests["Service", name]["spec"]["ports"]
        assert service_port["targetPort"] in {port["name"] for port in container["ports"]}
    assert manifests["NetworkPolicy", "deny-all"]["spec"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    assert manifests["PodDisruptionBudget", "toolscript"]["spec"]["selector"]["matchLabels"] == {NAME: "toolscript"}


def test_the_gateways_are_scaled_and_the_pool_is_not(manifests: dict[tuple[str, str], Manifest]) -> None:
    scaler = manifests["HorizontalPodAutoscaler", "toolscript"]["spec"]
    assert scaler["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "Deployment", "name": "toolscript"}
    assert 2 <= scaler["minReplicas"] < scaler["maxReplicas"]
    assert "replicas" not in manifests["Deployment", "toolscript"]["spec"]  # applying it again would undo the scaling
    assert manifests["StatefulSet", "toolscript-pool"]["spec"]["replicas"] == 1


def test_the_gateways_reach_every_server_of_the_pool(
    manifests: dict[tuple[str, str], Manifest], tmp_path: Path
) -> None:
    file = tmp_path / "servers.json"
    file.write_text(manifests["ConfigMap", "toolscript-servers"]["data"]["servers.json"])
    pool = json.loads(manifests["ConfigMap", "toolscript-pool"]["data"]["pool.json"])["mcpServers"]
    configured = load_configuration(file, home=tmp_path, folder=tmp_path, environment={}).servers
    (port,) = manifests["Service", "toolscript-pool"]["spec"]["ports"]
    assert {spec.url for spec in configured} == {
        f"http://toolscript-pool:{port['port']}/servers/{name}/mcp" for name in pool
    }


def test_the_image_of_the_pool_has_versions_and_is_not_root() -> None:
    text = (FOLDER / "pool.Dockerfile").read_text(encoding="utf-8")
    images = re.findall(r"^FROM (\S+)", text, re.MULTILINE)
    assert images
    assert all(VERSION.search(image) for image in images)
    (installed,) = re.findall(r"pip install (.+?) \\\n", text)
    packages = [word for word in installed.split() if not word.startswith("-")]
    assert packages
    assert all("==" in package for package in packages)
    assert re.findall(r"^USER (.+)$", text, re.MULTILINE)[-1] == "10001"

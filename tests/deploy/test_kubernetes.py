"""``deploy/kubernetes``: manifests that Kubernetes takes, and what they promise about a gate."""

from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml

from tests.deploy.files import DEPLOY, manifests, read_yaml, secrets_in
from tests.support.requirement import requirement
from wicketgate.config.settings_file import load_settings

KUBERNETES = DEPLOY / "kubernetes"
BASE = KUBERNETES / "base"
KUSTOMIZATIONS = sorted(KUBERNETES.rglob("kustomization.yaml"))
MANIFESTS = sorted(
    path for path in KUBERNETES.rglob("*.yaml") if "apiVersion" in path.read_text() and path not in KUSTOMIZATIONS
)
VERSIONS = ("1.30", "1.37")
"""The oldest that we say, and the newest that the package knows."""


@requirement("OPS-213")
@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.relative_to(KUBERNETES).as_posix())
def test_a_manifest_is_valid(path: Path) -> None:
    found = manifests(path)
    assert found
    for version in VERSIONS:
        for each in found:
            kubernetes_validate.validate(each, version, strict=True)


@requirement("OPS-213")
def test_what_is_wrong_is_found() -> None:
    deployment = manifest("deployment")
    deployment["spec"]["template"]["spec"]["containers"][0]["readynessProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(deployment, VERSIONS[-1], strict=True)


@requirement("OPS-213")
@pytest.mark.parametrize("path", KUSTOMIZATIONS, ids=lambda path: path.parent.name)
def test_the_files_of_a_kustomization_are_there_and_no_manifest_is_left_out(path: Path) -> None:
    made = read_yaml(path)
    assert (made["apiVersion"], made["kind"]) == ("kustomize.config.k8s.io/v1beta1", "Kustomization")
    generated = [file for each in made.get("configMapGenerator", ()) for file in each["files"]]
    for name in [*made["resources"], *generated]:
        place = (path.parent / name).resolve()
        assert (place / "kustomization.yaml").is_file() if place.is_dir() else place.is_file(), name
        # kustomize reads files of its own folder only.
        assert place.is_dir() or place.parent == path.parent, name
    here = {manifest.name for manifest in MANIFESTS if manifest.parent == path.parent}
    assert here <= set(made["resources"])


def manifest(name: str) -> dict[str, Any]:
    (found,) = manifests(BASE / f"{name}.yaml")
    return found


def pod() -> dict[str, Any]:
    spec: dict[str, Any] = manifest("deployment")["spec"]["template"]["spec"]
    return spec


def variables(tmp_path: Path) -> dict[str, str]:
    """The environment of the container: what ``secrets.sh`` makes is in the Secret, optional keys are not."""
    secrets, _ = secrets_in(tmp_path)
    found = {}
    for entry in pod()["containers"][0]["env"]:
        source = entry.get("valueFrom", {})
        if reference := source.get("secretKeyRef"):
            assert reference["name"] == "wicketgate"
            if reference["key"] not in secrets:
                assert reference["optional"] is True
                continue
            found[entry["name"]] = secrets[reference["key"]]
        else:
            found[entry["name"]] = entry.get("value", "default")
    return found


@requirement("OPS-213")
def test_the_gate_reads_its_file_with_the_variables_of_the_pod_and_has_time_to_end(tmp_path: Path) -> None:
    settings = load_settings(BASE / "wicketgate.yaml", variables(tmp_path))
    server, readiness = settings.server, pod()["containers"][0]["readinessProbe"]
    noticed_s = readiness["periodSeconds"] * readiness["failureThreshold"]
    assert server.settle_s > noticed_s
    assert pod()["terminationGracePeriodSeconds"] > server.settle_s + server.drain_s + 15
    assert "preStop" not in yaml.safe_dump(pod())
    (scaled,) = (each["pods"] for each in manifest("hpa")["spec"]["metrics"] if each["type"] == "Pods")
    assert scaled["metric"] == {"name": "wicketgate_active", "selector": {"matchLabels": {"kind": "chat"}}}
    assert 0 < int(scaled["target"]["averageValue"]) < settings.engine.max_streams


@requirement("OPS-213")
def test_the_container_is_probed_bounded_and_may_nothing() -> None:
    (container,) = pod()["containers"]
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert {"cpu", "memory"} == set(container["resources"]["requests"]) == set(container["resources"]["limits"])
    assert pod()["securityContext"]["runAsNonRoot"] is True
    assert pod()["securityContext"]["runAsUser"] > 0
    security = container["securityContext"]
    assert security["readOnlyRootFilesystem"] is True
    assert security["allowPrivilegeEscalation"] is False
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert pod()["automountServiceAccountToken"] is False
    assert {volume["name"] for volume in pod()["volumes"]} == {mount["name"] for mount in container["volumeMounts"]}
    spread = {constraint["topologyKey"] for constraint in pod()["topologySpreadConstraints"]}
    assert spread == {"kubernetes.io/hostname", "topology.kubernetes.io/zone"}


@requirement("OPS-213")
def test_everything_is_about_the_pods_of_the_deployment() -> None:
    labels = manifest("deployment")["spec"]["template"]["metadata"]["labels"]
    selectors = [
        manifest("deployment")["spec"]["selector"]["matchLabels"],
        manifest("service")["spec"]["selector"],
        manifest("poddisruptionbudget")["spec"]["selector"]["matchLabels"],
        manifest("networkpolicy")["spec"]["podSelector"]["matchLabels"],
        *(each["labelSelector"]["matchLabels"] for each in pod()["topologySpreadConstraints"]),
    ]
    assert selectors == [labels] * len(selectors)
    hpa, deployment = manifest("hpa")["spec"], manifest("deployment")
    assert hpa["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
    assert "replicas" not in deployment["spec"]
    assert hpa["minReplicas"] > manifest("poddisruptionbudget")["spec"]["maxUnavailable"]
    egress = yaml.safe_dump(manifest("networkpolicy")["spec"]["egress"])
    assert "169.254.0.0/16" in egress


@requirement("OPS-335")
def test_names_are_found_at_the_dns_of_the_cluster_and_at_that_of_the_node() -> None:
    names = [
        each for each in manifest("networkpolicy")["spec"]["egress"] if {"port": 53, "protocol": "UDP"} in each["ports"]
    ]
    to = [place for each in names for place in each["to"]]
    assert {"ipBlock": {"cidr": "169.254.20.10/32"}} in to
    assert {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}} in to


@requirement("OPS-213")
def test_no_secret_is_in_a_manifest() -> None:
    assert all(each["kind"] != "Secret" for path in MANIFESTS for each in manifests(path))
    (made,) = read_yaml(KUBERNETES / "overlays" / "try" / "kustomization.yaml")["secretGenerator"]
    assert made == {"name": "wicketgate", "envs": [".env"]}

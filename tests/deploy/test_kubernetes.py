"""The manifests: rendered by kustomize, validated by Kubernetes' schemas, with further rules that schemas cannot
express.
"""

import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from proxy.core.health import PATHS
from proxy.settings.secret_files import check_mode
from tests.deploy.files import DEPLOY, ROOT, drain_seconds, run, settings
from tests.tools import kustomize

# The first test that needs the tools builds them.
pytestmark = pytest.mark.timeout(900)

# The oldest version with a lifecycle's sleep, and the newest.
VERSIONS = ("1.30", "1.33", "1.37")


@pytest.fixture(scope="module")
def manifests() -> dict[str, Any]:
    """Return the rendered manifests by kind."""
    documents = list(yaml.safe_load_all(run(kustomize(), "build", "kubernetes")))
    found = {document["kind"]: document for document in documents}
    assert len(found) == len(documents)
    return found


@pytest.fixture(scope="module")
def pod(manifests: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = manifests["Deployment"]["spec"]["template"]["spec"]
    return spec


@pytest.fixture(scope="module")
def container(pod: dict[str, Any]) -> dict[str, Any]:
    (found,) = pod["containers"]
    return dict(found)


def test_all_objects_are_present(manifests: dict[str, Any]) -> None:
    assert set(manifests) == {
        "ConfigMap",
        "Deployment",
        "HorizontalPodAutoscaler",
        "NetworkPolicy",
        "PodDisruptionBudget",
        "Service",
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_manifests_match_the_schemas(manifests: dict[str, Any], version: str) -> None:
    for document in manifests.values():
        kubernetes_validate.validate(document, version, strict=True)


def test_selectors_find_the_pods(manifests: dict[str, Any]) -> None:
    labels = manifests["Deployment"]["spec"]["template"]["metadata"]["labels"].items()
    selectors = [
        manifests["Deployment"]["spec"]["selector"]["matchLabels"],
        manifests["Service"]["spec"]["selector"],
        manifests["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
        manifests["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"],
    ]
    assert all(selector and selector.items() <= labels for selector in selectors)


def test_pods_meet_the_restricted_security_standard(pod: dict[str, Any], container: dict[str, Any]) -> None:
    own = container["securityContext"]
    assert own == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    assert {kind for volume in pod["volumes"] for kind in volume if kind != "name"} <= {"configMap", "emptyDir"}


def test_probes_ask_for_health_at_the_admin_listener(container: dict[str, Any]) -> None:
    probes = {name: container[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")}
    assert {name: probe["path"] for name, probe in probes.items()} == {
        "startup": "/livez",
        "liveness": "/livez",
        "readiness": "/readyz",
    }
    assert {probe["path"] for probe in probes.values()} <= set(PATHS)
    assert {probe["port"] for probe in probes.values()} == {"admin"}


def test_ports_are_those_of_the_configuration(manifests: dict[str, Any], container: dict[str, Any]) -> None:
    found = settings(DEPLOY / "kubernetes" / "gantry.toml")
    ports = {port["name"]: f":{port['containerPort']}" for port in container["ports"]}
    assert ports == {
        "access": found.listen[0].address,
        "metrics": found.metrics_listen,
        "admin": found.admin.listen,
    }
    (service,) = manifests["Service"]["spec"]["ports"]
    metadata = manifests["Service"]["metadata"]
    assert found.listen[0].advertise == f"{metadata['name']}.{metadata['namespace']}.svc:{service['port']}"
    named = {port["port"] for rule in manifests["NetworkPolicy"]["spec"]["ingress"] for port in rule["ports"]}
    # Only the node's probes reach the admin listener.
    assert named == ports.keys() - {"admin"}


def test_configuration_is_mounted(manifests: dict[str, Any], pod: dict[str, Any]) -> None:
    config = manifests["ConfigMap"]
    assert config["data"]["gantry.toml"] == (DEPLOY / "kubernetes" / "gantry.toml").read_text()
    names = [volume["configMap"]["name"] for volume in pod["volumes"] if "configMap" in volume]
    assert names == [config["metadata"]["name"]]


def test_temporary_files_have_a_place(container: dict[str, Any], pod: dict[str, Any]) -> None:
    """The root file system is read-only."""
    (mount,) = [mount for mount in container["volumeMounts"] if mount["mountPath"] == "/tmp"]
    assert not mount.get("readOnly")
    assert any(volume["name"] == mount["name"] and "emptyDir" in volume for volume in pod["volumes"])


def test_files_of_a_secret_are_readable_by_the_group_of_the_process(pod: dict[str, Any], tmp_path: Path) -> None:
    assert pod["securityContext"]["fsGroup"] == pod["securityContext"]["runAsGroup"]
    file = tmp_path / "users.toml"
    file.touch(0o440)
    check_mode(file)
    assert "defaultMode: 0440" in (ROOT / "docs" / "deployment.md").read_text()


def test_policy_restricts_clients_where_everyone_may_do_everything(manifests: dict[str, Any]) -> None:
    assert settings(DEPLOY / "kubernetes" / "gantry.toml").auth.anonymous == "allow"
    rules = {port["port"]: rule for rule in manifests["NetworkPolicy"]["spec"]["ingress"] for port in rule["ports"]}
    (peer,) = rules["access"]["from"]
    ((label, value),) = peer["namespaceSelector"]["matchLabels"].items()
    for file in (DEPLOY / "kubernetes" / "gantry.toml", ROOT / "docs" / "deployment.md"):
        assert f"{label}={value}" in file.read_text()


def test_documented_objects_of_peers_match_the_pods(manifests: dict[str, Any]) -> None:
    text = (ROOT / "docs" / "operating" / "admin-api.md").read_text()
    sample = re.search(r"^```yaml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert sample is not None
    labels = manifests["Deployment"]["spec"]["template"]["metadata"]["labels"].items()
    service, policy = yaml.safe_load_all(sample[1])
    for document in (service, policy):
        for version in VERSIONS:
            kubernetes_validate.validate(document, version, strict=True)
    assert service["spec"]["selector"].items() <= labels
    assert policy["spec"]["podSelector"]["matchLabels"].items() <= labels
    assert f'peers = ["{service["metadata"]["name"]}:{service["spec"]["ports"][0]["port"]}"]' in text


def test_stop_timeout_covers_a_drain(pod: dict[str, Any], container: dict[str, Any]) -> None:
    found = settings(DEPLOY / "kubernetes" / "gantry.toml")
    before = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pod["terminationGracePeriodSeconds"] > before + drain_seconds(found)
    probe = container["readinessProbe"]
    assert found.drain_delay > probe["periodSeconds"] * probe["failureThreshold"]


def test_rollout_keeps_the_number_of_replicas(manifests: dict[str, Any]) -> None:
    assert manifests["Deployment"]["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    assert manifests["HorizontalPodAutoscaler"]["spec"]["minReplicas"] >= 2


def test_the_image_has_a_tag(container: dict[str, Any]) -> None:
    assert container["image"].rpartition(":")[2] not in ("", "latest")

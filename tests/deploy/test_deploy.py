"""What `deploy/` offers is valid, and speaks of commands and settings that exist."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from mercury.cli.main import load_command
from mercury.config import load_settings

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
KUBERNETES = list(yaml.safe_load_all((DEPLOY / "kubernetes" / "mercury.yaml").read_text()))


def run(tool: str, *arguments: str | Path) -> None:
    """A tool of the environment that these tests run in."""
    done = subprocess.run(
        [Path(sys.executable).parent / tool, *arguments], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def parse(words: list[str]) -> None:
    """Read a command line as the command itself would; unknown flags raise."""
    load_command(words[0]).make_context(words[0], words[1:])


def environment(part: dict[str, Any]) -> dict[str, str]:
    return {key: str(value) for key, value in part.get("environment", {}).items()}


def test_the_dockerfile_is_valid() -> None:
    run("hadolint", DEPLOY / "Dockerfile")


def test_images_run_as_an_ordinary_user() -> None:
    stages = re.split(r"^FROM ", (DEPLOY / "Dockerfile").read_text(), flags=re.MULTILINE)
    final = [stage for stage in stages if re.search(r"AS (server|pipeline)\n", stage)]
    assert len(final) == 2
    assert all("\nUSER 10001\n" in stage for stage in final)


def test_compose_is_valid() -> None:
    run("check-jsonschema", "--builtin-schema", "vendor.compose-spec", DEPLOY / "compose.yaml")


def test_commands_and_settings_of_compose_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [one for one in COMPOSE["services"].values() if "command" in one]
    assert len(parts) == 5
    for part in parts:
        parse(shlex.split(part["command"]))
        with monkeypatch.context() as patch:
            for key, value in environment(part).items():
                patch.setenv(key, value)
            assert load_settings(None, {}).bus.uri == "kafka://kafka:9092"


def test_compose_opens_to_the_network_only_what_checks_who_asks() -> None:
    ports = [port for one in COMPOSE["services"].values() for port in one.get("ports", ())]
    assert sorted(ports) == ["127.0.0.1:7480:7480", "7400:7400/udp"]


def test_kubernetes_manifests_are_valid() -> None:
    run("kubernetes-validate", "--strict", DEPLOY / "kubernetes" / "mercury.yaml")


def test_commands_and_settings_of_kubernetes_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [config] = [one for one in KUBERNETES if one["kind"] == "ConfigMap"]
    path = tmp_path / "mercury.toml"
    path.write_text(config["data"]["mercury.toml"])
    workloads = [one for one in KUBERNETES if one["kind"] in ("StatefulSet", "Deployment")]
    assert len(workloads) == 4
    for workload in workloads:
        [container] = workload["spec"]["template"]["spec"]["containers"]
        parse(container["args"])
        with monkeypatch.context() as patch:
            for variable in container["env"]:
                patch.setenv(variable["name"], variable.get("value", "adapter-0"))
            patch.setenv("MERCURY_CONFIG", str(path))
            settings = load_settings(None, {})
        part = container["args"][0]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert getattr(settings, part).metrics_port == ports["metrics"]
        assert getattr(settings, part).metrics_host == "0.0.0.0"
        ready, alive = (container[f"{name}Probe"]["httpGet"] for name in ("readiness", "liveness"))
        assert ready == {"path": "/healthz", "port": "metrics"}
        # A restart would not bring Kafka back, and would end all sessions.
        assert alive == {"path": "/livez", "port": "metrics"}


def test_systemd_units_are_valid(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    for unit in ("mercury@.service", "mercury.target"):
        text = (DEPLOY / "systemd" / unit).read_text()
        # What the unit runs, and the user it runs as, are not on this machine.
        text = text.replace("/opt/mercury/bin/mercury", "/bin/true")
        (tmp_path / unit).write_text(re.sub(r"^(User|Group)=.*\n", "", text, flags=re.MULTILINE))
    names = [tmp_path / "mercury@adapter.service", tmp_path / "mercury.target"]
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *names], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert str(tmp_path) not in done.stderr, done.stderr


def test_settings_of_systemd_exist() -> None:
    path = DEPLOY / "systemd" / "mercury.toml"
    settings = load_settings(path, {})
    for part in tomllib.loads(path.read_text()).keys() - {"bus"}:
        assert getattr(settings, part).metrics_port
        parse([part])


def test_the_hosted_workflow_is_valid_and_calls_the_same_script() -> None:
    path = ROOT / ".github" / "workflows" / "check.yml"
    run("check-jsonschema", "--builtin-schema", "vendor.github-workflows", path)
    steps = yaml.safe_load(path.read_text())["jobs"]["check"]["steps"]
    assert {"run": ".ci/run"} in steps

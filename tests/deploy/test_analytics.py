"""Schedules of analytics: their commands are understood, and their images do not run as root."""

import re
import shlex
from typing import Any

import pytest
import yaml

from analytics.command import command_parser
from tests.deploy.files import DEPLOY, ROOT

FOLDER = DEPLOY / "analytics"


def _commands() -> list[list[str]]:
    """Return the arguments after `gantry analytics` of every schedule."""
    unit = (FOLDER / "gantry-analytics.service").read_text().replace("$NOTIFY", "--webhook http://127.0.0.1/")
    starts = [line for line in unit.splitlines() if line.startswith("ExecStart=")]
    filled = [line.replace("${ZONE}", "UTC").replace("${RECORDS}", "/records") for line in starts]
    job = _job()["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]["args"]
    spark = yaml.safe_load((FOLDER / "sparkapplication.yaml").read_text())["spec"]["template"]["arguments"]
    return [*(shlex.split(line)[2:] for line in filled), job[1:], spark]


def _job() -> dict[str, Any]:
    job: dict[str, Any] = yaml.safe_load((FOLDER / "cronjob.yaml").read_text())
    return job


@pytest.mark.parametrize("words", _commands(), ids=lambda words: words[0])
def test_command_is_understood(words: list[str]) -> None:
    assert command_parser().parse_args(words).command in ("detect", "report")


def test_spark_version_is_that_of_the_lock() -> None:
    template = yaml.safe_load((FOLDER / "sparkapplication.yaml").read_text())["spec"]["template"]
    locked = re.search(r"^pyspark==(\S+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    assert locked is not None
    assert template["sparkVersion"] == locked[1]


def test_cron_job_is_confined_and_never_runs_twice() -> None:
    spec = _job()["spec"]
    pod = spec["jobTemplate"]["spec"]["template"]["spec"]
    assert spec["concurrencyPolicy"] == "Forbid"
    assert pod["securityContext"]["runAsNonRoot"]
    (container,) = pod["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    mounted = {each["name"] for each in container["volumeMounts"]}
    assert mounted == {each["name"] for each in pod["volumes"]}

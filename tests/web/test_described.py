"""The interface keeps to its own description whatever is sent to it: no server error, no answer that is not described."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from headway import Pipeline
from headway.web.recorded import RecordedRun
from headway.web.server import Server
from web.client import Client, warm

pytest.importorskip("schemathesis", reason="it makes the requests, and is only in the group test")

CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,"
    "negative_data_rejection"
)
SECONDS = 60


def attack(client, folder, names, *options):
    """Send what the description allows and what it does not; `names` are the runs that are asked for."""
    schema = client.get("/api/schema").data
    small = json.loads(json.dumps(schema["components"]["schemas"]["Simulation"]))
    small["properties"]["items"]["maximum"] = 50  # more take longer, and that is all
    schema["components"]["schemas"]["Small"] = small
    content = schema["paths"]["/api/simulate"]["post"]["requestBody"]["content"]
    content["application/json"]["schema"] = {"$ref": "#/components/schemas/Small"}
    for operations in schema["paths"].values():
        for operation in operations.values():
            for parameter in operation.get("parameters", ()):
                if parameter["name"] == "id":
                    parameter["schema"]["enum"] = names
    (folder / "schema.json").write_text(json.dumps(schema))
    line = [
        *(sys.executable, "-m", "schemathesis.cli", "run", "schema.json", "--url", client.origin),
        *(
            "--checks",
            CHECKS,
            "--seed",
            "1",
            "--workers",
            "1",
            "--generation-database",
            "none",
            "--no-shrink",
            "--request-timeout",
            "60",
        ),
        *("--phases", "examples,coverage,fuzzing", "--max-time", str(SECONDS), *options),
    ]
    found = subprocess.run(
        line, cwd=folder, capture_output=True, text=True, env=os.environ | {"COLUMNS": "140"}, check=False
    )
    assert found.returncode == 0, found.stdout[-12_000:] + found.stderr[-2_000:]
    assert "passed" in found.stdout
    return found.stdout


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_finished_run_and_the_visualizer(tmp_path):
    report = Pipeline(range(300), name="old").map(str, name="call").run(trace=tmp_path / "trace.json")
    report.to_json(tmp_path / "report.json")
    server = Server([RecordedRun(tmp_path / "report.json")], True)
    server.start()
    try:
        attack(Client(server.url), tmp_path, ["report.json", "nobody"], "--max-examples", "60")
    finally:
        server.stop()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_live_run(live, tmp_path):
    with live.client.events(f"{live.path}/events") as events:
        events.until("snapshot", warm)
    attack(
        live.client, tmp_path, [live.id], "--max-examples", "30",
        "--include-path-regex", "/api/runs", "--exclude-path-regex", "/(events|drain|cancel)$",
    )  # fmt: skip
    assert live.run.state == "running"

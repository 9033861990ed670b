"""Run by Airflow's own Python: loads the DAGs of a folder, runs each at some moments, and writes what they ask for.

The operators run up to where they would call Dataflow or Kubernetes.

    airflow_probe.py FOLDER OF DAGS, FILE TO WRITE, MOMENT ..
"""

from __future__ import annotations

import json
import os
import sys
from datetime import datetime
from pathlib import Path

import googleapiclient
from airflow.dag_processing.dagbag import DagBag
from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from airflow.providers.google.cloud.operators.dataflow import DataflowStartFlexTemplateOperator
from airflow.sdk.timezone import convert_to_utc
from airflow.serialization.serialized_objects import DagSerialization
from airflow.timetables.base import TimeRestriction
from kubernetes.client import ApiClient

asked = []


def keep_pod(operator, context):
    asked.append(ApiClient().sanitize_for_serialization(operator.build_pod_request_obj(context, dry_run=True)))


def keep_body(operator, context):
    asked.append(operator.body)


KubernetesPodOperator.execute = keep_pod
DataflowStartFlexTemplateOperator.execute = keep_body

folder, place, *moments = sys.argv[1:]
bag = DagBag(folder)
found = {"import_errors": bag.import_errors, "dags": {}}
for name, dag in bag.dags.items():
    task = dag.get_task("build")
    retries, task.retries = task.retries, 0  # a test of a DAG waits for their delay
    runs = {}
    for moment in moments:
        if name == "chatmill_dataflow" and "STORAGE_EMULATOR_HOST" not in os.environ:
            continue
        asked.clear()
        run = dag.test(logical_date=datetime.fromisoformat(moment))
        runs[moment] = {"state": run.state, "asked": list(asked)}
    timetable = DagSerialization.deserialize_dag(DagSerialization.serialize_dag(dag)).timetable
    first = timetable.next_dagrun_info(
        last_automated_data_interval=None,
        restriction=TimeRestriction(convert_to_utc(dag.start_date), None, dag.catchup),
    )
    found["dags"][name] = {
        "runs": runs,
        "first": {"of": first.data_interval.start.isoformat(), "at": first.run_after.isoformat()},
        "settings": {"catchup": dag.catchup, "max_active_runs": dag.max_active_runs, "retries": retries},
    }
api = Path(googleapiclient.__file__).parent / "discovery_cache" / "documents" / "dataflow.v1b3.json"
found["dataflow_api"] = json.loads(api.read_text())["schemas"]
Path(place).write_text(json.dumps(found))

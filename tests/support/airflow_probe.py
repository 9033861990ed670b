"""Load the DAGs of a folder, run each at some times, and write their requests. Airflow's own Python runs this.

The operators run up to where they would call Dataflow or Kubernetes.

    airflow_probe.py FOLDER_OF_DAGS FILE_TO_WRITE TIME ...
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

requests = []


def record_pod(operator, context):
    requests.append(ApiClient().sanitize_for_serialization(operator.build_pod_request_obj(context, dry_run=True)))


def record_body(operator, context):
    requests.append(operator.body)


KubernetesPodOperator.execute = record_pod
DataflowStartFlexTemplateOperator.execute = record_body

folder, result, *times = sys.argv[1:]
bag = DagBag(folder)
found = {"import_errors": bag.import_errors, "dags": {}}
for name, dag in bag.dags.items():
    task = dag.get_task("append")
    retries, task.retries = task.retries, 0  # dag.test would wait for their delay
    runs = {}
    for time in times:
        if name == "chatmill_dataflow" and "STORAGE_EMULATOR_HOST" not in os.environ:
            continue
        requests.clear()
        run = dag.test(logical_date=datetime.fromisoformat(time))
        runs[time] = {"state": run.state, "requests": list(requests)}
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
Path(result).write_text(json.dumps(found))

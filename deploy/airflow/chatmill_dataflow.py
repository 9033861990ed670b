"""Append the conversations of each day to a dataset, on Dataflow."""

import json
import subprocess
from datetime import datetime, timedelta, timezone

from airflow.providers.google.cloud.operators.dataflow import DataflowStartFlexTemplateOperator
from airflow.sdk import DAG, CronDataIntervalTimetable

# Edit these values.
PROJECT = "example-project"
REGION = "europe-west4"
TEMPLATE = "gs://example-templates/chatmill.json"  # deploy/dataflow/README.md shows how to build it and the image
IMAGE = "registry.example.com/chatmill:TAG"
CHATMILL = "/opt/chatmill/bin/chatmill"  # on the workers of Airflow, in an environment of its own; the version of IMAGE
FIRST_DAY = datetime(2026, 11, 1, tzinfo=timezone.utc)
SCHEDULE = "0 3 * * *"  # in UTC; by then the input of the previous day must be complete
# The day of the data, such as 2026-11-20. Not {{ ds }}: in a run triggered by hand, that is today, which is not over.
DAY = "{{ data_interval_start | ds }}"
# The options of `chatmill build`. If you change them, change the output too: a dataset refuses to grow with others.
OPTIONS = {
    "input": f"gs://example-corpus/chats/{DAY}/*",
    "tokenizer": "gs://example-models/qwen3",
    "output": "gs://example-shards/qwen3-4096",
    "append": "true",  # takes the files of the day that are not in the dataset yet: a day that runs again adds nothing
    "max_length": "4096",
    "packing": "bfd",
    "sdk_container_image": IMAGE,
}
# Other settings of the job: any field of FlexTemplateRuntimeEnvironment in Dataflow's API.
ENVIRONMENT = {"tempLocation": "gs://example-temp/chatmill", "machineType": "n2-standard-4", "maxWorkers": 20}


class AppendOnDataflow(DataflowStartFlexTemplateOperator):
    """Start the job, unless there is nothing new.

    The job finds this out, too, but Dataflow reports a failure if the launcher of a template starts no job.
    """

    def execute(self, context):
        options = self.body["launchParameter"]["parameters"] | {"dry_run": "True", "summary_json": "-"}
        command = [CHATMILL, "build", *(f"--{name}={value}" for name, value in options.items())]
        asked = subprocess.run(command, capture_output=True, text=True, check=False)
        self.log.info("%s", asked.stderr)
        if asked.returncode:
            raise RuntimeError(f"chatmill cannot say what is new: {asked.stderr}")
        if json.loads(asked.stdout.splitlines()[-1])["status"] == "nothing_new":
            self.log.info("Nothing new: the dataset has all files of %s.", options["input"])
            return None
        return super().execute(context)


with DAG(
    dag_id="chatmill_dataflow",
    start_date=FIRST_DAY,
    # With data intervals, the run of the 21st is for the 20th. With "@daily", Airflow 3 would run it for the 21st.
    schedule=CronDataIntervalTimetable(SCHEDULE, timezone="UTC"),
    catchup=True,  # days that the scheduler missed are appended when it runs again
    max_active_runs=1,  # missed days one after another: a second append would wait for the first one
    default_args={
        "depends_on_past": False,  # a day that failed does not block the other days
        # A retry resumes the work of the failed job. User errors, which a retry cannot correct, fail within seconds.
        "retries": 2,
        "retry_delay": timedelta(minutes=10),
    },
    tags=["chatmill"],
):
    AppendOnDataflow(
        task_id="append",
        project_id=PROJECT,
        location=REGION,
        body={
            "launchParameter": {
                "jobName": f"chatmill-{DAY}",
                "containerSpecGcsPath": TEMPLATE,
                "parameters": OPTIONS,
                "environment": ENVIRONMENT,
            }
        },
        # Dataflow refuses a second running job with the same name, so two jobs never write to one output.
        append_job_name=False,
        deferrable=True,  # uses no worker slot while the job runs
    )

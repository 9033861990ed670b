"""Build a dataset from the conversations of each day, on Dataflow."""

from datetime import datetime, timedelta, timezone

from airflow.providers.google.cloud.hooks.gcs import GCSHook
from airflow.providers.google.cloud.operators.dataflow import DataflowStartFlexTemplateOperator
from airflow.sdk import DAG, CronDataIntervalTimetable

# Edit these values.
PROJECT = "example-project"
REGION = "europe-west4"
TEMPLATE = "gs://example-templates/chatmill.json"  # deploy/dataflow/README.md shows how to build it and the image
IMAGE = "registry.example.com/chatmill:TAG"
FIRST_DAY = datetime(2026, 11, 1, tzinfo=timezone.utc)
SCHEDULE = "0 3 * * *"  # in UTC; by then the input of the previous day must be complete
# The day of the data, such as 2026-11-20. Not {{ ds }}: in a run triggered by hand, that is today, which is not over.
DAY = "{{ data_interval_start | ds }}"
# The options of `chatmill build`. If you change them, change the output too: a finished day is not built again.
OPTIONS = {
    "input": f"gs://example-corpus/chats/{DAY}/*",
    "tokenizer": "gs://example-models/qwen3",
    "output": f"gs://example-shards/qwen3-4096/{DAY}",
    "max_length": "4096",
    "packing": "bfd",
    "sdk_container_image": IMAGE,
}
# Other settings of the job: any field of FlexTemplateRuntimeEnvironment in Dataflow's API.
ENVIRONMENT = {"tempLocation": "gs://example-temp/chatmill", "machineType": "n2-standard-4", "maxWorkers": 20}


class BuildOnDataflow(DataflowStartFlexTemplateOperator):
    """Start the job, unless its dataset is finished.

    Chatmill checks this too, but Dataflow reports a failure if the launcher of a template starts no job.
    """

    def execute(self, context):
        output = self.body["launchParameter"]["parameters"]["output"]
        bucket, _, folder = output.removeprefix("gs://").partition("/")
        if GCSHook(self.gcp_conn_id).exists(bucket, f"{folder}/_SUCCESS"):
            self.log.info("%s is already finished.", output)
            return None
        return super().execute(context)


with DAG(
    dag_id="chatmill_dataflow",
    start_date=FIRST_DAY,
    # With data intervals, the run of the 21st is for the 20th. With "@daily", Airflow 3 would run it for the 21st.
    schedule=CronDataIntervalTimetable(SCHEDULE, timezone="UTC"),
    catchup=True,  # days that the scheduler missed are built when it runs again
    max_active_runs=1,  # so that missed days are not all built at once
    default_args={
        "depends_on_past": False,  # a day that failed does not block the other days
        # A retry resumes the work of the failed job. User errors, which a retry cannot correct, fail within seconds.
        "retries": 2,
        "retry_delay": timedelta(minutes=10),
    },
    tags=["chatmill"],
):
    BuildOnDataflow(
        task_id="build",
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

"""Each day's conversations become a dataset, on Dataflow."""

from datetime import datetime, timedelta, timezone

from airflow.providers.google.cloud.hooks.gcs import GCSHook
from airflow.providers.google.cloud.operators.dataflow import DataflowStartFlexTemplateOperator
from airflow.sdk import DAG, CronDataIntervalTimetable

# What to edit.
PROJECT = "example-project"
REGION = "europe-west4"
TEMPLATE = "gs://example-templates/chatmill.json"  # made as deploy/dataflow/README.md says, as is the image
IMAGE = "registry.example.com/chatmill:TAG"
FIRST_DAY = datetime(2026, 11, 1, tzinfo=timezone.utc)
SCHEDULE = "0 3 * * *"  # in UTC; by then all of the day before must be there
# The day that a run is for, as 2026-11-20. Not {{ ds }}: triggered by hand, that is today, which is not over.
DAY = "{{ data_interval_start | ds }}"
# The options of `chatmill build`. Where they change, so does the output's name: a finished day is not made anew.
OPTIONS = {
    "input": f"gs://example-corpus/chats/{DAY}/*",
    "tokenizer": "gs://example-models/qwen3",
    "output": f"gs://example-shards/qwen3-4096/{DAY}",
    "max_length": "4096",
    "packing": "bfd",
    "sdk_container_image": IMAGE,
}
# What Dataflow is told besides: any field of the API's FlexTemplateRuntimeEnvironment.
ENVIRONMENT = {"tempLocation": "gs://example-temp/chatmill", "machineType": "n2-standard-4", "maxWorkers": 20}


class BuildOnDataflow(DataflowStartFlexTemplateOperator):
    """Starts the job, unless its dataset is finished.

    Chatmill itself would see that too; but a launcher that starts no job is a failed one to Dataflow.
    """

    def execute(self, context):
        output = self.body["launchParameter"]["parameters"]["output"]
        bucket, _, folder = output.removeprefix("gs://").partition("/")
        if GCSHook(self.gcp_conn_id).exists(bucket, f"{folder}/_SUCCESS"):
            self.log.info("%s is finished already.", output)
            return None
        return super().execute(context)


with DAG(
    dag_id="chatmill_dataflow",
    start_date=FIRST_DAY,
    # By intervals: the run of the 21st is for the 20th. With a plain "@daily", Airflow 3 runs it for the 21st.
    schedule=CronDataIntervalTimetable(SCHEDULE, timezone="UTC"),
    catchup=True,  # days that the scheduler missed are built when it is back
    max_active_runs=1,  # so that catching up starts no fleet
    default_args={
        "depends_on_past": False,  # a day that failed holds back no other
        # A retry resumes what the failed job left. What one does not mend, the options say in seconds.
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
        # Dataflow refuses a second running job of one name, so that no two ever write to one output.
        append_job_name=False,
        deferrable=True,  # takes no worker's slot while Dataflow works
    )

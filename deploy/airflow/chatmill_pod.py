"""Append the conversations of each day to a dataset, in a pod on one machine."""

from datetime import datetime, timedelta, timezone

from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from airflow.sdk import DAG, CronDataIntervalTimetable
from kubernetes.client.models import V1ResourceRequirements

# Edit these values.
IMAGE = "registry.example.com/chatmill:TAG"  # deploy/dataflow/README.md shows how to build it
NAMESPACE = "chatmill"
SERVICE_ACCOUNT = "chatmill"  # must be allowed to read the input and the tokenizer and to write the output
FIRST_DAY = datetime(2026, 11, 1, tzinfo=timezone.utc)
SCHEDULE = "0 3 * * *"  # in UTC; by then the input of the previous day must be complete
CPUS = 4
MEMORY = "8Gi"
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
    "summary_json": "-",  # the summary is the last line of the log
    "direct_num_workers": str(CPUS),  # otherwise one for each core of the node
}

with DAG(
    dag_id="chatmill_pod",
    start_date=FIRST_DAY,
    # With data intervals, the run of the 21st is for the 20th. With "@daily", Airflow 3 would run it for the 21st.
    schedule=CronDataIntervalTimetable(SCHEDULE, timezone="UTC"),
    catchup=True,  # days that the scheduler missed are appended when it runs again
    max_active_runs=1,  # missed days one after another: a second append would wait for the first one
    default_args={
        "depends_on_past": False,  # a day that failed does not block the other days
        # A retry resumes the work of the failed pod. If that one had committed it, there is nothing new.
        "retries": 2,
        "retry_delay": timedelta(minutes=10),
    },
    tags=["chatmill"],
):
    KubernetesPodOperator(
        task_id="append",
        name=f"chatmill-{DAY}",
        namespace=NAMESPACE,
        image=IMAGE,
        cmds=["chatmill", "build"],
        arguments=[f"--{name}={value}" for name, value in OPTIONS.items()],
        service_account_name=SERVICE_ACCOUNT,
        container_resources=V1ResourceRequirements(
            requests={"cpu": str(CPUS), "memory": MEMORY}, limits={"cpu": str(CPUS), "memory": MEMORY}
        ),
        # If the pod of the previous attempt is still running, a retry waits for it instead of starting another one.
        durable=True,
        # So that the error of the task contains the error line of Chatmill.
        termination_message_policy="FallbackToLogsOnError",
        log_pod_spec_on_failure=False,
        deferrable=True,  # uses no worker slot while the pod runs
    )

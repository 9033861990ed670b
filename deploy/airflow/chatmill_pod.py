"""Each day's conversations become a dataset, in a pod of one machine."""

from datetime import datetime, timedelta, timezone

from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from airflow.sdk import DAG, CronDataIntervalTimetable
from kubernetes.client.models import V1ResourceRequirements

# What to edit.
IMAGE = "registry.example.com/chatmill:TAG"  # made as deploy/dataflow/README.md says
NAMESPACE = "chatmill"
SERVICE_ACCOUNT = "chatmill"  # which may read the input and the tokenizer, and write the output
FIRST_DAY = datetime(2026, 11, 1, tzinfo=timezone.utc)
SCHEDULE = "0 3 * * *"  # in UTC; by then all of the day before must be there
CPUS = 4
MEMORY = "8Gi"
# The day that a run is for, as 2026-11-20. Not {{ ds }}: triggered by hand, that is today, which is not over.
DAY = "{{ data_interval_start | ds }}"
# The options of `chatmill build`. Where they change, so does the output's name: a finished day is not made anew.
OPTIONS = {
    "input": f"gs://example-corpus/chats/{DAY}/*",
    "tokenizer": "gs://example-models/qwen3",
    "output": f"gs://example-shards/qwen3-4096/{DAY}",
    "max_length": "4096",
    "packing": "bfd",
    "summary_json": "-",  # the sums, as the last line of the log
    "direct_num_workers": str(CPUS),  # else one for each core of the node
}

with DAG(
    dag_id="chatmill_pod",
    start_date=FIRST_DAY,
    # By intervals: the run of the 21st is for the 20th. With a plain "@daily", Airflow 3 runs it for the 21st.
    schedule=CronDataIntervalTimetable(SCHEDULE, timezone="UTC"),
    catchup=True,  # days that the scheduler missed are built when it is back
    max_active_runs=1,  # so that catching up starts no fleet
    default_args={
        "depends_on_past": False,  # a day that failed holds back no other
        # A retry resumes what the failed pod left; of a finished dataset it changes nothing.
        "retries": 2,
        "retry_delay": timedelta(minutes=10),
    },
    tags=["chatmill"],
):
    KubernetesPodOperator(
        task_id="build",
        name=f"chatmill-{DAY}",
        namespace=NAMESPACE,
        image=IMAGE,
        cmds=["chatmill", "build"],
        arguments=[f"--{name}={value}" for name, value in OPTIONS.items()],
        service_account_name=SERVICE_ACCOUNT,
        container_resources=V1ResourceRequirements(
            requests={"cpu": str(CPUS), "memory": MEMORY}, limits={"cpu": str(CPUS), "memory": MEMORY}
        ),
        # A retry goes on with the pod of the try before where that is alive: no two ever write to one output.
        durable=True,
        # The one line that tells a mistake is then in the task's own error.
        termination_message_policy="FallbackToLogsOnError",
        log_pod_spec_on_failure=False,
        deferrable=True,  # takes no worker's slot while the pod works
    )

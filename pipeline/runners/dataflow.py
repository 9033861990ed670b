"""Dataflow: what must be told beyond what Beam asks for, and what follows from the rest."""

from __future__ import annotations

import sys
from typing import Any

from apache_beam.options.pipeline_options import (
    DebugOptions,
    GoogleCloudOptions,
    PipelineOptions,
    SetupOptions,
    WorkerOptions,
)
from apache_beam.options.pipeline_options_validator import PipelineOptionsValidator

from pipeline.job import job_name
from pipeline.options import Options
from transforms.errors import UserError

_NEEDED = {
    "project": "the project that runs the job",
    "region": "where it runs, such as europe-west4",
    "temp_location": "a folder in a bucket, such as gs://bucket/temp",
}


def check_dataflow(options: Options, beams: PipelineOptions, runner: Any) -> None:
    """Raise UserError for what Dataflow would refuse, or its workers trip over; fill in what nobody has said."""
    try:
        from apache_beam.runners.dataflow.internal import apiclient  # noqa: F401
    except ImportError:
        raise UserError(
            f"--runner DataflowRunner: apache-beam[gcp] is not installed for {sys.executable}: "
            "pip install '.[dataflow]' where Chatmill is installed from."
        ) from None
    for name, urls in (("input", options.input), ("output", (options.output,))):
        if local := [url for url in urls if "://" not in url or url.startswith("file:")]:
            raise UserError(f"--{name} {local[0]}: a worker of Dataflow does not see this disk. Give a gs:// url.")
    cloud, setup = beams.view_as(GoogleCloudOptions), beams.view_as(SetupOptions)
    cloud.region = cloud.region or runner.get_default_gcp_region()
    cloud.temp_location = cloud.temp_location or cloud.staging_location
    for name, what in _NEEDED.items():
        if not getattr(cloud, name):
            raise UserError(f"--{name} is missing, which Dataflow needs: {what}.")
    image = beams.view_as(WorkerOptions).sdk_container_image
    if not image and not setup.setup_file and not setup.extra_packages:
        raise UserError(
            "--sdk_container_image is missing: the workers need an image that holds Chatmill. "
            "deploy/dataflow/README.md says how it is built."
        )
    # Dataflow starts a process for each vCPU. Several threads in it would not be faster, and each holds a split.
    debug = beams.view_as(DebugOptions)
    debug.number_of_worker_harness_threads = debug.number_of_worker_harness_threads or 1
    cloud.job_name = cloud.job_name or job_name(options.output)
    validator = PipelineOptionsValidator(beams, runner)
    if validator.is_service_runner() and not cloud.temp_location.startswith("gs://"):
        # Beam would look for a bucket by itself, which takes minutes, and may make one.
        raise UserError(f"--temp_location {cloud.temp_location}: Dataflow needs {_NEEDED['temp_location']}.")
    if wrong := validator.validate():
        raise UserError(f"--runner DataflowRunner: {' '.join(wrong)}")

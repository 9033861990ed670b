"""Dataflow: the options that a job needs, checked before anything is written, and defaults for others."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from pipeline.runners.runner import Runner, job_name
from transforms.base.errors import UserError

if TYPE_CHECKING:
    from apache_beam.options.pipeline_options import PipelineOptions

    from pipeline.job import Request

_REQUIRED = {
    "project": "the project that runs the job",
    "region": "where it runs, such as europe-west4",
    "temp_location": "a folder in a bucket, such as gs://bucket/temp",
}


class _DataflowRunner(Runner):
    def beam_options(self, request: Request) -> PipelineOptions:
        from apache_beam.options.pipeline_options import DebugOptions, GoogleCloudOptions, SetupOptions, WorkerOptions
        from apache_beam.options.pipeline_options_validator import PipelineOptionsValidator

        try:
            from apache_beam.runners.dataflow.dataflow_runner import DataflowRunner
            from apache_beam.runners.dataflow.internal import apiclient  # noqa: F401
        except ImportError:
            raise UserError(
                f"--runner DataflowRunner: apache-beam[gcp] is not installed for {sys.executable}: "
                "pip install '.[dataflow]' in Chatmill's repository."
            ) from None
        options, runner, beam_options = request.options, DataflowRunner(), self.parse(request.flags)
        inputs = f"{options.recipe}: input" if options.sources else "--input"
        for name, urls in ((inputs, request.inputs), ("--output", (options.output,))):
            if local := [url for url in urls if "://" not in url or url.startswith("file:")]:
                raise UserError(f"{name} {local[0]}: Dataflow's workers cannot read a local file. Give a gs:// url.")
        cloud, setup = beam_options.view_as(GoogleCloudOptions), beam_options.view_as(SetupOptions)
        cloud.region = cloud.region or runner.get_default_gcp_region()
        cloud.temp_location = cloud.temp_location or cloud.staging_location
        for name, meaning in _REQUIRED.items():
            if not getattr(cloud, name):
                raise UserError(f"--{name} is missing, and Dataflow needs it: {meaning}.")
        image = beam_options.view_as(WorkerOptions).sdk_container_image
        if not image and not setup.setup_file and not setup.extra_packages:
            raise UserError(
                "--sdk_container_image is missing: the workers need an image that contains Chatmill. "
                "deploy/README.md shows how to build it."
            )
        # There is a process for each vCPU. More threads in it would not be faster, and each keeps a task in memory.
        debug = beam_options.view_as(DebugOptions)
        debug.number_of_worker_harness_threads = debug.number_of_worker_harness_threads or 1
        cloud.job_name = cloud.job_name or job_name(options.output)
        validator = PipelineOptionsValidator(beam_options, runner)
        if validator.is_service_runner() and not cloud.temp_location.startswith("gs://"):
            # Beam would look for a bucket by itself, which takes minutes, and might create one.
            raise UserError(f"--temp_location {cloud.temp_location}: Dataflow needs {_REQUIRED['temp_location']}.")
        if problems := validator.validate():
            raise UserError(f"--runner DataflowRunner: {' '.join(problems)}")
        return beam_options

    def continuing(self, result: Any) -> str:
        return f"job {result.job_id()} on Dataflow"


RUNNERS = (_DataflowRunner("DataflowRunner", has_dry_run=True, options_are_known=True),)

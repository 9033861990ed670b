"""The graph of the job, from the plan to the finished dataset."""

from __future__ import annotations

from typing import Any

import apache_beam as beam
import msgspec

from pipeline.job import Job
from pipeline.plan import ReadPlan
from pipeline.sources import parse_options_of, render_options_of
from transforms.chat.config import RenderConfig
from transforms.dataset.commit import CommitDataset
from transforms.dataset.consumers import about_rows
from transforms.dataset.description import job_id
from transforms.dataset.finished import SkipFinished
from transforms.dataset.layout import Folder
from transforms.steps.label import BuildLabels
from transforms.steps.pack import TruncateOrPack
from transforms.steps.parity import CheckParity
from transforms.steps.parse import ParseConversations
from transforms.steps.read import ReadSplits
from transforms.steps.render import ApplyChatTemplate
from transforms.steps.tokenize import Tokenize
from transforms.steps.write import WriteShards
from transforms.storage.files import join


def build_graph(pipeline: beam.Pipeline, job: Job, folder: Folder, max_reject_fraction: float, engine: str) -> None:
    options = job.options
    formatter = _stored(options.formatter, folder.formatter if job.formatter else None)
    of_job = job_id(folder.job)
    splits = pipeline | "plan" >> ReadPlan(folder.plan, job.split_bytes) | "skip" >> SkipFinished(folder.work, of_job)
    config = RenderConfig(
        tokenizer=folder.tokenizer,
        chat_template=job.chat_template,
        chat_template_kwargs=options.chat_template_kwargs,
        now=job.now,
        loss_on=options.loss_on,
        eot_tokens=options.eot_tokens,
        spans=options.spans,
        unprinted=options.unprinted,
        special_tokens_in_content=options.special_tokens_in_content,
        max_text_bytes=options.max_text_bytes,
        engine=engine,
    )
    parsing, rendering = _options_of_sources(job, folder)
    receipts = (
        splits.unfinished
        | "read" >> ReadSplits(max_record_bytes=options.max_record_bytes)
        | "parse"
        >> ParseConversations(
            schema=options.schema,
            columns=options.columns,
            roles=options.roles,
            message_fields=options.message_fields,
            train_field=options.train_field,
            tool_arguments=options.tool_arguments,
            formatter=formatter,
            formatter_seconds=options.formatter_seconds,
            preference=options.preference,
            as_chat=options.as_chat,
            keep_columns=options.keep_columns,
            loss_weights="loss_weights" in (options.write_columns or ()),
            validation_fraction=options.validation_fraction,
            seed=options.seed,
            sources=parsing,
        )
        | "render" >> ApplyChatTemplate(config, sources=rendering)
        | "parity" >> CheckParity(config, parity=options.parity, sources=rendering)
        | "tokenize" >> Tokenize(folder.tokenizer, strip_bos=options.strip_bos, engine=engine)
        | "label" >> BuildLabels()
        | "pack"
        >> TruncateOrPack(
            max_length=options.max_length,
            truncation=options.truncation,
            packing=options.packing,
            shift_labels=options.shift_labels,
        )
        | "write"
        >> WriteShards(
            folder.work,
            formats=options.output_format,
            columns=options.write_columns,
            provenance=options.provenance,
            compress_tfrecord=options.tfrecord_compression == "gzip",
            about=about_rows(msgspec.structs.asdict(options), job.tokenizer),
            job=of_job,
        )
    )
    (
        (receipts, splits.finished)
        | "all" >> beam.Flatten()
        | "commit" >> CommitDataset(folder.output, max_reject_fraction)
    )


def _options_of_sources(job: Job, folder: Folder) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The options of each source that parsing and rendering have other values for; none if no source has any."""
    parsing, rendering = list[dict[str, Any]](), list[dict[str, Any]]()
    for number, source in enumerate(job.sources):
        own = dict(source.options)
        if "formatter" in own:
            file = join(folder.formatters, f"{number}.py") if source.formatter else None
            own["formatter"] = _stored(own["formatter"], file)
        parsing.append(parse_options_of(own))
        rendering.append(render_options_of(own))
    return parsing if any(parsing) else [], rendering if any(rendering) else []


def _stored(formatter: str | None, file: str | None) -> str | None:
    """The name of a formatter on a worker. file: where it is stored next to the job, if it is in a file."""
    return f"{file}:{formatter.rpartition(':')[2]}" if formatter and file else formatter

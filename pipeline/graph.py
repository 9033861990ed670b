"""The graph of the job, from the plan to the finished dataset."""

from __future__ import annotations

import apache_beam as beam

from pipeline.job import Job
from pipeline.plan import ReadPlan
from transforms.chat.config import RenderConfig
from transforms.dataset.commit import CommitDataset, SkipFinished
from transforms.dataset.layout import Folder
from transforms.steps.label import BuildLabels
from transforms.steps.pack import TruncateOrPack
from transforms.steps.parity import CheckParity
from transforms.steps.parse import ParseConversations
from transforms.steps.read import ReadSplits
from transforms.steps.render import ApplyChatTemplate
from transforms.steps.tokenize import Tokenize
from transforms.steps.write import WriteShards


def build_graph(pipeline: beam.Pipeline, job: Job, folder: Folder, max_reject_fraction: float, engine: str) -> None:
    options = job.options
    formatter = options.formatter
    if formatter and job.formatter:  # a file, which is stored next to the job
        formatter = f"{folder.formatter}:{formatter.rpartition(':')[2]}"
    splits = pipeline | "plan" >> ReadPlan(folder.plan, job.split_bytes) | "skip" >> SkipFinished(folder.receipts)
    config = RenderConfig(
        tokenizer=folder.tokenizer,
        chat_template=job.chat_template,
        chat_template_kwargs=options.chat_template_kwargs,
        now=job.now,
        loss_on=options.loss_on,
        engine=engine,
    )
    receipts = (
        splits.unfinished
        | "read" >> ReadSplits(part_bytes=job.split_bytes)
        | "parse"
        >> ParseConversations(
            schema=options.schema,
            columns=options.columns,
            roles=options.roles,
            formatter=formatter,
            keep_columns=options.keep_columns,
            validation_fraction=options.validation_fraction,
            seed=options.seed,
        )
        | "render" >> ApplyChatTemplate(config)
        | "parity" >> CheckParity(config, parity=options.parity)
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
        )
    )
    (
        (receipts, splits.finished)
        | "all" >> beam.Flatten()
        | "commit" >> CommitDataset(folder.output, max_reject_fraction)
    )

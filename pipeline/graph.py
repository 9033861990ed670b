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
    o = job.options
    formatter = f"{folder.formatter}:{o['formatter'].rpartition(':')[2]}" if job.formatter else o["formatter"]
    splits = pipeline | "plan" >> ReadPlan(folder.plan, job.split_bytes) | "skip" >> SkipFinished(folder.receipts)
    config = RenderConfig(
        tokenizer=folder.tokenizer,
        chat_template=job.chat_template,
        chat_template_kwargs=o["chat_template_kwargs"],
        now=job.now,
        loss_on=o["loss_on"],
        engine=engine,
    )
    receipts = (
        splits.unfinished
        | "read" >> ReadSplits(part_bytes=job.split_bytes)
        | "parse"
        >> ParseConversations(
            schema=o["schema"],
            columns=o["columns"],
            roles=o["roles"],
            formatter=formatter,
            keep_columns=tuple(o["keep_columns"]),
            validation_fraction=o["validation_fraction"],
            seed=o["seed"],
        )
        | "render" >> ApplyChatTemplate(config)
        | "parity" >> CheckParity(config, parity=o["parity"])
        | "tokenize" >> Tokenize(folder.tokenizer, strip_bos=o["strip_bos"], engine=engine)
        | "label" >> BuildLabels()
        | "pack"
        >> TruncateOrPack(
            max_length=o["max_length"],
            truncation=o["truncation"],
            packing=o["packing"],
            shift_labels=o["shift_labels"],
        )
        | "write"
        >> WriteShards(
            folder.work,
            formats=tuple(o["output_format"]),
            columns=o["write_columns"],
            provenance=o["provenance"],
            compress_tfrecord=o["tfrecord_compression"] == "gzip",
        )
    )
    (
        (receipts, splits.finished)
        | "all" >> beam.Flatten()
        | "commit" >> CommitDataset(folder.output, max_reject_fraction)
    )

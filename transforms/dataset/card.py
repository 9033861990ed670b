"""The dataset card: the README.md of a dataset, whose header lists the files of each split for `datasets`."""

from __future__ import annotations

from typing import Any

from transforms.outputs import datasets_files, loading_code


def dataset_card(manifest: dict[str, Any]) -> str:
    """Return the text of the card of a dataset.

    Args:
        manifest: its manifest, as JSON.
    """
    records, job = manifest["records"], manifest["job"]
    files = datasets_files(manifest["shards"])
    head = ["configs:", "- config_name: default", "  data_files:"]
    for split, pattern in files.items():
        head += [f"  - split: {split}", f"    path: {pattern}"]
    dropped, rejected = (
        ", ".join(f"{count:,} {reason}" for reason, count in records[outcome].items()) or "none"
        for outcome in ("dropped", "rejected")
    )
    options = {name: value for name, value in job["options"].items() if value not in (None, [], {}, False)}
    if "chat_template" in options:
        options["chat_template"] = "another than the tokenizer's own"
    lines = [
        "---",
        *(head if files else ["pretty_name: token shards"]),
        "---",
        "",
        "# Token shards",
        "",
        f"{manifest['rows']:,} rows of {manifest['tokens']:,} tokens, {manifest['trained_tokens']:,} trained on,",
        f"made by Chatmill {job['versions']['chatmill']} with the tokenizer `{job['tokenizer_name']}`.",
        "",
        "```python",
        loading_code("PATH OF THIS FOLDER", manifest["shards"]),
        "```",
        "",
        "`input_ids` are token ids; `labels` are the same for tokens that are trained on, and -100 for all others.",
        *(
            ["`seq_lengths` are the lengths of the examples that were packed into a row."]
            if job["options"].get("packing", "none") != "none"
            else []
        ),
        "",
        "| records | |",
        "| --- | ---: |",
        f"| read | {records['read']:,} |",
        f"| kept | {records['kept']:,} |",
        f"| truncated | {records['truncated']:,} |",
        f"| dropped | {dropped} |",
        f"| rejected | {rejected} |",
        "",
        "| option | |",
        "| --- | --- |",
        *(f"| {name} | {value} |" for name, value in options.items()),
        "",
        "`manifest.json` has all details, with a sha256 for each shard.",
        "",
    ]
    return "\n".join(lines)

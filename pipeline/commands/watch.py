"""chatmill watch: files that arrive are appended to a dataset."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.cli.console import CommandParser
from pipeline.cli.options import Options, parse_build, parser_of
from pipeline.runners import known_runners, not_detached, runner_of
from pipeline.watching.settings import Settings
from transforms.base import kinds
from transforms.base.errors import UserError
from transforms.base.kinds import Kind

# The kind of each setting, what its value is called, and what it does.
_SETTINGS: dict[str, tuple[Kind, str, str]] = {
    "every": (kinds.duration, "DURATION", "polling interval: how often the input is listed (default: 60s)"),
    "settle": (
        kinds.duration,
        "DURATION",
        "a file is added when its size and version were unchanged for this long (default: 30s)",
    ),
    "min_records": (
        kinds.positive,
        "INT",
        "files wait for others until they have this many records, estimated by bytes (default: 1000)",
    ),
    "max_delay": (kinds.duration, "DURATION", "the longest time that a file waits for others (default: 10m)"),
}

# A job on a cluster whose launcher has ended holds the output by its signs; without one for two minutes, it is gone.
_LONGEST_TICK = 60


def run(arguments: Sequence[str]) -> int:
    """Append the files that arrive to a dataset, until SIGTERM or Ctrl-C, or submit the job that does.

    Args:
        arguments: what follows the command.

    Returns:
        0.

    Raises:
        UserError: if an option is wrong, or what it refers to.
    """
    options, settings, beam_flags = parse(arguments)
    from pipeline.cli.sources import read_sources, with_all_inputs
    from pipeline.job.beam_import import import_beam

    sources = read_sources(options)
    for_runner = with_all_inputs(options, sources)
    if not runner_of(options.runner).has_our_workers:
        import_beam(for_runner)
        from pipeline.watching.stream import stream

        stream(options, sources, beam_flags, settings)
        return 0
    from pipeline.job.launch import environment

    with environment(for_runner) as server:
        import_beam(for_runner)
        from pipeline.watching.loop import Loop

        Loop(options, sources, beam_flags, server, settings).run()
    return 0


def parse(arguments: Sequence[str]) -> tuple[Options, Settings, list[str]]:
    """Parse the arguments of the command.

    Args:
        arguments: what follows the command.

    Returns:
        The options of the build, when files are taken, and the options of Beam.

    Raises:
        UserError: if an option is wrong.
    """
    parser = CommandParser(
        "watch",
        usage="[RECIPE] --input URL,.. --tokenizer NAME|URL --output URL",
        description="Append files to a dataset as they arrive, one commit after another, until Ctrl-C or SIGTERM. The "
        "options of the dataset are those of `chatmill build`. It is one process by default; with --runner "
        "PrismRunner, FlinkRunner or DataflowRunner it is a stream. --help all lists all options.",
        examples=[
            "--input 'gs://in/*.jsonl' --tokenizer Qwen/Qwen3-8B --output gs://shards/chats --max_delay 5m",
            "--input '/in/*.jsonl' --tokenizer /tokenizer --output /out --runner FlinkRunner --flink_master HOST:8081",
        ],
    )
    group = parser.add_argument_group("Watching")
    for name, (kind, metavar, help) in _SETTINGS.items():
        group.add_argument(f"--{name}", type=parser_of(name, kind), metavar=metavar, help=help)
    of_settings = {name: kind for name, (kind, *_) in _SETTINGS.items()}
    options, rest, own = parse_build("watch", parser, arguments, of_settings, fixed={"append": True})
    settings = Settings(**own)
    if not settings.every:
        raise UserError("--every 0s: expected 1s or more.")
    if options.retry_failed:
        raise UserError("--retry_failed true: chatmill watch does not have this option.")
    if options.dedup != "none":
        raise UserError(
            f"--dedup {options.dedup}: each increment would read the ledgers of all that is there. Leave it out, or "
            "run chatmill build --append by a schedule."
        )
    runner = runner_of(options.runner)
    if runner.has_our_workers:
        if options.detach:
            raise not_detached()
    elif not runner.streams:
        names = ", ".join(known.name for known in known_runners() if known.streams)
        raise UserError(f"--runner {runner.name}: it does not support streaming; expected {names}, or none.")
    elif options.shuffle != "none":
        raise UserError(
            f"--shuffle {options.shuffle}: with --runner, shards are written as records arrive. Leave --runner out, "
            "and what arrives at once is shuffled."
        )
    elif settings.every > _LONGEST_TICK:
        raise UserError(f"--every {settings.every}s: with --runner, 60s or less: each poll renews the lock.")
    elif options.summary_json == "-":
        raise UserError("--summary_json -: with --runner, workers write it. Give a url.")
    return options, settings, rest

# ruff: noqa: E501, UP031
"""Generate chat templates and conversations, and compare the engines with each other and with transformers.

    PYTHONPATH=.:tests python -m support.fuzz --seconds 3600 [--seed 0] [--keep-going]

Each seed is a template and some records. Checked are: the text of each kept record is that of `apply_chat_template`;
both engines give each record the same text, spans, tokens, reject and counts; and so they do for records in
another order and in other batches. In half of the cases each text has words of its own. These show, without any
knowledge of the template, that what is trained on is of the assistant, and all of it, and that nothing is lost
(`wrong_words`). A failure is printed with its seed, as small as it could be made.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any

import numpy as np

from support.chats import SPLIT, render_config
from support.paths import TOKENIZER
from support.transformers_text import TransformersText
from support.words import SPACE, wrong_words
from transforms import Example, Examples
from transforms.model.batches import Records, Texts
from transforms.model.examples import Record
from transforms.model.outcomes import Outcomes
from transforms.steps.parse import Parser
from transforms.steps.render import Renderer
from transforms.steps.tokenize import Encoder

NOW = datetime(2026, 11, 20, 12)
RECORDS = 14
# In one of so many cases each record is rendered alone, too.
_ONE_ALONE_OF = 4

# What templates do; the first of each is the default, to which a failing template is reduced. In `texts`, T is the text.
FEATURES: dict[str, tuple[Any, ...]] = {
    "markers": (
        ("<|im_start|>", "\\n", "<|im_end|>\\n"),
        ("<|", "|>", "<|end|>"),
        ("[", "]", ""),
        ("", ": ", "</s>"),
        ("### ", ":\\n", "\\n\\n"),
        ("<start_of_turn>", "\\n", "<end_of_turn>\\n"),
    ),
    "role": ("m.role", "('model' if m.role == 'assistant' else m.role)", "m.role|capitalize", "m['role']|upper"),
    "content": (
        "(m.content or '')",
        "(m.content if m.content is string else (m.content or [])|map(attribute='text')|join(''))",
        "(m.content if m.content is string else (m.content or [])|map(attribute='text')|join('\\n'))",
        "(m.content|tojson if m.content is string else (m.content or [])|map(attribute='text')|join(''))",
        "(m.content or [])|map(attribute='text')|join('')",
    ),
    "texts": (
        "{{- T -}}",
        "{{- T|trim -}}",
        "{{- T|lower -}}",
        "{{- T|upper -}}",
        "{{- T|replace('\\n', ' / ') -}}",
        "{{- T.replace('\"', '``') -}}",
        "{{- T.lstrip('\\n') -}}",
        "{{- T.rstrip() -}}",
        "{{- T[:24] -}}",
        "{{- T[-24:] -}}",
        "{{- T.split('</think>')[-1] -}}",
        "{{- (T.split('</think>')|last).lstrip() -}}",
        "{{- T.split('<p>')[0] -}}",
        "{{- T.split()|join(' ') -}}",
        "{{- T.split('\\n')|join('\\n> ') -}}",
        "{{- 'Final: ' ~ T.removeprefix('Final: ') -}}",
        "{%- if T == 'yes' -%}yes{%- else -%}{{- T -}}{%- endif -%}",
        "{%- if T.startswith('Final: ') -%}{{- T[7:] -}}{%- else -%}{{- T -}}{%- endif -%}",
        "{%- if '</think>' in T -%}{{- T.split('</think>')[-1] -}}{%- else -%}{{- T -}}{%- endif -%}",
        "{%- if T|length > 20 -%}long: {{ T -}}{%- else -%}{{- T -}}{%- endif -%}",
        "{{- T|tojson -}}",
        "{{- '%s' % T -}}",
        "{{- T ~ '' -}}",
        "{{- [T, T]|first -}}",
        "{{- T|indent(2) -}}",
        "{%- for line in T.split('\\n') -%}{{- line -}}{%- if not loop.last -%}{{- '\\n' -}}{%- endif -%}{%- endfor -%}",
        "{%- if loop.index0 and messages[loop.index0 - 1].content == T -%}{{- messages[loop.index0 - 1].content -}}"
        "{%- else -%}{{- T -}}{%- endif -%}",
        "{%- if loop.previtem is defined and loop.previtem.role == m.role -%}{{- '+' ~ T -}}{%- else -%}{{- T -}}"
        "{%- endif -%}",
    ),
    "where": (
        "m.role == 'assistant'",
        "true",
        "m.role == 'user'",
        "m.role == 'tool'",
        "loop.last",
        "not loop.last",
        "loop.first",
        "m.role == 'assistant' and not loop.last",
    ),
    "reasoning": (
        "",
        "{%- if m.KEY -%}{{- '<think>' ~ m.KEY ~ '</think>' -}}{%- endif -%}",
        "{%- if m.KEY and loop.last -%}{{- '<think>\\n' ~ m.KEY|trim ~ '\\n</think>\\n\\n' -}}{%- endif -%}",
        "{%- if m.role == 'assistant' -%}{{- '<think>' ~ (m.KEY or '') ~ '</think>' -}}{%- endif -%}",
        "{%- if m.KEY and enable_thinking is not false -%}{{- m.KEY ~ '\\n' -}}{%- endif -%}",
    ),
    "reasoning_key": ("reasoning_content", "thinking", "reasoning"),
    "calls": (
        "{%- for c in m.tool_calls or [] -%}{{- '<call>' ~ c.function|tojson ~ '</call>' -}}{%- endfor -%}",
        "",
        "{%- for c in m.tool_calls or [] -%}{{- c.function.name ~ '(' ~ c.function.arguments|tojson ~ ')' -}}"
        "{%- endfor -%}",
        "{%- for c in m.tool_calls or [] -%}{{- '<f=' ~ c.function.name ~ '>' -}}"
        "{%- for k, v in c.function.arguments|items -%}{{- '<' ~ k ~ '>' ~ (v if v is string else v|tojson) ~ '</p>' -}}"
        "{%- endfor -%}{%- endfor -%}",
        "{%- if m.tool_calls -%}{{- m.tool_calls|tojson -}}{%- endif -%}",
    ),
    "calls_at": ("after", "before", "before_header", "in_tool", "end"),
    "tools": (
        "{%- if tools -%}{{- '<tools>' -}}{%- for t in tools -%}{{- t|tojson ~ '\\n' -}}{%- endfor -%}{{- '</tools>' -}}"
        "{%- endif -%}",
        "",
        "{%- if tools -%}{{- tools|tojson(indent=2) -}}{%- endif -%}",
        "{%- for t in tools or [] -%}{{- t.function.name ~ ': ' ~ t.function.description ~ '\\n' -}}{%- endfor -%}",
    ),
    "kwargs": (
        "",
        "{%- if style -%}{{- 'Style: ' ~ style -}}{%- endif -%}",
        "{{- strftime_now('%Y') -}}",
        "{{- bos_token -}}",
    ),
    "messages": ("messages", "messages[-2:]", "messages[1:]", "messages|selectattr('role', 'ne', 'system')"),
    "system": ("", "{%- if messages[0].role != 'system' -%}{{- 'You help.' -}}{%- endif -%}"),
    "skip": (
        "",
        "{%- if m.role == 'system' and not loop.first -%}{%- continue -%}{%- endif -%}",
        "{%- if m.role == 'tool' and not T -%}{%- continue -%}{%- endif -%}",
    ),
    "refuse": (
        "",
        "{%- if m.role == 'user' and loop.previtem is defined and loop.previtem.role == 'user' -%}"
        "{{- raise_exception('users') -}}{%- endif -%}",
    ),
    "number": ("", "{%- if m.role == 'user' -%}{{- '[' ~ loop.index ~ '] ' -}}{%- endif -%}"),
    "closing": ("always", "last_is_eos", "not_last", "merged"),
    "wrapped": ("", "macro", "set", "joined", "generation"),
    "prompt": ("header", "", "think", "word", "thinking_kwarg"),
}
# Features that act on each other, and values of them (None: all). In half of the templates only those of one theme are
# likely, so that they meet.
_STRIPS = ("{{- T|trim -}}", "{{- T|trim -}}", "{{- T.rstrip() -}}", "{{- T.lstrip('\\n') -}}")
_BY_POSITION = ("loop.last", "not loop.last", "loop.first", "m.role == 'assistant' and not loop.last")
_THEMES: tuple[dict[str, Sequence[Any] | None], ...] = (
    {"texts": _STRIPS, "where": _BY_POSITION, "prompt": ("", "", "think")},
    {"texts": _STRIPS, "where": _BY_POSITION, "prompt": ("", "", "word"), "closing": None},
    {"texts": None, "where": None, "closing": None, "wrapped": None},
    {"markers": None, "role": None, "calls": None, "calls_at": None},
    {"markers": None, "calls": None, "prompt": ("think",)},
    {"content": None, "tools": None, "calls": None, "kwargs": None},
    {"reasoning": None, "reasoning_key": None, "prompt": None, "texts": None},
    {"messages": None, "system": None, "skip": None, "refuse": None, "number": None},
)
_TEXTS = (
    "Hi", "yes", "yes ", "No.", "", " ", "\n", "\n\n", "a", "42", "Final: 42", "Final: Final: 42", "  two  spaces ", "r  ",
    "\n\nstarts with lines", "ends with one\n", "<think>\n\n</think>", "<think>so</think>42", "so</think>42", "</think>", "Yes",
    "Summarise this, please: <p>the river rises</p>", "a <p>b", 'He said "no" & left', "CONTINUE_FINAL_MESSAGE_TAG ",
    "assistant", "Assistant:", "user\nHi", "{{ x }}", "{% if %}", "ÄÖÜ ŁÓDŹ İ ß", "水車 🙂", "\u00a0nbsp\u00a0", "line\r\nline",
    "one\ntwo\nthree", "You help.", "long: ", "tab\t", "\\n", "a\u2028b", "A text of some more words that is long enough to cut.",
    "ｘ", "<|end|>", "model", "Style: ", "+",
)  # fmt: skip
_KEYS = ("reasoning_content", "thinking", "reasoning")


def template_of(features: dict[str, Any]) -> str:
    """Build a template of features, see FEATURES."""
    get = {**{name: values[0] for name, values in FEATURES.items()}, **features}
    before, after, closing = get["markers"]
    body = "{{- '%s' ~ %s ~ '%s' -}}" % (before, get["role"], after)
    calls = get["calls"]
    text = "{%- set T = " + get["content"] + " -%}"
    changed = "{{- T -}}"
    if get["texts"] != changed:
        changed = "{%- if " + get["where"] + " -%}" + get["texts"] + "{%- else -%}{{- T -}}{%- endif -%}"
    turn = get["number"] + get["reasoning"].replace("KEY", get["reasoning_key"])
    turn += {"before": calls + changed, "after": changed + calls}.get(get["calls_at"], changed)
    if get["calls_at"] == "in_tool":
        before_it = calls.replace("m.tool_calls", "messages[loop.index0 - 1].tool_calls")
        turn = "{%- if m.role == 'tool' -%}" + before_it + "{%- endif -%}" + turn
    end = "{{- '%s' -}}" % closing
    ends = {
        "always": end,
        "last_is_eos": "{%- if loop.last -%}{{- eos_token -}}{%- else -%}" + end + "{%- endif -%}",
        "not_last": "{%- if not loop.last -%}" + end + "{%- endif -%}",
        "merged": "{%- if loop.nextitem is not defined or loop.nextitem.role != m.role -%}" + end + "{%- endif -%}",
    }[get["closing"]]
    if get["closing"] == "merged":
        body = "{%- if loop.previtem is not defined or loop.previtem.role != m.role -%}" + body + "{%- endif -%}"
    if get["wrapped"] == "generation":
        turn = (
            "{%- if m.role == 'assistant' -%}{%- generation -%}" + turn + ends + "{%- endgeneration -%}{%- else -%}"
            + turn + ends + "{%- endif -%}"
        )  # fmt: skip
    else:
        turn += ends
    if get["calls_at"] == "before_header":
        body = calls + body
    inner = text + get["skip"] + get["refuse"] + body + turn
    prefix, suffix = "", ""
    if get["wrapped"] == "macro":
        prefix = "{%- macro turn(m, loop, messages) -%}" + inner.replace("{%- continue -%}", "") + "{%- endmacro -%}"
        inner = "{{- turn(m, loop, messages) -}}"
    elif get["wrapped"] == "set":
        inner = text + get["skip"] + "{%- set out -%}" + inner + "{%- endset -%}{{- out -}}"
    elif get["wrapped"] == "joined":
        prefix, suffix = "{%- set ns = namespace(out='') -%}", "{{- ns.out -}}"
        inner = text + get["skip"] + "{%- set out -%}" + inner + "{%- endset -%}{%- set ns.out = ns.out ~ out -%}"
    if get["wrapped"] in ("set", "joined"):
        inner = inner.replace("{%- set out -%}" + text + get["skip"], "{%- set out -%}")
    loop = "{%- for m in " + get["messages"] + " -%}" + inner + "{%- endfor -%}" + suffix
    if get["calls_at"] == "end":
        loop += "{%- for m in messages -%}" + calls + "{%- endfor -%}"
    header = "{{- '%s' ~ '%s' ~ '%s' -}}" % (
        before,
        {"m.role|capitalize": "Assistant", "m['role']|upper": "ASSISTANT"}.get(
            get["role"], "model" if "model" in get["role"] else "assistant"
        ),
        after,
    )
    prompt = {
        "header": header,
        "": "",
        "think": header + "{{- '<think>\\n' -}}",
        "word": "{{- 'Answer: ' -}}",
        "thinking_kwarg": header + "{%- if enable_thinking is false -%}{{- '<think></think>' -}}{%- endif -%}",
    }[get["prompt"]]
    return (
        get["kwargs"] + get["system"] + get["tools"] + prefix + loop
        + "{%- if add_generation_prompt -%}" + prompt + "{%- endif -%}"
    )  # fmt: skip


class Case:
    """A template with records and options, made of a seed."""

    def __init__(self, seed: int):
        chance = random.Random(seed)
        usual = chance.random() * 0.5 + 0.4
        theme = chance.choice(_THEMES) if chance.random() < 0.5 else None
        self.features = {
            name: chance.choice((theme or {}).get(name) or values[1:])
            for name, values in FEATURES.items()
            if chance.random() > (usual if theme is None else 0.1 if name in theme else 0.95)
        }
        self.options = {
            "loss_on": chance.choice(
                ("assistant", "assistant", "last_assistant", *["completion"] * 2, "auto", "auto", "all")
            ),
            "unprinted": chance.choice(("report", "reject")),
            "special_tokens_in_content": chance.choice(("allow", "allow", "report", "plain")),
        }
        self._chance, self._constants = chance, _constants(template_of(self.features))
        # Most texts are short and occur again. Words do not, so that they show what is printed of which text.
        self._words = itertools.count() if chance.random() < 0.5 else None
        makers = [chance.randrange(2**32) for _ in range(chance.choice((1, 2, 4)))]  # kinds, each with several records
        self.records = [self._record(random.Random(chance.choice(makers))) for _ in range(RECORDS)]

    def _text(self, earlier: list[str]) -> str:
        chance = self._chance
        if self._words is not None:
            return self._text_of_words(chance, self._words)
        kind = chance.random()
        if kind < 0.15 and earlier:
            return chance.choice(earlier)
        if kind < 0.25 and self._constants:
            return chance.choice(self._constants)
        text = chance.choice(_TEXTS) if kind < 0.7 else f"{chance.choice(_TEXTS)}w{chance.randrange(1000)}"
        earlier.append(text)
        return text

    def _text_of_words(self, chance: random.Random, numbers: Iterator[int]) -> str:
        inner = chance.choice(chance.choice((_TEXTS, self._constants or _TEXTS, " ")))
        before, after = (SPACE * chance.choice((0, 0, 2)) for _ in range(2))
        return f"{before}w{next(numbers)}q{inner}w{next(numbers)}q{after}"

    def _record(self, form: random.Random) -> dict[str, Any]:
        """A record: its form, which several records share, and texts of its own."""
        chance, earlier = self._chance, list[str]()
        in_parts, key = form.random() < 0.2, form.choice((None, None, *_KEYS))
        has_tools = form.random() < (0.7 if self.features.keys() & {"calls", "calls_at", "tools"} else 0.3)
        has_prompt = self.options["loss_on"] == "completion" or (
            self.options["loss_on"] == "auto" and form.random() < 0.6
        )

        def content(maybe_empty: bool = False) -> Any:
            text = "" if maybe_empty and form.random() < 0.7 else self._text(earlier)
            if not in_parts:
                return text
            texts = [text, *(self._text(earlier) for _ in range(form.choice((0, 0, 1))))]
            return [{"type": "text", "text": one} for one in texts]

        messages: list[dict[str, Any]] = []
        if form.random() < 0.3:
            messages.append({"role": "system", "content": content()})
        begins_with_answer = not has_prompt and form.random() < (0.5 if has_tools else 0.1)
        for round in range(form.choice((1, 1, 2, 3))):
            for _ in range(form.choice((1, 1, 1, 2)) if round or not begins_with_answer else 0):
                messages.append({"role": "user", "content": content()})
            if has_tools and form.random() < 0.7:
                calls = [self._call(form, earlier, number) for number in range(form.choice((1, 1, 2)))]
                messages.append({"role": "assistant", "content": content(maybe_empty=True), "tool_calls": calls})
                for call in calls:
                    own = {"tool_call_id": call["id"]}
                    messages.append({"role": "tool", "content": content(), **own})
            answer = {"role": "assistant", "content": content()}
            if key and form.random() < 0.8:
                answer[key] = self._text(earlier)
            if form.random() < 0.1:
                answer["weight"] = 0
            messages.append(answer)
            if form.random() < 0.1:
                messages.append({"role": "system", "content": content()})
        if form.random() < 0.1:
            messages.append({"role": "user", "content": content()})
        record: dict[str, Any] = {"messages": messages}
        if has_prompt:
            cut = form.choice((*range(1, len(messages)), len(messages) - 1))
            record = {"prompt": messages[:cut], "completion": messages[cut:]}
        if has_tools:
            record["tools"] = [_tool(number, self._text(earlier)) for number in range(form.choice((1, 2)))]
        if form.random() < 0.2:
            choices = ({"enable_thinking": chance.random() < 0.5}, {"style": self._text(earlier)}, {"other": "x y"})
            record["chat_template_kwargs"] = form.choice(choices)
        return record

    def _call(self, form: random.Random, earlier: list[str], number: int) -> dict[str, Any]:
        arguments: dict[str, Any] = {name: self._text(earlier) for name in form.choice(((), ("at",), ("at", "to")))}
        if form.random() < 0.2:
            arguments["n"] = form.choice((1, 2.5, True, None, [self._text(earlier)], {"deep": self._text(earlier)}))
        function = {"name": form.choice(("find", "look_up")), "arguments": arguments}
        return {"id": f"call0000{number}", "type": "function", "function": function}


def _tool(number: int, description: str) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {"at": {"type": "string"}}}
    function = {"name": ("find", "look_up")[number], "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


def _constants(template: str) -> list[str]:
    """What the template prints as its own, and pieces of it; its generation prompt."""
    found = [piece.replace("\\n", "\n") for piece in template.split("'")[1::2] if piece.strip()]
    apply = TransformersText(template, TOKENIZER, NOW).apply
    without, whole = (apply([{"role": "user", "content": "x"}], add_generation_prompt=given) for given in (False, True))
    prompt = (whole or "").removeprefix(without or "")
    return [
        *found,
        *(prompt[: end.end()] for end in re.finditer(r"[>\]:]\s*", prompt)),
        *[prompt] * (2 if prompt.strip() else 0),
        *(piece.strip() for piece in found),
        *(piece[: len(piece) // 2] for piece in found if len(piece) > 3),
    ]


def failure_of(
    features: dict[str, Any], options: dict[str, Any], records: Sequence[dict[str, Any]], each_alone: bool = True
) -> str | None:
    """Describe the first thing that is wrong with the outcomes of records; None if nothing is.

    Args:
        features: of the template.
        options: of the rendering.
        records: the records.
        each_alone: whether each record is rendered alone too, which takes most of the time.
    """
    template = template_of(features)
    examples: list[Example] = []
    parser = Parser()
    for number, record in enumerate(records):
        batch = parser(Records(SPLIT, 0, True, Outcomes(read=1), [Record(number, json.dumps(record).encode())]))
        examples += batch.examples

    texts_of: dict[str, Texts] = {}

    def outcomes(engine: str, batches: Sequence[Sequence[Example]], is_shared: bool) -> tuple[dict[int, Any], Any]:
        config = render_config(template, TOKENIZER, engine=engine, now=NOW.isoformat(), **options)
        renderer = Renderer(config)
        found: dict[int, Any] = {}
        sums = Counter[str]()
        for batch in batches:
            renderer = renderer if is_shared else Renderer(config)
            texts = renderer(Examples(SPLIT, 0, True, Outcomes(read=len(batch)), list(batch)))
            found |= _by_record(texts)
            sums += _counts(texts)
            texts_of[engine] = texts
        return found, sums

    try:
        expected = outcomes("reference", [examples], True)
        apply = TransformersText(template, TOKENIZER, NOW)
        for number, outcome in expected[0].items():
            if outcome[0] == "text" and outcome[1] not in (text := _texts_of_transformers(apply, records[number])):
                return f"record {number}: reference prints {outcome[1]!r}, transformers {text!r}"
            if outcome[0] == "text" and (wrong := wrong_words(records[number], *outcome[1:3], features, options)):
                return f"record {number}: {wrong}\n  {outcome[1]!r}\n  {outcome[2]}"
        if different := _different_tokens(texts_of["reference"]):
            return different
        orders = [
            ("auto", "auto", [examples], True),
            ("auto, in reverse", "auto", [examples[::-1]], True),
            ("auto, in two batches", "auto", [examples[::2], examples[1::2]], True),
        ]
        if each_alone:
            alone = [[example] for example in examples]
            orders += [
                ("reference, each alone", "reference", alone, False),
                ("auto, each alone", "auto", alone, False),
                ("auto, one after another", "auto", alone, True),
            ]
        for name, *given in orders:
            found = outcomes(*given)
            for number in expected[0].keys() | found[0].keys():
                if found[0].get(number) != expected[0].get(number):
                    return f"record {number}: {name}\n  {found[0].get(number)}\nreference\n  {expected[0].get(number)}"
            if found[1] != expected[1]:
                return f"{name} counts {dict(found[1])}\nreference {dict(expected[1])}"
    except Exception as error:  # whatever it is, it is not an outcome of a record
        return f"{type(error).__name__}: {error}"
    return None


@functools.cache
def _encoder(engine: str) -> Encoder:
    return Encoder(str(TOKENIZER), engine=engine)


def _different_tokens(texts: Texts) -> str | None:
    """Describe how the engines encode texts differently; None if they do not."""
    found = [_encoder(engine)(texts) for engine in ("reference", "auto")]
    for name in ("ids", "offsets", "trained"):
        expected, given = (getattr(tokens, name) for tokens in found)
        if not np.array_equal(expected, given):
            return f"{name} of tokens: auto\n  {given}\nreference\n  {expected}"
    return None


def _by_record(texts: Texts) -> dict[int, Any]:
    kept = {
        text.example.position: ("text", text.text, text.spans, text.prompt, text.with_stand_ins) for text in texts.texts
    }
    rejects = {reject.position: ("reject", reject.reason, reject.detail) for reject in texts.outcomes.rejects}
    return {**kept, **rejects}


def _counts(texts: Texts) -> Counter[str]:
    """What is counted of a batch, but for the paths that the engines took."""
    outcomes = texts.outcomes
    counts = Counter(outcomes.notes)
    for name, unread in outcomes.statistics.unread.items():
        counts[f"unread {name}"] += unread.characters
    return counts


def _texts_of_transformers(apply: TransformersText, record: dict[str, Any]) -> str | None:
    messages = record.get("messages") or [*record["prompt"], *record["completion"]]
    messages = [{key: value for key, value in message.items() if key != "weight"} for message in messages]
    prepared = apply.prepared(messages)
    return apply.apply(prepared, record.get("tools"), **record.get("chat_template_kwargs", {})) or ""


def smaller(case: Case) -> tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]]:
    """Leave out of a failing case what it fails without: records, messages, features of the template, options."""
    features, options, records = case.features, case.options, case.records

    def fails(*changed: Any) -> bool:
        try:
            return failure_of(*changed) is not None
        except Exception:
            return False

    for start in range(len(records)):
        for one in ([records[start]], *([other, records[start]] for other in records[:start])):
            if fails(features, options, one):
                records = one
                break
        if len(records) <= 2:
            break
    else:
        for number in reversed(range(len(records))):
            if fails(features, options, rest := records[:number] + records[number + 1 :]):
                records = rest
    for name in [*features]:
        if fails(rest := {key: value for key, value in features.items() if key != name}, options, records):
            features = rest
    for name in [*options]:
        if name != "loss_on" and fails(features, rest := {k: v for k, v in options.items() if k != name}, records):
            options = rest
    for number in range(len(records)):
        for changed in _less(records[number]):
            while fails(features, options, one := [*records[:number], changed, *records[number + 1 :]]):
                records = one
                break
    return features, options, records


def _less(record: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Copies of a record, each without something of it."""
    for name in ("chat_template_kwargs", "tools"):
        if name in record:
            yield {key: value for key, value in record.items() if key != name}
    for column in ("messages", "prompt", "completion"):
        for number in reversed(range(len(record.get(column, ())))):
            yield {**record, column: record[column][:number] + record[column][number + 1 :]}


def check(seeds: Iterator[int], seconds: float, report: Callable[[str], Any], most: int = 1) -> int:
    """Check cases until time is up or some have failed; return how many were checked."""
    end, failed, done = time.monotonic() + seconds, 0, 0
    for seed in seeds:
        if time.monotonic() > end or failed >= most:
            break
        case = Case(seed)
        done += 1
        if failure_of(case.features, case.options, case.records, each_alone=seed % _ONE_ALONE_OF == 0) is not None:
            features, options, records = smaller(case)
            found = failure_of(features, options, records)
            lines = [json.dumps(record, ensure_ascii=False) for record in records]
            report("\n".join((f"seed {seed}: {found}", template_of(features), f"{features} {options}", *lines, "")))
            failed += 1
    return done


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first failure")
    arguments = parser.parse_args()
    seeds = iter(range(arguments.seed, 2**40))
    most = 10**9 if arguments.keep_going else 1
    done = check(seeds, arguments.seconds, lambda found: print(found, flush=True), most)
    print(f"{done:,} templates, {RECORDS * done:,} records")


if __name__ == "__main__":
    main()

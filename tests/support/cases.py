# ruff: noqa: UP031
"""Chat templates made of features, and conversations whose words are marked.

A word that only one text of a record has shows what a rendering prints of that text and trains on, without any
knowledge of the template. Nothing of `transforms` is used.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import json
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from support.paths import ROOT, TOKENIZER
from support.transformers_text import Arguments, TransformersText

NOW = datetime(2026, 11, 20, 12)
RECORDS = 14

# What templates do; the first value of each is the default, to which a failing template is reduced. In `texts`, T is
# the text; in `shown`, what history prints in the place of what the generation prompt ends with. `themes` are features
# that act on each other, and values of them (null: all): in half of the templates only those of one theme are likely,
# so that they meet. `frames` surround a word in records as corpora have them: what templates trim, escape or compare,
# and what resembles their own markers.
_DATA = json.loads((ROOT / "tests" / "data" / "template_features.json").read_text(encoding="utf-8"))
FEATURES: dict[str, list[Any]] = _DATA["features"]
_THEMES: list[dict[str, list[Any] | None]] = _DATA["themes"]
_TEXTS, _FRAMES = _DATA["texts"], _DATA["frames"]
REASONING = ("reasoning_content", "thinking", "reasoning")
_ROLES = {"m.role|capitalize": "Assistant", "m['role']|upper": "ASSISTANT"}
# Around what is trained on in a template that shows it.
_OPEN, _CLOSE = "\ue000", "\ue001"


def make_template(features: Mapping[str, Any], shows_turns: bool = False) -> str:
    """Build a template of features, see FEATURES. shows_turns: whether characters are printed around each answer."""
    get = {**{name: values[0] for name, values in FEATURES.items()}, **features}
    before, after, closing = get["markers"]
    calls, messages = get["calls"], get["messages"]
    opens, closes = ("{{- '%s' if m.role == 'assistant' else '' -}}" % mark * shows_turns for mark in (_OPEN, _CLOSE))
    end, header = "{{- '%s' -}}" % closing + closes, "{{- '%s' ~ %s ~ '%s' -}}" % (before, get["role"], after) + opens
    if get["shown"]:
        header += "{{- '%s' if m.role == 'assistant' else '' -}}" % get["shown"]
    text = "{%- set T = " + get["content"] + " -%}"
    changed = "{{- T -}}"
    if get["texts"] != changed:
        changed = "{%- if " + get["where"] + " -%}" + get["texts"] + "{%- else -%}{{- T -}}{%- endif -%}"
    turn = get["number"] + get["reasoning"].replace("KEY", get["reasoning_key"])
    turn += {"before": calls + changed, "after": changed + calls}.get(get["calls_at"], changed)
    if get["calls_at"] == "in_tool":
        before_it = calls.replace("m.tool_calls", "messages[loop.index0 - 1].tool_calls")
        turn = "{%- if m.role == 'tool' -%}" + before_it + "{%- endif -%}" + turn
    last = "{%%- if loop.last%s -%%}%s{%%- else -%%}" + end + "{%%- endif -%%}"
    by_next, after_all = get["closing"] == "by_next", ""
    if by_next:
        of_previous = end.replace("m.role", "(%s)[loop.index0 - 1].role" % messages)
        header = "{%- if not loop.first -%}" + of_previous + "{%- endif -%}" + header
        after_all = end.replace("m.role", "(%s)[-1].role" % messages)
    ends = {
        "always": end,
        "last_is_eos": last % ("", "{{- eos_token -}}" + closes),
        "not_last": last % ("", closes),
        "merged": "{%- if loop.nextitem is not defined or loop.nextitem.role != m.role -%}" + end + "{%- endif -%}",
        "return": last % (" and not add_generation_prompt", "{{- '<|return|>' -}}" + closes),
        "by_next": "",
    }[get["closing"]]
    if get["closing"] == "merged":
        header = "{%- if loop.previtem is not defined or loop.previtem.role != m.role -%}" + header + "{%- endif -%}"
    turn += ends
    if get["wrapped"] == "generation":
        block = "{%- generation -%}" + turn + "{%- endgeneration -%}"
        turn = "{%- if m.role == 'assistant' -%}" + block + "{%- else -%}" + turn + "{%- endif -%}"
    inner = text + get["skip"] + get["refuse"] + calls * (get["calls_at"] == "before_header") + header + turn
    prefix, suffix = "", after_all
    if get["wrapped"] == "macro":
        prefix = "{%- macro turn(m, loop, messages) -%}" + inner.replace("{%- continue -%}", "") + "{%- endmacro -%}"
        inner = "{{- turn(m, loop, messages) -}}"
    elif get["wrapped"] in ("set", "joined"):
        skips = text + get["skip"]
        block = skips + "{%- set out -%}" + inner.removeprefix(skips) + "{%- endset -%}"
        inner = block + "{{- out -}}"
        if get["wrapped"] == "joined":
            prefix, suffix = "{%- set ns = namespace(out='') -%}", "{{- ns.out -}}" + after_all
            inner = block + "{%- set ns.out = ns.out ~ out -%}"
    loop = get["loop"].replace("MESSAGES", messages) + inner + "{%- endfor -%}" + suffix
    if get["calls_at"] == "end":
        loop += "{%- for m in messages -%}" + calls + "{%- endfor -%}"
    role = _ROLES.get(get["role"], "model" if "model" in get["role"] else "assistant")
    prompt = "{{- '%s' ~ '%s' ~ '%s' -}}" % (before, role, after)
    prompt = {
        "header": prompt,
        "": "",
        "think": prompt + "{{- '<think>\\n' -}}",
        "word": "{{- 'Answer: ' -}}",
        "thinking_kwarg": prompt + "{%- if enable_thinking is false -%}{{- '<think></think>' -}}{%- endif -%}",
    }[get["prompt"]]
    prompt = "{%- if add_generation_prompt -%}" + prompt + "{%- endif -%}"
    return get["kwargs"] + get["system"] + get["tools"] + prefix + loop + prompt


def turns_are_known(features: Mapping[str, Any]) -> bool:
    """Whether what a template shows as its turns is what is trained on: it has a header and a closing of each."""
    # Of a template that prints at the end, a turn without any text is not known.
    is_odd = features.get("closing") == "merged" or features.get("wrapped") in ("generation", "joined")
    # What closes a turn is printed for the message after it, which may be one that is skipped.
    is_odd = is_odd or (features.get("closing") == "by_next" and bool(features.get("skip")))
    in_turn = features.get("calls_at", "after") in ("after", "before")
    return in_turn and not is_odd and features.get("prompt", "header") in ("header", "think")


def turns_in(shown: str, features: Mapping[str, Any]) -> tuple[str, set[int]]:
    """What a template that shows its turns printed, without that; and which of its characters the model writes."""
    prompt = "<think>\n" if features.get("prompt") == "think" else ""
    text, written = "", set[int]()
    for piece in shown.split(_OPEN):
        answer, mark, rest = piece.partition(_CLOSE)
        if mark:
            begins = next((one for one in (prompt, prompt.strip()) if one and answer.startswith(one)), "")
            written |= {*range(len(text) + len(begins), len(text) + len(answer))}
        text += answer + rest
    return text, written


@dataclasses.dataclass(frozen=True)
class Texts:
    """What the texts of records are: short ones that occur again, or ones with words that no other text has.

    Args:
        kind: "short", "words" or, with words in what corpora have around them, "framed".
        constants: what the template prints as its own, which some texts have.
    """

    chance: random.Random
    kind: str
    constants: Sequence[str] = ()
    numbers: Iterator[int] = dataclasses.field(default_factory=lambda: itertools.count(1))
    earlier: list[str] = dataclasses.field(default_factory=list)

    def word(self) -> str:
        return f"w{next(self.numbers)}q"

    def name(self, name: str) -> str:
        """A name of a tool, a call or an argument."""
        return f"{name}_{self.word()}" if self.kind == "framed" else name

    def text(self) -> str:
        chance = self.chance
        if self.kind == "framed":
            return chance.choice(_FRAMES).format(self.word())
        if self.kind == "words":
            inner = chance.choice(chance.choice((_TEXTS, self.constants or _TEXTS, " ")))
            before, after = (SPACE * chance.choice((0, 0, 2)) for _ in range(2))
            return f"{before}{self.word()}{inner}{self.word()}{after}"
        kind = chance.random()
        if kind < 0.15 and self.earlier:
            return chance.choice(self.earlier)
        if kind < 0.25 and self.constants:
            return chance.choice(self.constants)
        text = chance.choice(_TEXTS) if kind < 0.7 else f"{chance.choice(_TEXTS)}w{chance.randrange(1000)}"
        self.earlier.append(text)
        return text


def make_record(
    form: random.Random, texts: Texts, odd: float = 1, tools: float = 0.4, prompt: float = 0
) -> dict[str, Any]:
    """A record: its form, which several records may share, and texts of its own.

    Args:
        form: draws all but the texts.
        odd: how often there is what corpora seldom have: weights, arguments for the template, roles in any order.
        tools, prompt: how often it has tools, and a prompt with a completion.
    """
    text, maybe = texts.text, lambda chance: form.random() < chance
    in_parts, key, has_tools, has_prompt = (
        maybe(0.2),
        form.choice((None, None, *REASONING)),
        maybe(tools),
        maybe(prompt),
    )
    as_json = maybe(0.3)

    def content(maybe_empty: bool = False) -> Any:
        one = "" if maybe_empty and maybe(0.7) else text()
        if not in_parts:
            return one
        return [{"type": "text", "text": one} for one in (one, *(text() for _ in range(form.choice((0, 0, 1)))))]

    def call(number: int) -> dict[str, Any]:
        names = form.choice(((), ("at",), ("at", "to")))
        arguments: dict[str, Any] = {texts.name(name): text() for name in names}
        if maybe(0.2):
            deep = {texts.name("deep"): text()}
            arguments[texts.name("n")] = form.choice((1, 2.5, True, 2**70, [text()], deep, {"": 1}))
        function = {"name": texts.name(form.choice(("find", "look_up"))), "arguments": arguments}
        if as_json:
            function["arguments"] = json.dumps(arguments, ensure_ascii=maybe(0.5))
        return {"id": f"call0000{number}", "type": "function", "function": function}

    messages: list[dict[str, Any]] = []
    if maybe(0.3):
        messages.append({"role": "system", "content": content()})
    begins_with_answer = not has_prompt and maybe((0.5 if has_tools else 0.1) * odd)
    for round in range(form.choice((1, 1, 2, 3))):
        for _ in range(1 + maybe(0.25 * odd) if round or not begins_with_answer else 0):
            messages.append({"role": "user", "content": content()})
        reasoning = {key: text()} if key and maybe(0.8) else {}
        if has_tools and maybe(0.7):
            calls = [call(number) for number in range(form.choice((1, 1, 2)))]
            own, reasoning = (reasoning, {}) if maybe(0.3) else ({}, reasoning)
            messages.append({"role": "assistant", "content": content(maybe_empty=True), "tool_calls": calls, **own})
            for one in calls:
                name = {"name": one["function"]["name"]} if as_json else {}
                messages.append({"role": "tool", "content": content(), "tool_call_id": one["id"], **name})
        answer = {"role": "assistant", "content": content(), **reasoning}
        if maybe(0.1 * odd):
            answer["weight"] = 0
        messages.append(answer)
        if maybe(0.1 * odd):
            messages.append({"role": "system", "content": content()})
    if maybe(0.1 * odd):
        messages.append({"role": "user", "content": content()})
    record: dict[str, Any] = {"messages": messages}
    if has_prompt:
        cut = form.choice((*range(1, len(messages)), len(messages) - 1))
        record = {"prompt": messages[:cut], "completion": messages[cut:]}
    if has_tools:
        own = [_tool(texts.name(name), text()) for name in form.choice((("find",), ("find", "look_up")))]
        functions = [tool["function"] for tool in own]
        forms = (functions, json.dumps(functions), [json.dumps(tool) for tool in own])
        record["tools"] = form.choice(forms) if as_json else own
    if maybe(0.2 * odd):
        styles = texts.chance.choice((1, 1.0, True, [1], {"a": 1.0}, {"b": 2, "a": 1})) if maybe(0.3) else text()
        choices = ({"enable_thinking": maybe(0.5)}, {"style": styles}, {"other": "x y"})
        record["chat_template_kwargs"] = form.choice(choices)
    return record


def _tool(name: str, description: str) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {"at": {"type": "string"}}}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


class Case:
    """A template with records and options, made of a seed.

    Args:
        seed: it decides everything.
        template: which is given. Otherwise it is made of features.
    """

    def __init__(self, seed: int, template: str | None = None):
        chance = random.Random(seed)
        usual, theme = chance.random() * 0.5 + 0.4, chance.choice(_THEMES) if chance.random() < 0.5 else None
        self.features: dict[str, Any] | None = None
        if template is None:
            self.features = {
                name: chance.choice((theme or {}).get(name) or values[1:])
                for name, values in FEATURES.items()
                if chance.random() > (usual if theme is None else 0.1 if name in theme else 0.95)
            }
        self.template = template or make_template(self.features or {})
        losses = ("assistant", "assistant", "last_assistant", *["completion"] * 2, "auto", "auto", "all")
        self.options: dict[str, Any] = {
            "loss_on": chance.choice(losses),
            "unprinted": chance.choice(("report", "reject")),
            "special_tokens_in_content": chance.choice(("allow", "allow", "report", "plain")),
            "parity": chance.choice(("off", "off", "report", "expand", "reject")),
            "eot_tokens": chance.choice((*[()] * 6, ("<|im_end|>",), ("<|user|>", "<|end|>"))),
            "part_columns": chance.random() < 0.3,
        }
        # With them, of a completion the turns of the assistant alone are trained on.
        self.options["part_columns"] &= self.options["loss_on"] in ("assistant", "last_assistant")
        prompt = {"completion": 1, "auto": 0.6}.get(self.options["loss_on"], 0)
        tools = 0.7 if (self.features or {}).keys() & {"calls", "calls_at", "tools"} else 0.3
        texts = Texts(chance, chance.choice(("short", "short", "words", "words", "framed")), _constants(self.template))
        makers = [chance.randrange(2**32) for _ in range(chance.choice((1, 2, 4)))]  # kinds, each with several records
        forms = (random.Random(chance.choice(makers)) for _ in range(RECORDS))
        self.records = [make_record(form, dataclasses.replace(texts, earlier=[]), 1, tools, prompt) for form in forms]

    def with_(self, **changed: Any) -> Case:
        """The case with other records or features."""
        other = copy.copy(self)
        vars(other).update(changed)
        other.template = make_template(other.features) if other.features is not None else other.template
        return other

    def __str__(self) -> str:
        lines = (json.dumps(record, ensure_ascii=False) for record in self.records)
        return "\n".join((self.template, f"{self.features} {self.options}", *lines))


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


# White space that no template prints: next to a word it is of the same text.
SPACE = "\u2003"
_WORD = re.compile(r"w\d+q", re.IGNORECASE)
_REASONING_TAG = re.compile("think|thought|inner_prefix", re.IGNORECASE)
_PRINTED = re.compile(rf"{SPACE}*(w\d+q){SPACE}*", re.IGNORECASE)


class Marked:
    """A record, what `apply_chat_template` is given for it, and where it has which words.

    Attributes:
        record, messages, tools, kwargs: the record; and of it, what the template is given.
        owners: for each word the number of the message and its key, or None and the key of the record.
        answers, reasoning, others: words of what the assistant's messages say and call, of their reasoning, and of
            everything else.
    """

    def __init__(self, record: Mapping[str, Any]):
        self.record = record
        given = record.get("messages") or [*record["prompt"], *record["completion"]]
        self.messages: list[dict[str, Any]] = [without_json(message) for message in given]
        tools = record.get("tools")
        tools = [without_json(tool) for tool in (json.loads(tools) if isinstance(tools, str) else tools or ())]
        self.tools = [tool if "function" in tool else {"type": "function", "function": tool} for tool in tools] or None
        self.kwargs: dict[str, Any] = record.get("chat_template_kwargs") or {}
        self.owners: dict[str, tuple[int | None, str]] = {}
        for number, message in enumerate(self.messages):
            for key, value in message.items():
                for word in words_in(value):
                    self.owners.setdefault(word, (number, key))
        for name in ("tools", "chat_template_kwargs"):
            for word in words_in(record.get(name)):
                self.owners.setdefault(word, (None, name))
        self.answers, self.reasoning, self.others = list[str](), list[str](), list[str]()
        for word, (owner, key) in self.owners.items():
            is_answer = owner is not None and self.messages[owner]["role"] == "assistant"
            kind = self.others if not is_answer else self.reasoning if key in REASONING else self.answers
            kind.append(word)

    def trained(self, loss_on: str) -> set[int | None]:
        """The numbers of the messages that are trained on."""
        messages, first = self.messages, len(self.record.get("prompt", ()))
        if loss_on == "all":
            return {None, *range(len(messages))}
        answers = [number for number, message in enumerate(messages) if message["role"] == "assistant"]
        if loss_on == "auto":
            is_answer = 0 < first == len(messages) - 1 and messages[first]["role"] == "assistant"
            loss_on = "completion" if is_answer else "assistant"
        if loss_on == "completion" and all("weight" not in messages[number] for number in answers if number >= first):
            return {*range(first, len(messages))}
        chosen = answers[-1:] if loss_on == "last_assistant" else [number for number in answers if number >= first]
        return {number for number in chosen if messages[number].get("weight") != 0}

    def lost(self, text: str) -> tuple[set[str], set[str]]:
        """The words that a text has not: those for which the record may be rejected, and those of reasoning."""
        needed = {word for word, owner in self.owners.items() if self.must_be_printed(*owner)}
        return needed - words_in(text), {*self.reasoning} - words_in(text)

    def must_be_printed(self, number: int | None, key: str) -> bool:
        """Whether a record is rejected if a word is not printed: one of a content, but for reasoning in an answer."""
        if number is None or key != "content":
            return False
        message = self.messages[number]
        return message["role"] != "assistant" or not _REASONING_TAG.search(json.dumps(message))


def without_json(value: Any) -> Any:
    """A message or a tool whose arguments, or which as a whole, are no longer JSON in a string."""
    value = json.loads(value) if isinstance(value, str) else dict(value)
    if "tool_calls" in value:
        value["tool_calls"] = [{**call, "function": {**call["function"]}} for call in value["tool_calls"]]
        for call in value["tool_calls"]:
            if isinstance(call["function"]["arguments"], str):
                call["function"]["arguments"] = Arguments(call["function"]["arguments"])
    return value


def words_in(value: Any) -> set[str]:
    return {word.lower() for word in _WORD.findall(value if isinstance(value, str) else json.dumps(value))}


def printed(apply: TransformersText, one: Marked) -> str:
    """What `apply_chat_template` prints of a record, nothing if the template refuses it."""
    messages = [{key: value for key, value in message.items() if key != "weight"} for message in one.messages]
    return apply.apply(apply.prepared(messages), one.tools, **one.kwargs) or ""


def wrong_words(
    marked: Marked, text: str, spans: Sequence[tuple[int, int]], loss_on: str, has_blocks: bool, unprinted: str
) -> tuple[str | None, bool]:
    """Describe which word is trained on and should not be, or in part, or is lost; None if all is right.

    Also returns whether nothing is trained on of a word that should be, which is to be counted.

    Args:
        text, spans: what was rendered of the record, and what of it is trained on.
        loss_on, unprinted: options of the rendering.
        has_blocks: whether the template has `{% generation %}`. What that leaves out need not be trained on.
    """
    owners, trained = marked.owners, marked.trained(loss_on)
    whole, in_part, shown = set[str](), set[str](), set[str]()
    for found in _PRINTED.finditer(text):
        word, (start, stop) = found[1].lower(), found.span()
        if word not in owners:  # it is cut
            continue
        shown.add(word)
        of_spans = sum(max(0, min(stop, b) - max(start, a)) for a, b in spans)
        if of_spans and owners[word][0] not in trained:
            return f"{word} is trained on, and is in {owners[word]}", False
        if of_spans:
            (whole if of_spans == stop - start else in_part).add(word)
    expected = {word for word in shown if owners[word][0] in trained and not has_blocks}
    for word, owner in owners.items():
        if word in expected & in_part - whole:
            return f"{word} is not trained on in whole, and is in {owner}", False
        if word not in shown and unprinted == "reject" and marked.must_be_printed(*owner):
            return f"{word} is not printed, and is in {owner}", False
    return None, bool(expected - whole)


def framed(seed: int) -> Marked:
    """A record as corpora have them: tools, calls, answers, reasoning, parts; each text has a word of its own."""
    form = random.Random(seed)
    record = make_record(form, Texts(form, "framed"), odd=0)
    if seed % 3 and record["messages"][-2]["role"] == "tool":  # and some end with what tools say
        record["messages"].pop()
    return Marked(record)


def smaller(case: Case, fails: Callable[[Case], bool]) -> Case:
    """Leave out of a failing case what it fails without: records, messages, features of the template, options."""

    def less() -> Iterator[Case]:
        for at, record in reversed([*enumerate(case.records)]):
            changed = [{k: v for k, v in record.items() if k != name} for name in ("tools", "chat_template_kwargs")]
            for name in record.keys() & {"messages", "prompt", "completion"}:
                rests = (record[name][:number] + record[name][number + 1 :] for number in range(len(record[name])))
                changed += [{**record, name: rest} for rest in rests if rest]
            for rest in ([], *([one] for one in changed if one != record)):
                yield case.with_(records=case.records[:at] + rest + case.records[at + 1 :])
        for name in case.features or {}:
            yield case.with_(features={key: value for key, value in (case.features or {}).items() if key != name})

    while found := next((one for one in less() if fails(one)), None):
        case = found
    return case

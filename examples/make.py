"""Writes the example corpus, chats/, and the tokenizer trained on it, tokenizer/: the same bytes on each run.

Conversations are put together from the scenes of phrases.txt, which explains its notation. README.md lists the dirt.
"""

import json
import re
from pathlib import Path
from random import Random
from string import Template

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

HERE = Path(__file__).parent
SPECIAL_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|pad|>"]
CONFIG = {
    "tokenizer_class": "TokenizersBackend",
    "backend": "tokenizers",
    "eos_token": "<|im_end|>",
    "pad_token": "<|pad|>",
    "model_max_length": 32768,
    "clean_up_tokenization_spaces": False,
}
SHAREGPT_ROLES = {"system": "system", "user": "human", "assistant": "gpt"}

# Every tag strips the white space around it, so that the text is the same under any of Jinja's white space settings.
CHAT_TEMPLATE = r"""
{%- macro text(content) -%}
    {%- if content is string -%}{{- content -}}
    {%- else -%}{%- for part in content or [] -%}{{- part.text -}}{%- endfor -%}
    {%- endif -%}
{%- endmacro -%}
{%- set system = messages[0].role in ["system", "developer"] -%}
{%- if system or tools -%}
    {{- "<|im_start|>system\n" -}}
    {%- if system -%}{{- text(messages[0].content) -}}{%- endif -%}
    {%- if tools -%}
        {%- if system -%}{{- "\n\n" -}}{%- endif -%}
        {{- "You may call these functions:\n<tools>\n" -}}
        {%- for tool in tools -%}{{- tool | tojson -}}{{- "\n" -}}{%- endfor -%}
        {{- '</tools>\nA call looks so:\n<tool_call>\n{"name": "...", "arguments": {...}}\n</tool_call>' -}}
    {%- endif -%}
    {{- "<|im_end|>\n" -}}
{%- endif -%}
{%- for message in messages -%}
    {%- if message.role == "assistant" -%}
        {{- "<|im_start|>assistant\n" -}}
        {%- generation -%}
            {{- text(message.content) -}}
            {%- for call in message.tool_calls or [] -%}
                {%- if message.content or not loop.first -%}{{- "\n" -}}{%- endif -%}
                {{- '<tool_call>\n{"name": ' -}}{{- call.function.name | tojson -}}{{- ', "arguments": ' -}}
                {%- if call.function.arguments is string -%}{{- call.function.arguments -}}
                {%- else -%}{{- call.function.arguments | tojson -}}
                {%- endif -%}
                {{- "}\n</tool_call>" -}}
            {%- endfor -%}
            {{- "<|im_end|>\n" -}}
        {%- endgeneration -%}
    {%- elif message.role == "tool" -%}
        {%- if loop.first or loop.previtem.role != "tool" -%}{{- "<|im_start|>user" -}}{%- endif -%}
        {{- "\n<tool_response>\n" -}}{{- text(message.content) -}}{{- "\n</tool_response>" -}}
        {%- if loop.last or loop.nextitem.role != "tool" -%}{{- "<|im_end|>\n" -}}{%- endif -%}
    {%- elif message.role in ["system", "developer", "user"] -%}
        {%- if not (system and loop.first) -%}
            {{- "<|im_start|>" -}}{{- message.role -}}{{- "\n" -}}{{- text(message.content) -}}{{- "<|im_end|>\n" -}}
        {%- endif -%}
    {%- else -%}
        {{- raise_exception("this template has no role " ~ message.role) -}}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- "<|im_start|>assistant\n" -}}{%- endif -%}
"""


def sections(phrases: str) -> dict[str, str]:
    """What stands below each `== heading`, long lines joined."""
    parts = re.split(r"^== (.+)\n", re.sub(r"\n  (?=\S)", " ", phrases), flags=re.MULTILINE)
    return {heading: body.strip() for heading, body in zip(parts[1::2], parts[2::2], strict=True)}


PHRASES = sections((HERE / "phrases.txt").read_text(encoding="utf-8"))


def entries(heading: str) -> dict[str, str]:
    """The `name: text` lines below a heading."""
    return dict(line.split(": ", 1) for line in PHRASES[heading].splitlines())


def facts(rng: Random) -> dict[str, object]:
    """What one conversation is about: two entries of each word list, and numbers that agree with each other."""
    drawn: dict[str, object] = {}
    for name, words in entries("words").items():
        for slot, word in zip((name, name + "2"), rng.sample(words.split("; "), 2), strict=True):
            drawn[slot], _, drawn[slot + "_is"] = word.partition(" = ")
    n, m, price, saving = (rng.randint(*span) for span in ((2, 9), (3, 12), (12, 89), (3, 30)))
    hour, minutes, shelf = rng.randint(7, 10), rng.randint(11, 59), rng.choice("ABCDEFG") + str(rng.randint(1, 40))
    drawn |= {"n": n, "m": m, "both": n + m, "hour": hour, "close": hour + rng.randint(7, 11), "minutes": minutes}
    drawn |= {"price": price, "twice": 2 * price, "saving": saving, "dear": price + saving, "shelf": shelf}
    drawn |= {"km": 3 * m, "miles": round(1.8641 * m, 1), "km2": 7 * n + 50, "miles2": round(4.3496 * n + 31.0686, 1)}
    return drawn | dict(zip(("number", "order", "order2"), rng.sample(range(10000, 99999), 3), strict=True))


def speak(rng: Random, text: str, drawn: dict[str, object], alike: float = 0.0) -> str:
    """A phrase with its slots filled and its alternatives chosen: those in brackets by `alike`, 0 <= alike < 1."""
    while choice := re.search(r"[(\[]([^()\[\]]*\|[^()\[\]]*)[)\]]", text):
        options = choice[1].split("|")
        option = options[int(alike * len(options))] if choice[0][0] == "[" else rng.choice(options)
        text = text[: choice.start()] + option + text[choice.end() :]
    # One space where an empty alternative left two, none after Chinese punctuation; indentation after ¶ stays.
    said = re.sub("(?<=[^ ¶]) +(?= )|(?<=[，。！？]) ", "", Template(text).substitute(drawn))
    return said.strip().replace("¶", "\n")


def call_tool(messages: list[dict], spoken: str, same_turn: bool) -> None:
    """Adds a call, in a turn of its own or in the assistant's last one, and what the tool returned."""
    name, arguments, result = re.fullmatch(r"(\w+) (\{.*\}) = (\{.*\})", spoken).groups()
    call_id = f"call_{1 + sum(message['role'] == 'tool' for message in messages)}"
    if not same_turn:
        messages.append({"role": "assistant", "content": "", "tool_calls": []})
    caller = next(message for message in reversed(messages) if message["role"] == "assistant")
    function = {"name": name, "arguments": json.loads(arguments)}
    caller["tool_calls"].append({"id": call_id, "type": "function", "function": function})
    messages.append({"role": "tool", "tool_call_id": call_id, "name": name, "content": result})


def perform(rng: Random, scene: str, drawn: dict[str, object], messages: list[dict], opening: str) -> None:
    """Adds the turns of a scene, the first of them with an opening."""
    alike = rng.random()
    for line in scene.splitlines():
        mark, text = line.split(" ", 1)
        spoken = speak(rng, f"{opening} {text}" if mark == "*" else text, drawn, alike)
        if mark in "@&":
            call_tool(messages, spoken, same_turn=mark == "&")
        elif mark in "*>":
            messages.append({"role": "user", "content": spoken})
        else:
            messages.append({"role": "assistant", "content": spoken} | ({"weight": 0} if mark == "~" else {}))


def conversation(rng: Random, language: str, subject: str, calls: bool) -> list[dict]:
    """Scenes in random order, with two to eight turns of the assistant. The first one has a tool call, or none has."""
    scenes = PHRASES[f"scenes {language} {subject}"].split("\n\n")
    if language == "en" and subject != "general":
        scenes.append(rng.choice(PHRASES["scenes en any"].split("\n\n")))
    rng.shuffle(scenes)
    first = next(scene for scene in scenes if ("\n@ " in scene) == calls)
    others = [scene for scene in scenes if scene is not first and (calls or "\n@ " not in scene)]

    drawn, goal = facts(rng), rng.randint(2, 5)
    system = {"role": "system", "content": speak(rng, entries("system")[subject], drawn)}
    messages = [system] if rng.random() < 0.8 else []

    def turns() -> int:
        return sum(message["role"] == "assistant" for message in messages)

    perform(rng, first, drawn, messages, entries("greeting")[language])
    while others and turns() < goal:
        perform(rng, others.pop(), drawn, messages, entries("joint")[language])
    if turns() < 8 and rng.random() < 0.5:
        perform(rng, PHRASES[f"farewell {language}"], drawn, messages, "")
    return messages


def tool_schemas(subject: str) -> list[dict]:
    """The subject's tools as OpenAI describes functions."""
    schemas = []
    for name, line in entries(f"tools {subject}").items():
        description, _, parameters = line.partition(". ")
        properties = {key: {"type": kind} for key, kind in (pair.split() for pair in parameters.split(", "))}
        schema = {"type": "object", "properties": properties, "required": list(properties)}
        function = {"name": name, "description": description + ".", "parameters": schema}
        schemas.append({"type": "function", "function": function})
    return schemas


def support(rng: Random) -> list[dict]:
    """400 conversations in OpenAI's schema, half of them with tool calls, a sixth with tools that stay unused."""
    english = [("en", "shop"), ("en", "library"), ("en", "transit")]
    records = []
    for number in range(1, 401):
        language, subject = rng.choice(english * 7 + [("de", "transit"), ("fr", "library"), ("zh", "shop")])
        calls = rng.random() < 0.5
        messages = conversation(rng, language, subject, calls)
        for message in messages:
            if message["role"] == "user" and rng.random() < 0.012:
                parts = re.split(r"(?<=[.?!])(?= )", message["content"], maxsplit=1)
                message["content"] = [{"type": "text", "text": part} for part in parts]
        tools = {"tools": tool_schemas(subject)} if calls or rng.random() < 0.33 else {}
        records.append({"id": f"support-{number:04}", "messages": messages} | tools)
    return records


def sharegpt(rng: Random) -> list[dict]:
    """120 conversations in ShareGPT's schema."""
    records = []
    for number in range(1, 121):
        messages = conversation(rng, "en", "general", calls=False)
        said = [{"from": SHAREGPT_ROLES[message["role"]], "value": message["content"]} for message in messages]
        records.append({"id": f"general-{number:03}", "conversations": said})
    return records


def arithmetic(rng: Random) -> list[dict]:
    """80 word problems with worked answers, as prompts and completions."""
    records = []
    for _ in range(80):
        a, b, c = rng.randint(20, 90), rng.randint(10, 19), rng.randint(3, 9)
        problems = f"""
$person has {a} (stamps|marbles) and gives {b} (to $person2|away). How many are left? = {a} - {b} = {a - b} are left.
(A class|A choir) of {a} goes (to $town|to the sea) in minibuses with {b} seats. How many minibuses does it need? =
  {a} / {b} is {a // b} with {a % b} left over{", who need one more" if a % b else ""}: {-(-a // b)} minibuses.
(At the fair|At $stop), one (ticket|sandwich) costs €{c}. $person buys {b} and pays €200. What is the change? =
  {b} of them cost {b} x {c} = €{b * c}. The change is 200 - {b * c} = €{200 - b * c}.
$person (cycles|paddles) {c * b} km in {c} hours. How far is that in one hour? = {c * b} / {c} = {b} km.
A $item costs €{a}. On $day the price falls by {b}%. What is the new price? =
  {b}% of {a} is {a * b / 100:.2f}.¶{a} - {a * b / 100:.2f} = €{a - a * b / 100:.2f}.
A garden is {a} m long and {b} m wide. (How long is the fence around it|How much fence does $person need)? =
  Two long sides: 2 x {a} = {2 * a} m.¶Two short sides: 2 x {b} = {2 * b} m.¶Together: {2 * a + 2 * b} m.
$person shares {a} plums among {c} (children|parrots) and keeps the rest. How many are that? =
  {a} = {c} x {a // c} + {a % c}, so {a % c} remain for $person.
(The film|The match|Choir practice) starts at 17:{b} and lasts {a + 60} minutes. When does it end? =
  {a + 60} minutes are {1 + a // 60} h and {a % 60} min.¶17:{b} plus {1 + a // 60} h is {18 + a // 60}:{b}.¶Plus
  {a % 60} min it is {18 + (a + b) // 60}:{(a + b) % 60:02}.
"""
        problem = rng.choice(problems.strip().replace("\n  ", " ").split("\n"))
        question, answer = speak(rng, problem, facts(rng)).split("? = ")
        records.append({"prompt": f"Question: {question}?\nAnswer:", "completion": f" {answer}"})
    return records


def strings(value: object) -> list[str]:
    """Every text in a record, and its tools as the chat template prints them."""
    if isinstance(value, dict):
        value = [json.dumps(entry) if key == "tools" else entry for key, entry in value.items()]
    return [text for entry in value for text in strings(entry)] if isinstance(value, list) else [str(value)]


def train(texts: list[str]) -> Tokenizer:
    """A byte-level BPE of 4096 tokens that adds nothing to a text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    options = {"special_tokens": SPECIAL_TOKENS, "initial_alphabet": alphabet, "show_progress": False}
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=4096, **options))
    return tokenizer


def soiled_support(records: list[dict]) -> str:
    """JSON lines with three malformed records, two without an answer, two blank lines and one CRLF."""
    for number in (88, 301):
        said = records[number - 1]["messages"]
        records[number - 1]["messages"] = [next(message for message in said if message["role"] == "user")]
    records[122]["messages"] = "User: Is the shop open? Assistant: Until six."
    photo = {"type": "image_url", "image_url": {"url": "https://fernway.example/torn-strap.jpg"}}
    records[210]["messages"].insert(1, {"role": "user", "content": [photo]})
    written = [json.dumps(record, ensure_ascii=False) for record in records]
    written[56] = written[56][: len(written[56]) // 2]
    written[149] += "\r"
    written[199] += "\n"
    written[299] += "\n"
    return "\n".join(written) + "\n"


def soiled_sharegpt(records: list[dict]) -> str:
    """A JSON array, other letters than ASCII escaped, with one malformed record and one without an answer."""
    records[30]["conversations"].insert(1, {"from": "narrator", "value": "A kettle whistles in the background."})
    said = records[76]["conversations"]
    records[76]["conversations"] = [next(turn for turn in said if turn["from"] == "human")]
    return "[\n" + ",\n".join(map(json.dumps, records)) + "\n]\n"


def soiled_arithmetic(records: list[dict]) -> str:
    """JSON lines with one malformed record."""
    del records[39]["completion"]
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


def main() -> None:
    rng = Random("chatmill")
    chats, general, problems = support(rng), sharegpt(rng), arithmetic(rng)
    tokenizer = train(strings([chats, general, problems]))
    files = {
        "chats/support.jsonl": soiled_support(chats),
        "chats/sharegpt.json": soiled_sharegpt(general),
        "chats/arithmetic.jsonl": soiled_arithmetic(problems),
        "tokenizer/tokenizer.json": tokenizer.to_str() + "\n",
        "tokenizer/tokenizer_config.json": json.dumps(CONFIG, indent=2) + "\n",
        "tokenizer/chat_template.jinja": CHAT_TEMPLATE.lstrip(),
    }
    for name, text in files.items():
        path = HERE / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()

"""The datasets that are used most: their records build with no option, or the error names the one that they need.

The datasets cannot be had here. A small generator makes twenty records of each, after the columns and the types of the
real ones (their cards on the Hub). What a template prints for them, and what is trained on, is compared with what
transformers makes of messages that were converted by hand.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pytest
from transformers import AutoTokenizer

from support.chats import SPLIT, assistant, render_config, system, user
from support.paths import ROOT, TOKENIZER
from transforms.model.batches import Records
from transforms.model.examples import Record
from transforms.model.outcomes import Outcomes
from transforms.steps.parse import Parser
from transforms.steps.render import Renderer

# Prints all that the conversations have, with markers of what is trained on.
TEMPLATE = """\
{%- if tools %}<tools>{{ tools | tojson }}</tools>{% endif -%}
{%- if enable_thinking is defined %}<thinking {{ enable_thinking }}>{% endif -%}
{%- for m in messages -%}
{%- if m.role == 'assistant' -%}
{{ '<|im_start|>assistant\\n' }}{% generation %}{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content or '' }}{% for call in m.tool_calls or [] %}<tool_call>{{ call.function | tojson }}</tool_call>{% endfor %}{{ '<|im_end|>\\n' }}{% endgeneration %}
{%- else -%}
{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif -%}"""  # noqa: E501

Maker = Callable[[int, str, str], dict[str, Any]]
Converted = tuple[list[dict[str, Any]], list[Any] | None, dict[str, Any]]


class Dataset(NamedTuple):
    """A dataset: makes a record of a number, a question and an answer; and its conversation, converted by hand."""

    name: str
    record: Maker
    converted: Callable[[int, str, str], Converted]
    option: Mapping[str, Any] = {}  # that it needs, and that the error names


def tool(text: str) -> dict[str, Any]:
    return {"role": "tool", "content": text}


def plain(i: int, q: str, a: str) -> Converted:
    return [user(q), assistant(a)], None, {}


def with_system(text: str) -> Callable[[int, str, str], Converted]:
    return lambda i, q, a: ([system(text), user(q), assistant(a)], None, {})


def reasoned(i: int, q: str, a: str) -> Converted:
    return [user(q), assistant(a, reasoning_content=f"Thought {i}.")], None, {}


FUNCTION = {
    "name": "get_sum",
    "description": "Adds two numbers",
    "parameters": {"type": "object", "properties": {"left": {"type": "integer"}, "right": {"type": "integer"}}},
}
TOOLS = [{"type": "function", "function": FUNCTION}]


def call(i: int) -> dict[str, Any]:
    return {"name": "get_sum", "arguments": {"left": i, "right": 1}}


def calls(i: int) -> list[dict[str, Any]]:
    return [{"type": "function", "function": call(i)}]


def called(i: int, q: str, a: str) -> Converted:
    return [user(q), assistant("", tool_calls=calls(i)), tool(str(i + 1)), assistant(a)], TOOLS, {}


def chat(q: str, a: str) -> list[dict[str, Any]]:
    return [user(q), assistant(a)]


def sharegpt(q: str, a: str) -> list[dict[str, Any]]:
    return [{"from": "human", "value": q}, {"from": "gpt", "value": a}]


def openai_calls(i: int, q: str, a: str) -> list[dict[str, Any]]:
    """As Arrow has them: all fields in each message."""
    nothing = {"name": None, "tool_call_id": None, "tool_calls": None}
    made = {"id": f"c{i}", "type": "function", "function": {**call(i), "arguments": json.dumps(call(i)["arguments"])}}
    return [
        {**nothing, **user(q)},
        {**nothing, **assistant(""), "tool_calls": [made]},
        {**nothing, **tool(str(i + 1)), "tool_call_id": f"c{i}", "name": "get_sum"},
        {**nothing, **assistant(a)},
    ]


HERMES = f"You are a function calling AI model. <tools> {json.dumps(TOOLS)} </tools>"
PAIR = {"schema": "chosen"}


def formatter(name: str) -> dict[str, Any]:
    return {"formatter": f"examples/formatters.py:{name}"}


def marked(q: str, a: str) -> str:
    return f"\n\nHuman: {q}\n\nAssistant: {a}"


def in_parts(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    nothing = {"image": None, "mimeType": None}
    return [{**m, "content": [{"type": "text", "text": m["content"], **nothing}]} for m in messages]


DATASETS = [
    Dataset("allenai/tulu-3-sft-mixture", lambda i, q, a: {"id": str(i), "messages": chat(q, a), "source": "x"}, plain),
    Dataset(
        "HuggingFaceH4/no_robots",
        lambda i, q, a: {"prompt": q, "prompt_id": str(i), "messages": chat(q, a), "category": "Open QA"},
        plain,
    ),
    Dataset("HuggingFaceTB/smoltalk", lambda i, q, a: {"messages": chat(q, a), "source": "smol-magpie-ultra"}, plain),
    Dataset(
        "HuggingFaceH4/ultrachat_200k",
        lambda i, q, a: {"prompt": q, "prompt_id": str(i), "messages": chat(q, a)},
        plain,
    ),
    Dataset(
        "LDJnr/Capybara",
        lambda i, q, a: {"source": "Airoboros", "conversation": [{"input": q, "output": a}]},
        plain,
    ),
    Dataset(
        "open-r1/OpenR1-Math-220k",
        lambda i, q, a: {
            **{"problem": q, "solution": f"Solved: {a}", "answer": a, "problem_type": "Algebra", "uuid": str(i)},
            **{"generations": [a, f"Another {i}."], "correctness_count": 2, "messages": chat(q, a)},
        },
        plain,
    ),
    Dataset(
        "open-r1/codeforces-cots",
        lambda i, q, a: {"id": str(i), "description": q, "prompt": q, "generation": a, "messages": chat(q, a)},
        plain,
    ),
    Dataset(
        "open-r1/Mixture-of-Thoughts",
        lambda i, q, a: {"messages": chat(q, a), "num_tokens": 9, "source": "code"},
        plain,
    ),
    Dataset(
        "PrimeIntellect/SYNTHETIC-2-SFT-verified",
        lambda i, q, a: {"problem_id": str(i), "task_type": "verifiable_math", "reward": 1.0, "messages": chat(q, a)},
        plain,
    ),
    Dataset(
        "teknium/OpenHermes-2.5",
        lambda i, q, a: {
            **{"conversations": sharegpt(q, a), "source": "airoboros2.2", "category": "trivia", "system_prompt": None},
            **{"idx": None, "hash": None, "topic": None, "views": None, "skip_prompt_formatting": None, "id": None},
        },
        plain,
    ),
    Dataset(
        "open-thoughts/OpenThoughts3-1.2M",
        lambda i, q, a: {"difficulty": 7, "source": "math", "domain": "math", "conversations": sharegpt(q, a)},
        plain,
    ),
    Dataset(
        "Magpie-Align/Magpie-Pro-300K-Filtered",
        lambda i, q, a: {"uuid": str(i), "instruction": q, "response": a, "conversations": sharegpt(q, a)},
        plain,
    ),
    Dataset(
        "BAAI/Infinity-Instruct",
        lambda i, q, a: {
            **{"id": i, "conversations": sharegpt(q, a), "langdetect": "en", "source": "x", "reward": 3.2},
            "label": {"ability_en": ["mathematical calculation"], "cate_ability_zh": ["数学"]},
        },
        plain,
    ),
    Dataset(
        "open-thoughts/OpenThoughts-114k",
        lambda i, q, a: {"system": "Be thorough.", "conversations": sharegpt(q, a)},
        with_system("Be thorough."),
    ),
    Dataset(
        "bespokelabs/Bespoke-Stratos-17k",
        lambda i, q, a: {
            "system": "Think long.",
            "conversations": [{"from": "user", "value": q}, {"from": "assistant", "value": a}],
        },
        with_system("Think long."),
    ),
    Dataset(
        "Salesforce/APIGen-MT-5k",
        lambda i, q, a: {
            "conversations": [
                {"from": "human", "value": q},
                {"from": "function_call", "value": json.dumps(call(i))},
                {"from": "observation", "value": str(i + 1)},
                {"from": "gpt", "value": a},
            ],
            "tools": json.dumps([FUNCTION]),
            "system": "Follow the policy.",
        },
        lambda i, q, a: ([system("Follow the policy."), *called(i, q, a)[0]], TOOLS, {}),
    ),
    Dataset(
        "SWE-bench/SWE-smith-trajectories",
        lambda i, q, a: {"messages": json.dumps(chat(q, a)), "instance_id": f"x__{i}", "resolved": True, "model": "m"},
        plain,
    ),
    Dataset(
        "SWE-Gym/OpenHands-SFT-Trajectories",
        lambda i, q, a: {"messages": [{"content": q, "role": "user"}, {"content": a, "role": "assistant"}]},
        plain,
    ),
    Dataset(
        "nvidia/When2Call",
        lambda i, q, a: {"tools": [json.dumps(FUNCTION)], "messages": chat(q, a)},
        lambda i, q, a: (chat(q, a), TOOLS, {}),
    ),
    Dataset(
        "a-m-team/AM-DeepSeek-R1-Distilled-1.4M",
        lambda i, q, a: {
            "messages": [
                {**user(q), "info": {"source": "x", "reference_answer": None}},
                {**assistant(f"<think>T{i}</think>{a}"), "info": {"think_content": f"T{i}", "answer_content": a}},
            ]
        },
        lambda i, q, a: (chat(q, f"<think>T{i}</think>{a}"), None, {}),
    ),
    Dataset(
        "meta-math/MetaMathQA",
        lambda i, q, a: {"query": q, "response": a, "type": "GSM_Rephrased", "original_question": f"First said {i}"},
        plain,
    ),
    Dataset(
        "openbmb/UltraInteract_sft",
        lambda i, q, a: {"task": "Math_CoT", "dataset": "gsm8k", "instruction": q, "response": a, "parent_id": str(i)},
        plain,
    ),
    Dataset(
        "trl-lib/kto-mix-14k",
        lambda i, q, a: {"prompt": [user(q)], "completion": [assistant(a)], "label": True},
        plain,
    ),
    Dataset("zai-org/LongAlign-10k", lambda i, q, a: {"messages": chat(q, a), "length": 12}, plain),
    Dataset(
        "nvidia/Nemotron-Post-Training-Dataset-v1",
        lambda i, q, a: {
            **{"uuid": str(i), "license": "CC BY 4.0", "generator": "DeepSeek-R1-0528", "version": "1.0.0"},
            **{"category": "math", "reasoning": "on", "messages": chat(q, a), "metadata": '{"expected_answer": "9"}'},
        },
        lambda i, q, a: (chat(q, a), None, {"enable_thinking": True}),
    ),
    Dataset(
        "nvidia/Nemotron-Post-Training-Dataset-v2",
        lambda i, q, a: {"uuid": str(i), "category": "chat", "reasoning": "off", "messages": chat(q, a)},
        lambda i, q, a: (chat(q, a), None, {"enable_thinking": False}),
    ),
    Dataset(
        "HuggingFaceTB/smoltalk2",
        lambda i, q, a: {
            "messages": chat(q, a),
            "chat_template_kwargs": {
                **{"custom_instructions": "", "enable_thinking": False, "python_tools": []},
                "xml_tools": [json.dumps(TOOLS[0])],
            },
            "source": "x",
        },
        lambda i, q, a: (chat(q, a), TOOLS, {"enable_thinking": False}),
    ),
    Dataset(
        "NousResearch/hermes-function-calling-v1",
        lambda i, q, a: {
            "id": str(i),
            "conversations": [
                {"from": "system", "value": HERMES},
                {"from": "human", "value": q},
                {"from": "gpt", "value": f"<tool_call>\n{json.dumps(call(i))}\n</tool_call>"},
                {"from": "tool", "value": f"<tool_response>\n{i + 1}\n</tool_response>"},
                {"from": "gpt", "value": a},
            ],
            "tools": json.dumps(TOOLS),
            "category": "Sums",
        },
        lambda i, q, a: ([system(HERMES), *called(i, q, a)[0]], None, {}),
        formatter("hermes"),
    ),
    Dataset(
        "Team-ACE/ToolACE",
        lambda i, q, a: {
            "system": f"Here is a list of functions: {json.dumps([FUNCTION])}",
            "conversations": [{"from": "user", "value": q}, {"from": "assistant", "value": f"[get_sum(left={i})]"}],
        },
        lambda i, q, a: (
            [system(f"Here is a list of functions: {json.dumps([FUNCTION])}"), *chat(q, f"[get_sum(left={i})]")],
            None,
            {},
        ),
    ),
    Dataset(
        "allenai/Dolci-Instruct-SFT",
        lambda i, q, a: {
            "id": str(i),
            "messages": [
                {**system("You call functions."), "functions": json.dumps([FUNCTION]), "function_calls": None},
                {**user(q), "functions": None, "function_calls": None},
                {**assistant(""), "functions": None, "function_calls": f"get_sum(left={i}, right=1)"},
                {"role": "environment", "content": str(i + 1), "functions": None, "function_calls": None},
                {**assistant(a), "functions": None, "function_calls": None},
            ],
            "source": "x",
        },
        lambda i, q, a: ([system("You call functions."), *called(i, q, a)[0]], TOOLS, {}),
    ),
    Dataset(
        "lmsys/lmsys-chat-1m",
        lambda i, q, a: {
            **{"conversation_id": str(i), "model": "vicuna-13b", "conversation": chat(q, a), "turn": 1},
            **{"language": "English", "openai_moderation": [{"flagged": False}], "redacted": False},
        },
        plain,
    ),
    Dataset(
        "allenai/WildChat-1M",
        lambda i, q, a: {
            "conversation_hash": str(i),
            "conversation": [
                {**user(q), "country": "Chile", "hashed_ip": "x", "language": "English", "toxic": False},
                {**assistant(a), "country": None, "hashed_ip": None, "language": "English", "toxic": False},
            ],
            "turn": 1,
        },
        plain,
    ),
    Dataset(
        "nebius/SWE-rebench-openhands-trajectories",
        lambda i, q, a: {
            **{"trajectory_id": str(i), "repo": "x/y", "trajectory": openai_calls(i, q, a), "tools": TOOLS},
            **{"model_patch": "diff --git a b", "exit_status": "submit", "resolved": 1},
        },
        called,
    ),
    Dataset(
        "nvidia/SWE-Zero-openhands-trajectories",
        lambda i, q, a: {"trajectory_id": str(i), "trajectory": openai_calls(i, q, a), "model_patch": "diff"},
        lambda i, q, a: (called(i, q, a)[0], None, {}),
    ),
    Dataset(
        "nebius/SWE-agent-trajectories",
        lambda i, q, a: {
            **{"instance_id": str(i), "model_name": "m", "target": True, "exit_status": "submitted"},
            "trajectory": [
                {
                    "cutoff_date": "01.01.2023",
                    "mask": False,
                    "role": "system",
                    "system_prompt": "Fix it.",
                    "text": None,
                },
                {"cutoff_date": None, "mask": False, "role": "user", "system_prompt": None, "text": q},
                {"cutoff_date": None, "mask": False, "role": "ai", "system_prompt": None, "text": a},
            ],
        },
        with_system("Fix it."),
    ),
    Dataset(
        "Agent-Ark/Toucan-1.5M",
        lambda i, q, a: {
            **{"uuid": str(i), "subset_name": "single-turn-original", "question": q, "target_tools": "sum, product"},
            **{"messages": json.dumps(openai_calls(i, q, a)), "available_tools": json.dumps(TOOLS)},
            **{"question_quality_assessment": '{"score": 5}', "metadata": "{}"},
        },
        called,
    ),
    Dataset(
        "rollouts of verifiers",
        lambda i, q, a: {
            **{"example_id": i, "prompt": [user(q)], "completion": [assistant(a)], "answer": f"Answer {i}"},
            **{"reward": 1.0, "tool_defs": TOOLS},
        },
        lambda i, q, a: (chat(q, a), TOOLS, {}),
    ),
    Dataset(
        "Salesforce/xlam-function-calling-60k",
        lambda i, q, a: {"id": i, "query": q, "answers": json.dumps([call(i)]), "tools": json.dumps([FUNCTION])},
        lambda i, q, a: ([user(q), assistant("", tool_calls=calls(i))], TOOLS, {}),
    ),
    Dataset(
        "nvidia/Llama-Nemotron-Post-Training-Dataset",
        lambda i, q, a: {
            **{"input": [user(q)], "output": a, "category": "math", "license": "cc-by-4.0", "reasoning": "off"},
            **{
                "generator": "m",
                "used_in_training": "Ultra",
                "version": "v1",
                "system_prompt": "detailed thinking off",
            },
        },
        lambda i, q, a: ([system("detailed thinking off"), *chat(q, a)], None, {"enable_thinking": False}),
    ),
    Dataset(
        "nvidia/OpenMathReasoning",
        lambda i, q, a: {
            **{"expected_answer": f"{i}", "problem_type": "has_answer_extracted", "problem_source": "aops"},
            **{"generation_model": "DeepSeek-R1", "pass_rate_72b_tir": "0.5", "problem": q, "generated_solution": a},
        },
        plain,
    ),
    Dataset(
        "CohereLabs/aya_dataset",
        lambda i, q, a: {"inputs": q, "targets": a, "language": "English", "annotation_type": "original-annotations"},
        plain,
    ),
    Dataset(
        "simplescaling/s1K-1.1",
        lambda i, q, a: {
            **{"solution": f"Other {i}", "question": q, "cot_type": "math", "source_type": "x", "metadata": "{}"},
            **{"gemini_thinking_trajectory": "Hm.", "gemini_attempt": f"It may be {i}."},
            **{"deepseek_thinking_trajectory": f"Thought {i}.", "deepseek_attempt": a, "deepseek_grade": "Yes"},
        },
        reasoned,
        formatter("s1k"),
    ),
    Dataset(
        "facebook/natural_reasoning",
        lambda i, q, a: {
            **{"question": q, "reference_answer": f"Reference {i}"},
            "responses": [{"response_model": "Llama3.3-70B-Instruct", "response": a}],
        },
        plain,
        formatter("natural_reasoning"),
    ),
    Dataset(
        "GeneralReasoning/GeneralThought-430K",
        lambda i, q, a: {
            **{"question_id": i, "question_url": "x", "question": q, "prev_messages": None, "reference_answer": "R"},
            **{"model_name": "R1", "model_answer": a, "model_reasoning": f"Thought {i}.", "task": "Algebra"},
        },
        reasoned,
    ),
    Dataset(
        "cognitivecomputations/dolphin-r1",
        lambda i, q, a: {"messages": [user(q)], "reasoning": f"Thought {i}.", "answer": a, "model": "deepseek"},
        reasoned,
    ),
    Dataset("GAIR/lima", lambda i, q, a: {"conversations": [q, a], "source": "stackexchange"}, plain),
    Dataset(
        "glaiveai/glaive-function-calling-v2",
        lambda i, q, a: {
            "system": "SYSTEM: You are a helpful assistant with access to the following functions. Use them if "
            f"required -\n{json.dumps(FUNCTION, indent=4)}\n",
            "chat": f'USER: {q}\n\n\nASSISTANT: <functioncall> {{"name": "get_sum", "arguments": '
            f"'{json.dumps(call(i)['arguments'])}'}} <|endoftext|>\n\n\nFUNCTION RESPONSE: {i + 1}\n\n\n"
            f"ASSISTANT: {a} <|endoftext|>\n\n\n",
        },
        lambda i, q, a: (
            [
                system("You are a helpful assistant with access to the following functions. Use them if required"),
                *called(i, q, a)[0],
            ],
            TOOLS,
            {},
        ),
        formatter("glaive"),
    ),
    Dataset(
        "FreedomIntelligence/medical-o1-reasoning-SFT",
        lambda i, q, a: {"Question": q, "Complex_CoT": f"Thought {i}.", "Response": a},
        reasoned,
    ),
    Dataset(
        "HuggingFaceH4/ultrafeedback_binarized",
        lambda i, q, a: {
            **{"prompt": q, "prompt_id": str(i), "chosen": chat(q, a), "rejected": chat(q, "No."), "score_chosen": 8.0},
            "messages": chat(q, a),
        },
        plain,
        PAIR,
    ),
    Dataset(
        "allenai/llama-3.1-tulu-3-8b-preference-mixture",
        lambda i, q, a: {"id": str(i), "source": "x", "prompt": q, "chosen": chat(q, a), "rejected": chat(q, "No.")},
        plain,
        PAIR,
    ),
    Dataset(
        "Anthropic/hh-rlhf",
        lambda i, q, a: {"chosen": marked(q, a), "rejected": marked(q, "No.")},
        plain,
        PAIR,
    ),
    Dataset(
        "nvidia/HelpSteer3",
        lambda i, q, a: {
            **{"domain": "general", "language": "english", "context": [user(q)], "response1": "No.", "response2": a},
            **{
                "overall_preference": 2,
                "individual_preference": [{"score": 2, "reasoning": "Better", "feedback1": "x"}],
            },
        },
        plain,
        formatter("helpsteer3"),
    ),
    Dataset(
        "lmarena-ai/arena-human-preference-140k",
        lambda i, q, a: {
            **{"id": str(i), "model_a": "x", "model_b": "y", "winner": "model_a", "evaluation_order": 1},
            **{"conversation_a": in_parts(chat(q, a)), "conversation_b": in_parts(chat(q, "No."))},
        },
        plain,
        formatter("arena"),
    ),
]
RECORDS = 20


def records_of(dataset: Dataset) -> list[tuple[int, str, str]]:
    return [(i, f"What is {i}+1? Say it in {i + 2} words.", f"The sum is {i + 1}, né? 😀") for i in range(RECORDS)]


@pytest.mark.parametrize("dataset", DATASETS, ids=lambda dataset: dataset.name)
def test_a_dataset_is_read_and_its_text_and_mask_are_those_of_transformers(dataset, monkeypatch):
    monkeypatch.chdir(ROOT)
    given = records_of(dataset)
    records = [Record(i, json.dumps(dataset.record(i, q, a)).encode()) for i, q, a in given]
    batch = Records(SPLIT, 0, True, Outcomes(read=RECORDS), records)
    if dataset.option:
        refused = Parser()(batch)
        assert len(refused.outcomes.rejects) == RECORDS
        for reject in refused.outcomes.rejects:
            assert all(f"{name} {value}" in reject.detail for name, value in dataset.option.items()), reject.detail
    examples = Parser(**dataset.option)(batch)
    assert not examples.outcomes.rejects, examples.outcomes.rejects[0]
    texts = Renderer(render_config(TEMPLATE, TOKENIZER))(examples)
    assert not texts.outcomes.rejects, texts.outcomes.rejects[0]
    tokenizer = AutoTokenizer.from_pretrained(TOKENIZER)
    for text, one in zip(texts.texts, given, strict=True):
        messages, tools, arguments = dataset.converted(*one)
        expected = tokenizer.apply_chat_template(
            messages,
            tools=tools,
            chat_template=TEMPLATE,
            return_dict=True,
            return_assistant_tokens_mask=True,
            **arguments,
        )
        rendered = tokenizer.apply_chat_template(
            messages, tools=tools, chat_template=TEMPLATE, tokenize=False, **arguments
        )
        assert text.text == rendered
        encoded = tokenizer(text.text, add_special_tokens=False, return_offsets_mapping=True)
        trained = [
            int(any(first < stop and begin < last for first, last in text.spans))
            for begin, stop in encoded["offset_mapping"]
        ]
        assert encoded["input_ids"] == expected["input_ids"] and trained == expected["assistant_masks"]


def test_most_datasets_build_with_no_option():
    assert len(DATASETS) >= 40
    assert sum(not dataset.option for dataset in DATASETS) >= 36


def test_a_dataset_of_images_is_rejected_as_such():
    record = {"messages": chat("What is this?", "A cat."), "images": [{"bytes": "x", "path": "a.png"}]}
    batch = Records(SPLIT, 0, True, Outcomes(read=1), [Record(0, json.dumps(record).encode())])
    assert [reject.reason for reject in Parser()(batch).outcomes.rejects] == ["image"]

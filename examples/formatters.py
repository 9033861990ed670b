"""Formatters of known datasets and logs: `chatmill build --formatter examples/formatters.py:swe_agent ..`.

Each takes a record as it is in its dataset, and returns the record that Chatmill reads, or a list of them. Copy the one
that is closest to your data, and change it: no other code uses them.
"""

import ast
import json
import re


def swe_agent(record):
    """A trajectory of SWE-agent (*.traj): its history. Demonstrations are not trained on."""
    messages = []
    for turn in record["history"]:
        message = {"role": turn["role"], "content": turn["content"]}
        if turn["role"] == "assistant":
            thoughts = [block["thinking"] for block in turn.get("thinking_blocks") or () if block.get("thinking")]
            message["reasoning_content"] = "\n\n".join(thoughts)
            message |= {"tool_calls": turn.get("tool_calls") or [], "weight": 0 if turn.get("is_demo") else 1}
        elif turn["role"] == "tool":
            message["tool_call_id"] = (turn.get("tool_call_ids") or [None])[0]
        messages.append(message)
    return {"messages": messages}


def tau(record):
    """Results of tau-bench, each a record, or of tau2-bench, all in one: without the calls of the user's own tools."""
    if "traj" in record:
        return {"messages": record["traj"]}
    conversations = []
    for simulation in record["simulations"]:
        messages = []
        for turn in simulation["messages"]:
            if turn.get("requestor") == "user" or (turn["role"] == "user" and turn.get("tool_calls")):
                continue  # which the agent does not see
            message = {"role": turn["role"], "content": turn.get("content") or ""}
            if turn.get("tool_calls"):
                message["tool_calls"] = [
                    {key: call[key] for key in ("id", "name", "arguments")} for call in turn["tool_calls"]
                ]
            if turn["role"] == "tool":
                message["tool_call_id"] = turn["id"]
            thoughts = [block["thinking"] for block in (turn.get("raw_data") or {}).get("thinking_blocks") or ()]
            messages.append(message | ({"reasoning_content": "\n\n".join(thoughts)} if thoughts else {}))
        conversations.append({"messages": messages})
    return conversations


def verifiers(record):
    """A trace of verifiers or prime-rl: each path of its nodes. What the model did not sample is not trained on."""
    nodes, conversations, seen = record["nodes"], [], set()
    inner = {node.get("parent") for node in nodes}
    for leaf in reversed([number for number in range(len(nodes)) if number not in inner]):
        path = [leaf]
        while (parent := nodes[path[0]].get("parent")) is not None:
            path.insert(0, parent)
        messages = [dict(nodes[number]["message"]) for number in path]
        for number, message in zip(path, messages, strict=True):
            if message["role"] == "assistant" and (number in seen or not nodes[number].get("sampled", True)):
                message["weight"] = 0
        seen.update(path)  # what two paths share is trained on once
        conversations.append({"messages": messages, "tools": record.get("tools")})
    return conversations


def hermes(record):
    """Hermes Agent, NousResearch/hermes-function-calling-v1: calls in tags. The system message has the tools."""
    messages = []
    for turn in record["conversations"]:
        role, text = {"human": "user", "gpt": "assistant"}.get(turn["from"], turn["from"]), turn["value"]
        if role == "tool":
            answers = re.findall(r"<tool_response>(.*?)</tool_response>", text, re.DOTALL) or [text]
            messages += [{"role": "tool", "content": answer.strip()} for answer in answers]
            continue
        message = {"role": role, "content": text.strip()}
        if role == "assistant":
            thought, said = re.fullmatch(r"(?:\s*<think>(.*?)</think>)?(.*)", text, re.DOTALL).groups()
            calls = [_decoded(call) for call in re.findall(r"<tool_call>(.*?)</tool_call>", said, re.DOTALL)]
            message = {"role": role, "content": said.partition("<tool_call>")[0].strip(), "tool_calls": calls}
            message["reasoning_content"] = (thought or "").strip()
        messages.append(message)
    return {"messages": messages}


def vercel(record):
    """UI messages of Vercel's AI SDK: parts with text, reasoning, and calls with their results."""
    messages = []
    for turn in _dialog(record):
        answers = []
        messages.append({"role": turn["role"], "content": ""})
        for part in turn["parts"]:
            kind, call = part["type"], part.get("toolInvocation", part)
            if answers and "toolCallId" not in call:  # the next step
                messages += [*answers, {"role": turn["role"], "content": ""}]
                answers = []
            if kind == "text":
                messages[-1]["content"] += part["text"]
            elif kind == "reasoning":
                thought = messages[-1].get("reasoning_content", "")
                messages[-1]["reasoning_content"] = thought + part.get("text", part.get("reasoning"))
            elif "toolCallId" in call:
                id, name = call["toolCallId"], call.get("toolName") or kind.removeprefix("tool-")
                made = {"id": id, "name": name, "arguments": call.get("args", call.get("input"))}
                messages[-1].setdefault("tool_calls", []).append(made)
                result = call.get("result", call.get("output"))
                text = result if isinstance(result, str) else json.dumps(result)
                answers.append({"role": "tool", "tool_call_id": id, "content": text})
            elif kind not in ("step-start", "source-url", "source-document"):
                raise ValueError(f"a part of type {kind}")
        messages += answers
    return {**record, "messages": messages}


def langchain(record):
    """Messages of LangChain, as `messages_to_dict`, `model_dump` or `dumps` write them."""
    roles = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool"}
    messages = []
    for turn in _dialog(record):
        fields = turn.get("kwargs") or turn.get("data") or turn
        kind = turn["id"][-1] if "kwargs" in turn else turn["type"]  # HumanMessage, AIMessageChunk, human ..
        role = roles[kind.removesuffix("Chunk").removesuffix("Message").lower()]
        kept = {key: fields[key] for key in ("content", "tool_calls", "tool_call_id", "name") if fields.get(key)}
        messages.append({"content": "", **kept, "role": role})
    return {**record, "messages": messages}


def roles_as_keys(record):
    """Dialogs that are written by hand: [{"user": "2+2?"}, {"assistant": "4"}]."""
    return {"messages": [{"role": role, "content": text} for turn in _dialog(record) for role, text in turn.items()]}


def cohere(record):
    """Logs of Cohere's Chat API: the history, a message and its response."""
    roles = {"USER": "user", "CHATBOT": "assistant", "SYSTEM": "system"}
    messages = [{"role": "system", "content": record["preamble"]}] if record.get("preamble") else []
    messages += [{"role": roles[turn["role"]], "content": turn["message"]} for turn in record["chat_history"]]
    messages += [{"role": "user", "content": record["message"]}, {"role": "assistant", "content": record["response"]}]
    return {"messages": messages}


def batch(record):
    """Lines for OpenAI's Batch API: the body of the request, with its answer if the line has a response, too."""
    messages = record["body"]["messages"]
    if record.get("response"):
        messages = [*messages, record["response"]["body"]["choices"][0]["message"]]
    return {"messages": messages, "tools": record["body"].get("tools")}


def glaive(record):
    """glaiveai/glaive-function-calling-v2: functions in the text of `system`, and calls after <functioncall>."""
    system, _, functions = record["system"].strip().removeprefix("SYSTEM: ").partition(" -\n")
    messages = [{"role": "system", "content": system}]
    turns = re.split(r"(?:\A\s*|\n\n)(USER|ASSISTANT|FUNCTION RESPONSE): ?", record["chat"])[1:]
    for speaker, text in zip(turns[::2], turns[1::2], strict=True):
        role = {"USER": "user", "ASSISTANT": "assistant", "FUNCTION RESPONSE": "tool"}[speaker]
        said, has_call, call = text.strip().removesuffix("<|endoftext|>").rstrip().partition("<functioncall>")
        messages.append({"role": role, "content": said.strip()})
        if has_call:
            name, given = re.fullmatch(r'\s*{"name": "(.*?)", "arguments": \'?(.*?)\'?}\s*', call, re.DOTALL).groups()
            messages[-1]["tool_calls"] = [{"name": name, "arguments": given.replace("\\'", "'")}]
    tools = [json.loads(function) for function in re.split(r"\n\s*\n(?=\{)", functions.strip()) if function]
    return {"messages": messages, "tools": [tool for tool in tools if tool]}


def ultrachat(record):
    """stingning/ultrachat: a list of texts, of the user and the assistant in turn."""
    roles = ("user", "assistant")
    return {"messages": [{"role": roles[i % 2], "content": text} for i, text in enumerate(record["data"])]}


def camel(record):
    """camel-ai/math and the like: a message and its answer."""
    return {"question": record["message_1"], "answer": record["message_2"]}


def s1k(record):
    """simplescaling/s1K, and s1K-1.1 with what DeepSeek-R1 wrote."""
    if "deepseek_attempt" in record:
        thought, answer = record["deepseek_thinking_trajectory"], record["deepseek_attempt"]
    else:
        (thought,), answer = record["thinking_trajectories"], record["attempt"]
    messages = [
        {"role": "user", "content": record["question"]},
        {"role": "assistant", "content": answer, "reasoning_content": thought},
    ]
    return {"messages": messages}


def natural_reasoning(record):
    """facebook/natural_reasoning: the first response."""
    return {"question": record["question"], "answer": record["responses"][0]["response"]}


def arena(record):
    """lmarena-ai/arena-human-preference-140k: the conversation that won. A tie drops the record."""
    conversation = {"model_a": "conversation_a", "model_b": "conversation_b"}.get(record["winner"])
    return {"messages": record[conversation]} if conversation else None


def helpsteer3(record):
    """nvidia/HelpSteer3: the response that is preferred. If none is, the record is dropped."""
    if not record["overall_preference"]:
        return None
    answer = record["response1"] if record["overall_preference"] < 0 else record["response2"]
    return {"prompt": record["context"], "completion": [{"role": "assistant", "content": answer}]}


def _dialog(record):
    """The turns of a record, under the usual names."""
    return next(record[name] for name in ("messages", "conversation", "conversations", "dialog") if name in record)


def _decoded(text):
    """Decode JSON, or what Python writes in its place."""
    try:
        return json.loads(text)
    except ValueError:
        return ast.literal_eval(text.strip())

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


def _decoded(text):
    """Decode JSON, or what Python writes in its place."""
    try:
        return json.loads(text)
    except ValueError:
        return ast.literal_eval(text.strip())

"""A formatter: makes a conversation of a prompt and its completion in plain text."""


def as_conversation(record: dict) -> dict:
    question = record["prompt"].removeprefix("Question: ").removesuffix("\nAnswer:")
    return {
        "messages": [
            {"role": "user", "content": question},
            {"role": "assistant", "content": record["completion"].strip()},
        ]
    }

"""Paths that the tests use."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
CHATS = ROOT / "examples" / "chats"
TOKENIZER = ROOT / "examples" / "tokenizer"

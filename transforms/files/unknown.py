"""What a file is that holds no records: from its first bytes, so that it is reported at once and not line by line."""

from __future__ import annotations

import re
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE

import msgspec

# After letters, what a text does not have: another file of text may begin with the same ones.
_BINARY = rb"(?=.{0,32}[\x00-\x08\x0b\x0c\x0e-\x1f])"
# How files of a kind begin, what they are, and what to do.
_MAGIC: tuple[tuple[bytes, str, str], ...] = (
    (
        rb"version https://git-lfs\.github\.com/",
        "a Git LFS pointer, not the file that it stands for",
        "Fetch it with git lfs pull.",
    ),
    (rb"PK\x03\x04.{26,60}\[Content_Types\]\.xml", "an Office document", "Save its table as CSV."),
    (rb"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an Office document", "Save its table as CSV."),
    (rb"PK(\x03\x04|\x05\x06|\x07\x08)", "a zip archive", "Unpack it."),
    (rb"7z\xbc\xaf\x27\x1c", "a 7z archive", "Unpack it."),
    (rb"Rar!\x1a\x07", "a rar archive", "Unpack it."),
    (rb"[^{\[].{256}ustar", "a tar archive", "Unpack it."),
    (rb"\x1f\x8b", "gzip", "Let its name end in .gz."),
    (rb"BZh[1-9]", "bzip2", "Let its name end in .bz2."),
    (rb"\xfd7zXZ\x00", "xz", "Let its name end in .xz."),
    (rb"(\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18)", "zstd", "Let its name end in .zst."),
    (rb"\x04\x22\x4d\x18", "lz4", "Decompress it."),
    (rb"PAR1" + _BINARY, "Parquet", "Let its name end in .parquet."),
    (rb"PARE" + _BINARY, "an encrypted Parquet file", "Decrypt it."),
    (rb"ARROW1\0|\xff\xff\xff\xff", "Arrow", "Let its name end in .arrow."),
    (rb"FEA1" + _BINARY, "Feather of version 1", "Convert it to Arrow or Parquet."),
    (rb"Obj\x01", "Avro", "Convert it to Parquet."),
    (rb"ORC" + _BINARY, "ORC", "Convert it to Parquet."),
    (rb"SQLite format 3\x00", "an SQLite database", "Export its table as CSV or JSON lines."),
    (rb".{5}\x00{3}\{\s*\"", "safetensors, the weights of a model", "Name a file of records."),
    (rb"GGUF" + _BINARY, "GGUF, the weights of a model", "Name a file of records."),
    (rb"\x93NUMPY", "a NumPy array", "Convert it to Parquet."),
    (rb"\x89HDF\r\n", "HDF5", "Convert it to Parquet."),
    (rb"\x80[\x02-\x05]", "a Python pickle", "Write its records as JSON lines."),
    (rb"%PDF-", "a PDF document", "Name a file of records."),
    (rb"\x89PNG|\xff\xd8\xff|GIF8", "an image", "Name a file of records."),
    (
        rb"(?i)\s*<(!doctype html|html|head)",
        "an HTML page, such as the error page of a download",
        "Download the file again.",
    ),
    (rb"\s*<(\?xml|error)", "an XML document, such as the error of a download", "Download the file again."),
    (rb"\x00+$", "zeros, such as a crash leaves", "Restore the file."),
)
_PATTERNS = tuple((re.compile(pattern, re.DOTALL), kind, advice) for pattern, kind, advice in _MAGIC)
_UTF_16 = re.compile(rb"(\x00[\t\n\r -~]){2}|([\t\n\r -~]\x00){2}")
_COMPRESSIONS = {"gzip": "gzip", "bz2": "bzip2", "xz": "xz", "zstd": "zstd"}
_YAML = re.compile(rb"- |[\w-]+:(\s|$)")
_CONVERT = "Convert it to JSON lines, or leave it out."
_OBJECT = re.compile(rb"^\s*\{\s*\"", re.MULTILINE)
_JSON = re.compile(rb"\s*(\{\s*\"|\[\s*\{)")
_DELIMITERS = {"tsv": b"\t", "csv": b","}
# Names between one and the same delimiter.
_NAME = rb"(?:\"[\w .:\x80-\xff-]+\"|[\w .:\x80-\xff-]+)"
_HEADER = re.compile(_NAME + rb"(?=([,;|\t]))(?:\1" + _NAME + rb")+\s*")
_SHOWN = 40


def unknown_kind(start: bytes) -> str | None:
    """Describe a file that cannot be text with records, and what to do; None if it can be.

    Args:
        start: its first bytes, after decompression.
    """
    for pattern, kind, advice in _PATTERNS:
        if pattern.match(start):
            return f"it looks like {kind}. {advice}"
    if start.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) or _UTF_16.match(start):
        return "it looks like text in UTF-16. Convert it to UTF-8."
    # JSON lines whose first line is damaged are JSON lines.
    if b"\0" in start[:64] and not _OBJECT.search(start):
        return f"it is binary, of a kind that is not known (it begins with {start[:8]!r}). Name a file of records."
    return None


def kind_of_text(start: bytes) -> str | None:
    """Describe text without a line that is a record, and what to do; None if it may be JSON lines.

    Args:
        start: the first bytes of a file that may be text.
    """
    if start.startswith((b'{"', BOM_UTF8 + b'{"')):
        return None  # most files
    lines = [line.strip() for line in start.removeprefix(BOM_UTF8).splitlines()]
    lines = [line for line in lines if line]
    if not lines:
        return None
    if any(line.startswith((b"{", b"[{")) for line in lines):
        if not lines[0].startswith(b"{'") or any(map(_is_json, lines)):
            return None
        return "it looks like Python's notation of dicts. Write them as JSON, with json.dumps."
    kind, advice = _kind_of_lines(lines)
    first = lines[0].decode(errors="replace")
    shown = first if len(first) <= _SHOWN else first[:_SHOWN] + "..."
    return f"it looks like {kind} (it begins with {shown!r}). {advice}"


def not_this_table(start: bytes, named: str) -> str | None:
    """Describe a file that is not the table that its name says, and what to do; None if it can be that table.

    Args:
        start: its first bytes, after decompression.
        named: csv or tsv.
    """
    content = start.removeprefix(BOM_UTF8)
    if _JSON.match(content):
        return f"it is not {named}: it looks like JSON. Let its name end in .json or .jsonl."
    header = content.lstrip().partition(b"\n")[0]
    found = _HEADER.fullmatch(header)
    if found is None or found[1] == _DELIMITERS[named]:
        return None
    kind = next((kind for kind, sign in _DELIMITERS.items() if sign == found[1]), None)
    advice = f"Let its name end in .{kind}." if kind else f"Convert it to {named}."
    return f"it is not {named}: the cells of its header are separated by {found[1].decode()!r}. {advice}"


def is_compressed_with(start: bytes, compression: str) -> bool:
    """Return whether the first bytes of a file show a compression."""
    kinds = (kind for pattern, kind, _ in _PATTERNS if pattern.match(start))
    return next(kinds, None) == _COMPRESSIONS[compression]


def _kind_of_lines(lines: list[bytes]) -> tuple[str, str]:
    if _is_json(lines[0]):
        return "JSON lines that are not objects", "Write each record as an object, or as a list of messages."
    for kind, sign in _DELIMITERS.items():
        counts = {line.count(sign) for line in lines[:3]}
        if len(lines) > 1 and len(counts) == 1 and 0 not in counts:
            return kind.upper(), f"Let its name end in .{kind}, or choose the format {kind}."
    if lines[0].startswith((b"# ", b"## ", b"```")):
        return "Markdown", _CONVERT
    if lines[0] in (b"---", b"%YAML") or sum(bool(_YAML.match(line)) for line in lines[:5]) > 1:
        return "YAML", _CONVERT
    return "plain text", _CONVERT


def _is_json(line: bytes) -> bool:
    try:
        msgspec.json.decode(line)
        return True
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False

"""docs/records.md and docs/output.md list the reasons for which the library rejects and drops records."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from support.paths import ROOT

# The calls that have a reason as an argument, and the position of this argument.
REJECTS = {
    "RecordError": 0,
    "Reject": 1,
    "call_user_function": 2,
    "decode_json": 1,
    "decode_several": 1,
    "_object": 1,
    "_json_list": 2,
}
DROPS = {"drops": 1, "_drops": 2, "dropped": 0, "Drop": 1, "RecordDropped": 0}


def reasons_in(source: str, callers: dict[str, int]) -> Iterator[str]:
    """Yield a regular expression for each reason that a call in a module's source has as an argument.

    Raises AssertionError for a reason that cannot be read from the source.
    """
    tree = ast.parse(source)
    assigned: dict[str, list[ast.expr]] = {node.arg: [] for node in ast.walk(tree) if isinstance(node, ast.arg)}
    modules = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
    paths = [ROOT / f"{module.replace('.', '/')}.py" for module in modules]
    imported = [ast.parse(path.read_text(encoding="utf-8")) for path in paths if path.exists()]
    for node in [*ast.walk(tree), *(node for module in imported for node in module.body)]:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    assigned.setdefault(target.id, []).append(node.value)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (position := callers.get(name_of(node.func))) is not None:
            yield from reasons_of(argument(node, "reason", position), assigned)


def name_of(function: ast.expr) -> str:
    return (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )


def argument(call: ast.Call, name: str, position: int) -> ast.expr:
    by_name = {keyword.arg: keyword.value for keyword in call.keywords}
    return by_name[name] if name in by_name else call.args[position]


def reasons_of(value: ast.expr, assigned: dict[str, list[ast.expr]]) -> Iterator[str]:
    """Yield the reasons that an expression can have. assigned: what each name is assigned; a parameter, nothing."""
    match value:
        case ast.Constant(value=str(reason)):
            yield re.escape(reason)
        case ast.JoinedStr(values=parts):
            yield "".join(re.escape(part.value) if isinstance(part, ast.Constant) else r"\w+" for part in parts)
        case ast.IfExp(body=body, orelse=otherwise):
            yield from reasons_of(body, assigned)
            yield from reasons_of(otherwise, assigned)
        case ast.Tuple(elts=elements):
            for element in elements:
                yield from reasons_of(element, assigned)
        case ast.Call(
            func=ast.Name(id="next"), args=[ast.GeneratorExp(generators=[ast.comprehension(iter=choices)]), *_]
        ):
            yield from reasons_of(choices, assigned)
        case ast.Name(id=name) if name in assigned:
            for other in assigned[name]:
                yield from reasons_of(other, assigned)
        case ast.Attribute(attr="reason" | "_reason") | ast.Subscript(slice=ast.Constant(value="reason")):
            pass  # of another error, or a parameter of the step
        case _:
            raise AssertionError(
                f"line {value.lineno}: the reason {ast.unparse(value)!r} cannot be read; use a literal"
            )


def library_reasons(callers: dict[str, int]) -> set[str]:
    return {
        reason
        for path in sorted((ROOT / "transforms").rglob("*.py"))
        for reason in reasons_in(path.read_text(), callers)
    }


def documented(page: str, heading: str) -> set[str]:
    """The words in backticks in the first column of the table below a heading."""
    text = Path(ROOT, "docs", page).read_text().partition(f"## {heading}\n")[2].partition("\n## ")[0]
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    return {word for row in rows for word in re.findall(r"`(\w+)`", row.split(" | ")[0])}


def missing(found: set[str], known: set[str]) -> list[str]:
    return sorted(reason for reason in found if not any(re.fullmatch(reason, name) for name in known))


def test_each_reason_for_a_rejection_is_in_the_documentation():
    assert not missing(library_reasons(REJECTS), documented("records.md", "Why records are rejected"))


def test_each_documented_reason_for_a_rejection_is_in_the_library():
    found = library_reasons(REJECTS)
    known = documented("records.md", "Why records are rejected")
    assert len(known) > 25
    assert not [name for name in known if not any(re.fullmatch(reason, name) for reason in found)]


def test_each_reason_for_dropping_a_record_is_in_the_documentation():
    assert not missing(library_reasons(DROPS), documented("output.md", "Why records are dropped"))

"""Write RESULTS.md and its plot from the tables in results/, which the other programs stored.

benchmarks/.peers/bin/python benchmarks/report.py          peers.txt installs matplotlib
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def main() -> None:
    tables = {path.stem: json.loads(path.read_text()) for path in sorted((HERE / "results").glob("*.json"))}
    text = [
        "# Results",
        "",
        "Written by `report.py` from the tables in `results/`. README.md shows how to measure them.",
        "",
    ]
    text += ["![Throughput and memory](results.png)", ""]
    for machine in sorted({table["machine"] for table in tables.values()}):
        text += [f"## On {machine}", ""]
        for name in sorted(tables, key=order):
            if tables[name]["machine"] == machine:
                text += [markdown(tables[name])]
    (HERE / "RESULTS.md").write_text("\n".join(text))
    plot(tables)


def order(name: str) -> tuple[int, str]:
    kinds = ("margins", "throughput", "pairs", "steps", "scaling", "planning", "growth")
    return kinds.index(name.partition("-")[0]), name


def markdown(table: dict[str, Any]) -> str:
    lines = [table["header"], ["---", *["---:"] * (len(table["header"]) - 1)], *table["rows"]]
    return f"{table['title']}\n\n" + "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def plot(tables: dict[str, Any]) -> None:
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 3.6))
    # The run with the most tools to compare.
    throughput = max((tables[name] for name in sorted(tables) if "throughput" in name), key=lambda t: len(t["rows"]))
    rates = {row[0]: float(row[3]) for row in throughput["rows"]}
    names = sorted(rates, key=lambda name: rates[name])
    left.barh(names, [rates[name] for name in names], color=["C0" if "Chatmill" in name else "C7" for name in names])
    left.bar_label(left.containers[0], fmt="%.2f", padding=3)
    left.set_xlabel("million tokens per second")
    left.set_title(throughput["title"], fontsize=9)
    left.margins(x=0.15)
    rows = [row for row in tables["scaling"]["rows"] if row[0].isdigit() and row[1:3] == ["2", ""]]
    sizes, peaks = ([float(row[column].replace(",", "")) for row in rows] for column in (3, 6))
    right.plot(sizes, peaks, "o-")
    right.set_ylim(0, 1.3 * max(peaks))
    right.set_xlabel("MB of input")
    right.set_ylabel("peak MB, all processes")
    right.set_title("memory, 2 workers", fontsize=9)
    figure.tight_layout()
    figure.savefig(HERE / "results.png", dpi=110)


if __name__ == "__main__":
    main()

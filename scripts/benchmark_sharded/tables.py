"""Tables of the benchmark's results."""

from typing import Any

from tabulate import tabulate

HEAD = "ms", "tokens/s", "to torch", "to x1", "worst error", "elements beyond"


def tables(run: dict[str, Any]) -> str:
    """Returns a table for each shape and direction, and one of steps.

    `to torch` is the ratio to loss_parallel, or to DTensor if loss_parallel has no such direction. `to x1` is the ratio to our
    own time on one device.
    """
    blocks = [f"{run['world']} x {run['device']}, torch {run['torch']}", *run["runs"]]
    for key in dict.fromkeys((cell["n_rows"], cell["n_cols"], cell["direction"]) for cell in run["cells"]):
        cells = [cell for cell in run["cells"] if (cell["n_rows"], cell["n_cols"], cell["direction"]) == key]
        blocks.append(_table(f"{key[2]} of {key[0]} x {key[1]}", cells))
    steps = []
    for each in run["steps"]:
        name = ("gradient's " if each["backward"] else "") + each["step"]
        steps.append((name, f"{each['n_rows']} x {each['n_cols']}", f"{each['us']:.1f}", f"{each['GB_per_s']:.0f}"))
    blocks.append(tabulate(steps, ("step", "of a rank", "us", "GB/s"), disable_numparse=True))
    return "\n\n".join(blocks)


def _table(title: str, cells: list[dict[str, Any]]) -> str:
    rates = {cell["provider"]: cell["tokens_per_s"] for cell in cells if "tokens_per_s" in cell}
    others = rates.get("loss_parallel", rates.get("DTensor")), rates.get("ours x1")
    rows = []
    for cell in cells:
        if "error" in cell:
            rows.append([cell["provider"], cell["error"][:60]])
            continue
        rate = cell["tokens_per_s"]
        ratios = (f"{rate / other:.2f}" if other else "-" for other in others)
        right = f"{cell['worst_error']:.2g}", f"{cell['beyond']} of {cell['elements']}"
        rows.append([cell["provider"], f"{cell['ms']:.3f}", f"{rate:.4g}", *ratios, *right])
    return tabulate(rows, (title, *HEAD), disable_numparse=True)

"""One table of what is planned, so that a change of the rules shows which plans it changes."""

import json
from pathlib import Path

from offline import table

GOLDEN = Path(__file__).parents[1] / "support" / "recorded" / "plans.json"


def test_plans_change_only_on_purpose():
    golden, planned = json.loads(GOLDEN.read_text()), table()
    changed = [f"{name}: {golden.get(name)} -> {plan}" for name, plan in planned.items() if golden.get(name) != plan]
    assert not changed, "\n".join(["if it is meant to be so, run: python scripts/record.py --plans", *changed])
    assert golden.keys() == planned.keys()

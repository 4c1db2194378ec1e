"""Calls of learning automata, for `tests.contracts.api_calls`."""

from __future__ import annotations

from freshopt import automata
from tests.contracts.api_fixtures import Call

AUTOMATA: dict[str, Call] = {
    "automata.AutomataTree": Call(
        automata.AutomataTree,
        {
            "n": 3,
            "resolution": 50,
            "polling": automata.Polling.CREDIT,
            "update": automata.Update.REWARD_PENALTY,
            "seed": 0,
        },
    ),
    "automata.SimulatedSources": Call(
        automata.SimulatedSources,
        {"hazard": [0.1, 0.2], "importance": 1.0, "cost": automata.Cost.AGE, "curve": None},
    ),
    "automata.ShareBounds": Call(
        automata.ShareBounds,
        {"floor": [0.1, 0.0], "ceiling": [1.0, 0.5], "group": [0, 0], "group_ceiling": [0.9]},
    ),
    "automata.TwofoldAutomaton": Call(
        automata.TwofoldAutomaton, {"resolution": 50, "update": automata.Update.REWARD_PENALTY}
    ),
    "automata.detection": Call(automata.detection, {"hazard": 0.5}),
    "automata.doubled": Call(automata.doubled, {"n": 5, "resolution": 50}),
}

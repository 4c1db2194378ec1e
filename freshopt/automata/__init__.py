"""Learning automata that hand out polls: a single one, trees of them, and sources to run them against."""

from freshopt.automata.fresh_tree import doubled as doubled
from freshopt.automata.hierarchy import Hierarchy as Hierarchy
from freshopt.automata.settings import Feedback as Feedback
from freshopt.automata.settings import Polling as Polling
from freshopt.automata.settings import Update as Update
from freshopt.automata.simulated import SimulatedSources as SimulatedSources
from freshopt.automata.twofold import TwofoldAutomaton as TwofoldAutomaton
from freshopt.automata.twofold import detection as detection

__all__ = [
    "Feedback",
    "Hierarchy",
    "Polling",
    "SimulatedSources",
    "TwofoldAutomaton",
    "Update",
    "detection",
    "doubled",
]

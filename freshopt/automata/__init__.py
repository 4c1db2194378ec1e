"""Learning automata for polling: single automata, trees, simulated sources."""

from freshopt.automata.drawing import draw as draw
from freshopt.automata.drawing import to_networkx as to_networkx
from freshopt.automata.settings import Cost as Cost
from freshopt.automata.settings import Feedback as Feedback
from freshopt.automata.settings import Polling as Polling
from freshopt.automata.settings import Update as Update
from freshopt.automata.share_bounds import ShareBounds as ShareBounds
from freshopt.automata.share_bounds import doubled as doubled
from freshopt.automata.simulated_sources import SimulatedSources as SimulatedSources
from freshopt.automata.tree import AutomataTree as AutomataTree
from freshopt.automata.twofold import TwofoldAutomaton as TwofoldAutomaton
from freshopt.automata.twofold import detection as detection
from freshopt.renamed import exports

__all__ = exports(globals())

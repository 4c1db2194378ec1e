"""Graph and drawing of a tree of automata.

Nodes are the numbers of `AutomataTree.automata` and, for sources, their names; an edge carries the share of
the polls that goes along it. Where a right half has no source there is no automaton, and the edge skips it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from freshopt.errors import SourceDataError
from freshopt.plots import new_figure, save
from freshopt.renamed import keywords

if TYPE_CHECKING:
    import networkx
    from matplotlib.axes import Axes

    from freshopt.automata.tree import AutomataTree

# Largest number of sources in a drawing: more cannot be read on a page.
DRAWN = 64


@keywords(name="names")
def to_networkx(tree: AutomataTree, names: Sequence[Any] | None = None) -> networkx.DiGraph:
    """Return a tree as a directed NetworkX graph.

    Edges point from the root to the sources.

    Parameters
    ----------
    tree : AutomataTree
    names : sequence, optional
        Of the sources; by default their positions.

    Returns
    -------
    networkx.DiGraph
        Nodes ("automaton", node) with state, resolution, depth, share, first and last, and ("source", name)
        with position, depth and share. Edges with share and side, "left" or "right".

    Raises
    ------
    SourceDataError
        If the names are not one per source and unique.

    Examples
    --------
    >>> from freshopt.automata import AutomataTree
    >>> drawn = to_networkx(AutomataTree(3), ["a", "b", "c"])
    >>> sorted(node for node in drawn if node[0] == "source")
    [('source', 'a'), ('source', 'b'), ('source', 'c')]
    >>> list(drawn.successors(("automaton", 1)))
    [('automaton', 2), ('source', 'c')]
    >>> round(drawn.edges[("automaton", 1), ("source", "c")]["share"], 3)
    0.333
    """
    import networkx

    known = list(range(tree.n)) if names is None else list(names)
    if len(set(known)) != tree.n or len(known) != tree.n:
        raise SourceDataError(f"{len(known)} names for {tree.n} sources. Pass one for each, all different.")
    automata = {each["node"]: each for each in tree.automata()}
    shares = tree.shares()
    made = networkx.DiGraph()
    for node, each in automata.items():
        made.add_node(("automaton", node), **{key: each[key] for key in each if key != "node"})
    for k, label in enumerate(known):
        made.add_node(("source", label), position=k, depth=tree.depth, share=float(shares[k]))

    def below(node: int) -> tuple[tuple[str, Any], float]:
        """Return the first automaton or source below a node.

        Where a node has no automaton, its left child is taken.
        """
        while node not in automata and node < 2**tree.depth:
            node *= 2
        if node in automata:
            return ("automaton", node), automata[node]["share"]
        position = tree.source_at(node - 2**tree.depth)
        return ("source", known[position]), float(shares[position])

    for node in automata:
        for child, side in ((2 * node, "left"), (2 * node + 1, "right")):
            target, share = below(child)
            made.add_edge(("automaton", node), target, share=share, side=side)
    return made


@keywords(name="names")
def draw(tree: AutomataTree, where: str | Path | Axes, names: Sequence[Any] | None = None) -> None:
    """Draw a tree of automata into an image or axes.

    The suffix of the file names its kind (.png, .svg, .pdf).

    Lines are as wide as the share that goes along them. An automaton shows the share of its left side, a
    source its name and its share in percent.

    Parameters
    ----------
    tree : AutomataTree
    where : str, Path or matplotlib.axes.Axes
        Axes should be 0.6 inches wide per source and 1.1 inches high per depth.
    names : sequence, optional
        Of the sources; by default their positions.

    Raises
    ------
    SourceDataError
        If the tree has more than 64 sources, or the names are not one per source and unique.
    FreshoptError
        If Matplotlib is not installed.
    """
    if tree.n > DRAWN:
        raise SourceDataError(
            f"the tree has {tree.n} sources, more than the {DRAWN} that can be read in a drawing. "
            "Look at to_networkx(tree) or tree.automata() instead."
        )
    if not isinstance(where, str | Path):
        _paint(where, tree, names)
        return
    figure = new_figure(max(4.0, 0.62 * tree.n + 0.8), 1.1 * tree.depth + 1.3)
    _paint(figure.add_subplot(), tree, names)
    save(figure, where)


def _paint(axes: Axes, tree: AutomataTree, names: Sequence[Any] | None) -> None:
    """Draw on axes."""
    made = to_networkx(tree, names)
    place: dict[Any, tuple[float, float]] = {}
    for node, data in made.nodes(data=True):
        x = data["position"] if node[0] == "source" else 0.5 * (data["first"] + data["last"])
        place[node] = (float(x), -float(data["depth"]))
    axes.set_axis_off()
    for one, other, data in made.edges(data=True):
        (x1, y1), (x2, y2) = place[one], place[other]
        width = 0.6 + 11.0 * float(np.sqrt(data["share"]))
        axes.plot([x1, x2], [y1, y2], color="#5b8db8", linewidth=width, zorder=1)
    for node, data in made.nodes(data=True):
        x, y = place[node]
        if node[0] == "source":
            words = f"{node[1]}\n{100.0 * data['share']:.3g} %"
            axes.text(x, y - 0.13, words, ha="center", va="top", fontsize=8)
            continue
        left = data["state"] / (data["resolution"] + 1)
        box = {"boxstyle": "round", "facecolor": "white", "edgecolor": "#1f4e79"}
        axes.text(x, y, f"{left:.2f}", ha="center", va="center", fontsize=8, bbox=box, zorder=2)
    axes.set_xlim(-0.7, tree.n - 0.3)
    axes.set_ylim(-tree.depth - 0.75, 0.4)

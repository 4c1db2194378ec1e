"""Trees of automata: rule, exact chain, schedulers, any number of sources, two ways to run."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread

import freshopt as fo
from freshopt.automata import (
    AutomataTree,
    Cost,
    Feedback,
    Polling,
    ShareBounds,
    SimulatedSources,
    TwofoldAutomaton,
    Update,
    detection,
    doubled,
    draw,
    to_networkx,
)
from freshopt.automata.polls import harmonic_sum
from freshopt.automata.random_numbers import poisson
from tests.ground_truth.cost_truth import Floats
from tests.ground_truth.refusals import refused
from tests.ground_truth.strata import matrix, stratified
from tests.ground_truth.tolerances import EXACT

FINDS = [detection(-math.log1p(-u)) for u in (0.3, 0.1)]
Z = 4.5  # standard errors: 7e-6 of such intervals miss


def with_states(tree: AutomataTree, state: int, depth: int) -> AutomataTree:
    """Put all automata of a depth into a state."""
    saved = tree.checkpoint()
    saved["state"][2**depth : 2 ** (depth + 1)] = state
    tree.restore(saved)
    return tree


def states(tree: AutomataTree, depth: int) -> Floats:
    found: Floats = tree.checkpoint()["state"][2**depth : 2 ** (depth + 1)].astype(np.float64)
    return found


@pytest.mark.parametrize("update", Update)
def test_the_stationary_distribution_is_the_chains_eigenvector(update: Update) -> None:
    automaton = TwofoldAutomaton(40, update)
    matrix, found = automaton.matrix(*FINDS), automaton.stationary(*FINDS)
    assert np.all(np.abs(matrix.sum(axis=1) - 1.0) <= EXACT)
    values, vectors = np.linalg.eig(matrix.T)
    leading = vectors[:, np.argmax(values.real)].real
    assert np.all(np.abs(found - leading / leading.sum()) <= 1e-10)  # eigenvalues 1 and .998 are close
    assert np.all(np.abs(found @ matrix - found) <= EXACT)


def test_the_mean_share_tends_to_equal_chances_as_the_automaton_gets_finer() -> None:
    best = math.log(0.7) / math.log(0.7 * 0.9)
    assert TwofoldAutomaton(50, Update.REWARD_INACTION).mean_share(*FINDS) == pytest.approx(0.77676, abs=5e-6)
    errors = [TwofoldAutomaton(n).mean_share(*FINDS) - best for n in (50, 500, 5000, 500_000)]
    assert np.all(np.abs(errors[1:]) < 0.2 * np.abs(errors[:-1]))
    assert abs(errors[-1]) < 1e-6


@pytest.mark.exhaustive
@pytest.mark.parametrize("update", stratified(Update, every=3))
def test_a_tree_of_two_is_the_chain(update: Update) -> None:
    """Polled at random and answered by the present share's probability, as the chain supposes."""
    automaton, rng = TwofoldAutomaton(8, update), np.random.default_rng(7)
    tree = AutomataTree(2, 8, polling=Polling.RANDOM, update=update, seed=3)
    seen = np.empty(30_000)
    chances = np.stack(
        [find(shares) for find, shares in zip(FINDS, (automaton.shares, 1 - automaton.shares), strict=True)]
    )
    answers = rng.random(len(seen))
    for k in range(len(seen)):
        seen[k] = tree.shares()[0]
        source = tree.choose(1)
        at = round(seen[k] * 9) - 1
        tree.learn(source, [float(answers[k] < chances[source[0], at])])
    batches = seen.reshape(30, -1).mean(axis=1)
    error = np.std(batches, ddof=1) / math.sqrt(len(batches))
    assert abs(batches.mean() - automaton.mean_share(*FINDS)) <= Z * error
    assert error < 0.02


@matrix(state=[1, 5, 17, 20], source=[0, 1], value=[0.0, 1.0])
def test_an_automaton_moves_one_step_with_the_other_sides_share(
    state: int, source: int, value: float
) -> None:
    pairs, states_ = 2048, 20
    tree = with_states(AutomataTree(2 * pairs, states_, seed=state), state, 11)
    tree.learn(np.arange(source, 2 * pairs, 2), np.full(pairs, value))
    moved = states(tree, 11) - state
    towards_left = (source == 0) == (value == 1.0)
    step = 1.0 if towards_left else -1.0
    assert set(np.unique(moved)) <= {0.0, step}
    chance = 1 - state / (states_ + 1) if source == 0 else state / (states_ + 1)
    if not 1 <= state + step <= states_:
        chance = 0.0  # there is no state in which a side gets nothing
    assert abs(np.mean(moved != 0) - chance) <= Z * math.sqrt(chance * (1 - chance) / pairs)


def test_feedback_reaches_the_automata_above_the_source_and_no_others() -> None:
    tree = with_states(AutomataTree(8, 1000, seed=1), 1, 0)
    before = tree.checkpoint()["state"]
    for _ in range(100):
        tree.learn([5], [1.0])
    moved = tree.checkpoint()["state"] - before
    assert set(np.flatnonzero(moved)) <= {1, 3, 6}
    assert moved[3] > 0  # of sources 4..7, 5 is on the left
    assert moved[6] < 0  # of 4 and 5 on the right
    assert tree.checkpoint()["state"][1] == 1  # and the root gives the right side all it can


@pytest.mark.parametrize(("update", "value"), [(Update.REWARD_INACTION, 0.0), (Update.INACTION_PENALTY, 1.0)])
def test_inaction_is_inaction(update: Update, value: float) -> None:
    tree = AutomataTree(8, update=update)
    before = tree.checkpoint()
    tree.learn(np.arange(8), np.full(8, value))
    tree.learn(np.arange(8), np.full(8, np.nan))
    assert all(np.array_equal(column, before[key]) for key, column in tree.checkpoint().items())


def test_a_value_moves_by_that_many_steps_on_average() -> None:
    tree = with_states(AutomataTree(4096, 20, update=Update.REWARD_INACTION, seed=2), 7, 11)
    tree.learn(np.arange(0, 4096, 2), 4.2)
    moved = states(tree, 11) - 7.0
    mean = 4.2 * 14 / 21  # 2.8: two steps, and a third with probability 0.8
    assert set(np.unique(moved)) == {2.0, 3.0}
    assert abs(moved.mean() - mean) <= Z * math.sqrt(0.16 / 2048)


@matrix(n=[1, 2, 3, 5, 8, 13], polling=Polling)
def test_any_number_of_sources(n: int, polling: Polling) -> None:
    tree = AutomataTree(n, 5000, polling=polling, seed=n)
    assert np.all(np.abs(tree.shares() * n - 1.0) <= 2e-3)
    assert len(tree.automata()) == n - 1
    sources = SimulatedSources(np.linspace(0.05, 0.4, n))
    tree.simulate(sources, 3000)
    assert sources.polls.sum() == tree.polls == 3000
    assert np.all(sources.polls > 0)
    assert abs(tree.shares().sum() - 1.0) <= EXACT


@matrix(update=Update, every=3)
@pytest.mark.parametrize(("polling", "feedback"), [(p, f) for p in Polling for f in Feedback])
def test_compiled_or_not_the_same_polls(
    polling: Polling, feedback: Feedback, update: Update, monkeypatch: pytest.MonkeyPatch
) -> None:
    if update.on_penalty and not feedback.is_bit:
        with pytest.raises(
            fo.SourceDataError, match=r"zeros are no penalties\. Pass Update\.REWARD_INACTION"
        ):
            AutomataTree(5, update=update).simulate(SimulatedSources(np.ones(5)), 1, feedback)
        return
    runs = []
    for compiled in ("1", "0"):
        monkeypatch.setenv("FRESHOPT_COMPILED", compiled)
        tree = AutomataTree(5, (40, 30, 20), polling=polling, update=update, seed=11)
        sources = SimulatedSources([0.05, 0.1, 0.2, 0.4, 0.3], [1.0, 4.0, 2.0, 0.0, 3.0])
        tree.simulate(sources, 300, feedback, probing=0.7)
        observed = tree.observe(sources, 50, feedback, probing=0.7)
        chosen = tree.choose(40)
        tree.learn(chosen, np.linspace(0.0, 2.0, 40))
        runs.append((tree.checkpoint(), sources.polls, sources.news, *observed, chosen))
    (state, *other), (again, *rest) = runs
    assert all(np.array_equal(state[key], again[key]) for key in state)
    assert all(np.array_equal(one, two) for one, two in zip(other, rest, strict=True))


def test_deadlines_keep_every_source_within_a_poll_of_its_share() -> None:
    shares = np.random.default_rng(0).dirichlet(np.full(60, 0.2))
    tree = AutomataTree.from_shares(shares, polling=Polling.EARLIEST_DEADLINE)
    assert np.all(np.abs(tree.shares() - shares) <= 1e-10)
    polled = tree.choose(20_000)
    counts = np.cumsum(polled[:, None] == np.arange(60), axis=0)
    assert np.max(np.abs(counts - np.arange(1, 20_001)[:, None] * tree.shares())) < 1.0


def test_credits_keep_every_automaton_within_a_poll_of_its_share() -> None:
    shares = np.random.default_rng(1).dirichlet(np.full(32, 0.5))
    polled = AutomataTree.from_shares(shares).choose(20_000)
    for width in (16, 8, 4, 2, 1):
        for first in range(0, 32, 2 * width):
            inside = polled[(polled >= first) & (polled < first + 2 * width)]
            left = np.cumsum(inside < first + width)
            wanted = shares[first : first + width].sum() / shares[first : first + 2 * width].sum()
            assert np.all(np.abs(left - wanted * np.arange(1, len(left) + 1)) <= 1.0 + 1e-6)


def test_random_polls_are_multinomial_with_exponential_gaps() -> None:
    shares = np.array([0.5, 0.3, 0.15, 0.05])
    tree = AutomataTree.from_shares(shares, polling=Polling.RANDOM, seed=5)
    sources = SimulatedSources(0.2 * shares)
    tree.simulate(sources, 200_000, None)
    assert np.all(np.abs(sources.polls - 2e5 * shares) <= Z * np.sqrt(2e5 * shares * (1 - shares)))
    chance = 0.2 / 1.2  # a/(a + x), which is the same for all: that a change comes before the poll
    assert np.all(np.abs(sources.news / sources.polls - chance) <= Z * np.sqrt(chance / sources.polls))


def test_hazards_that_swap_leave_what_has_happened() -> None:
    tree = AutomataTree.from_shares([0.6, 0.4], polling=Polling.EARLIEST_DEADLINE)
    sources = SimulatedSources([0.0, 50.0])
    tree.simulate(sources, 1, None)
    assert sources.polls.tolist() == [1, 0]
    sources.swap(0, 1)
    assert sources.hazard.tolist() == [50.0, 0.0]
    tree.simulate(sources, 9, None)
    assert sources.polls.tolist() == [6, 4]
    assert sources.news.tolist() == [5, 1]  # source 1 changed before the swap, and never after


def test_a_run_goes_on_from_its_checkpoint() -> None:
    tree, sources = AutomataTree(9, seed=4), SimulatedSources(np.full(9, 0.1))
    tree.simulate(sources, 1000)
    saved = tree.checkpoint()
    first = tree.choose(100)
    other = AutomataTree(9, seed=99)
    other.restore(saved)
    assert np.array_equal(other.choose(100), first)
    for wrong in (AutomataTree(8), AutomataTree(9, 499)):
        refused("Make the same tree anew", wrong.restore, saved)
    settings = Polling.RANDOM, Update.REWARD_INACTION
    bounded = [
        AutomataTree(2, polling=settings[0], update=settings[1], bounds=ShareBounds([floor, 0.0], 1.0, 0, []))
        for floor in (0.1, 0.2)
    ]
    refused("other bounds", bounded[0].restore, bounded[1].checkpoint())


def test_the_graph_is_the_tree(tmp_path: Path) -> None:
    tree = AutomataTree(6, seed=1)
    tree.simulate(SimulatedSources([0.02, 0.05, 0.1, 0.2, 0.3, 0.05]), 20_000)
    graph = to_networkx(tree, list("abcdef"))
    assert len(graph) == 11
    assert all(graph.in_degree(node) == (node != ("automaton", 1)) for node in graph)
    for node in graph:
        if node[0] == "automaton":
            assert graph.out_degree(node) == 2
            below = sum(graph.edges[node, child]["share"] for child in graph.successors(node))
            assert abs(below - graph.nodes[node]["share"]) <= EXACT
    assert [graph.nodes["source", name]["share"] for name in "abcdef"] == tree.shares().tolist()
    assert ("automaton", 6) in graph.successors(("automaton", 1))  # node 3 has sources on its left alone

    for n in (1, 2, 6):
        path = tmp_path / f"{n}.png"
        draw(AutomataTree(n), path)
        picture = imread(path)
        assert picture.shape[0] > 100
        assert np.any(picture[..., :3] < 0.5)
    axes = Figure().add_subplot()
    draw(tree, axes, list("abcdef"))
    words = [text.get_text() for text in axes.texts]
    for name, share in zip("abcdef", tree.shares(), strict=True):
        assert f"{name}\n{100 * share:.3g} %" in words
    root = tree.automata()[0]
    assert f"{root['state'] / (root['resolution'] + 1):.2f}" in words
    assert len(axes.lines) == graph.number_of_edges()
    refused("the tree has 65 sources, more than the 64", draw, AutomataTree(65), tmp_path / "65.png")
    refused("5 names for 6 sources", to_networkx, tree, list("abcde"))


def test_one_source_needs_no_automaton(monkeypatch: pytest.MonkeyPatch) -> None:
    for compiled in ("1", "0"):
        monkeypatch.setenv("FRESHOPT_COMPILED", compiled)
        for feedback in (Feedback.NEWS, Feedback.COST):
            tree, sources = AutomataTree(1, update=Update.REWARD_INACTION), SimulatedSources([0.3])
            tree.simulate(sources, 5, feedback)
            assert sources.polls.tolist() == [5]
            assert tree.shares().tolist() == [1.0]


@pytest.mark.parametrize("compiled", ["1", "0"])
def test_a_cost_moves_each_automaton_by_an_eighth_of_its_own_states(
    compiled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A poll that pays a million times the mean loses the other side an eighth, at every depth."""
    monkeypatch.setenv("FRESHOPT_COMPILED", compiled)
    tree = AutomataTree(4, (10_000, 100), polling=Polling.RANDOM, update=Update.REWARD_INACTION, seed=3)
    sources = SimulatedSources(np.full(4, 0.1), cost=Cost.MISSED)
    before, shares = tree.checkpoint(), tree.shares()
    moved = []
    for _ in range(400):
        tree.simulate(sources, 1, Feedback.COST, gain=1e9)
        after, found = tree.checkpoint(), tree.shares()
        for node, states in ((1, 10_000), (2, 100), (3, 100)):
            span, left = states + 1, int(before["state"][node])
            step = int(after["state"][node]) - left
            other = span - left if step > 0 else left
            assert abs(step) <= math.ceil(other / 8)
            moved.append(abs(step) / other)
        before, shares = after, found
    assert max(moved) > 0.1
    assert abs(shares.sum() - 1.0) <= EXACT


@pytest.mark.parametrize("mean", [1e17, 1e20, 1e300, math.inf])
def test_poisson_numbers_of_any_mean(mean: float) -> None:
    noise = np.array([1, 2, 3, 4])
    for _ in range(20):
        assert abs(poisson(noise, mean) / min(mean, 1e300) - 1.0) <= 1e-7
    assert 0.0 <= harmonic_sum(1e20, 3e20) - math.log(3.0) <= 1e-12


def test_resolutions_per_depth() -> None:
    assert doubled(512, 500) == tuple(500 * 2**k for k in range(8, -1, -1))
    found = {each["depth"]: each["resolution"] for each in AutomataTree(5, doubled(5, 3)).automata()}
    assert found == {0: 12, 1: 6, 2: 3}
    refused("2 resolutions for 3 depths", AutomataTree, 5, (1, 2))


def curved(cost: Cost, row: list[float]) -> SimulatedSources:
    return SimulatedSources([1.0], cost=cost, curve=[row])


def test_other_kinds_are_refused() -> None:
    refused("sources is of type list", AutomataTree(1).simulate, [0.3], 1, error=TypeError)
    refused("bounds is of type tuple", AutomataTree, 1, bounds=(), error=TypeError)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: AutomataTree(0), "the number of sources is 0. Pass a whole number from 1 to 1073741824."),
        (lambda: AutomataTree(2, 0), "resolution is 0. Pass a number of states >= 1, such as 500."),
        (lambda: AutomataTree(2, seed=-1), "seed is -1. Pass an integer from 0 to 2"),
        (
            lambda: AutomataTree.from_shares([0.0, 0.0]),
            "shares must be numbers >= 0, one per source, not all 0.",
        ),
        (lambda: AutomataTree(3).learn([3], [1.0]), "feedback for source 3 of 3. Pass positions 0..n-1."),
        (lambda: AutomataTree(3).learn([1], [-0.5]), "feedback -0.5 is negative. Pass values >= 0."),
        (lambda: AutomataTree(3).simulate(SimulatedSources([1.0]), 1), "1 sources under a tree for 3."),
        (lambda: AutomataTree(1).simulate(SimulatedSources([1.0]), -1), "polls is -1."),
        (lambda: AutomataTree(1).simulate(SimulatedSources([1.0]), 1, gain=math.nan), "gain is nan."),
        (lambda: AutomataTree(1).observe(SimulatedSources([1.0]), 1, gain=-1.0), "gain is -1.0."),
        (lambda: AutomataTree(1).observe(SimulatedSources([1.0]), 1, probing=1.5), "probing is 1.5."),
        (lambda: curved(Cost.POWER, [1.0]), "the curve of Cost.POWER has 1 columns."),
        (lambda: curved(Cost.POWER, [-1.0, 1.0]), "an exponent in the curve of Cost.POWER"),
        (lambda: curved(Cost.POWER, [1.0, 0.0]), "an age in the curve of Cost.POWER"),
        (lambda: curved(Cost.PIECES, [1.0, 2.0, 3.0]), "the curve of Cost.PIECES has 3 columns."),
        (lambda: curved(Cost.PIECES, [1.0, math.inf]), "a slope or intercept in the curve of Cost.PIECES"),
        (lambda: SimulatedSources([1.0, -1.0]), "hazard must be a column of finite numbers >= 0."),
        (lambda: SimulatedSources([1.0], -1.0), "importance must be finite and 0 or more."),
        (lambda: SimulatedSources([1.0], 0.0).slots(Feedback.NEWS, Update.REWARD_PENALTY), "importance is 0"),
    ],
)
def test_refusals_name_the_culprit(call: Callable[[], object], message: str) -> None:
    refused(message.replace(".", r"\."), call)

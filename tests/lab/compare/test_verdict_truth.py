"""The verdict over random tables: every claim in its sentences is read back and checked against the scores.

Scores are whole per mille, so that means, ties and zeros are exact in the reference, which shares no code with ours.
"""

import re
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from adaptive_memory_bank.lab.compare.comparison import Section
from adaptive_memory_bank.lab.compare.verdict import verdict
from adaptive_memory_bank.lab.runs.results import Run, RunResult

ADAPTERS, OTHERS = ("xbn", "ema", "auto"), ("none", "none, batch 128")
NAMES = (*OTHERS, "identity", *ADAPTERS, "fresh")
FEWEST = 3
Scores = dict[tuple[str, int], dict[int, int]]
"""Per mille by seed, by variant and batch size."""


@st.composite
def tables(draw) -> Scores:
    """Variants that may be missing, may lack seeds, and lie close together or far apart, at one or two batch sizes."""
    batches = draw(st.sampled_from([(16,), (16, 64)]))
    names = [name for name in NAMES if draw(st.integers(0, 5))]
    scores = {}
    for name in names:
        level, failing = draw(st.sampled_from([700, 700, 701, 690, 650, 750])), draw(st.integers(0, 3)) == 0
        for batch in batches:
            noise = draw(st.lists(st.integers(0, 4), min_size=draw(st.sampled_from([1, 3, 3, 4])), max_size=5))
            found = {seed: level + extra for seed, extra in enumerate(noise)}
            lost = draw(st.sets(st.integers(0, 4))) if failing else set()
            scores[name, batch] = {seed: score for seed, score in found.items() if seed not in lost}
    return scores


def section_of(scores: Scores) -> Section:
    names = tuple(dict.fromkeys(name for name, _ in scores))
    runs = [
        _run(name, batch, seed, score) for (name, batch), by_seed in scores.items() for seed, score in by_seed.items()
    ]
    # A variant without any score has failed, which is not the same as not being there.
    known = {run.name for run in runs}
    failed = [_run(name, 16, 0, 0) for name in names if name not in known]
    runs += [replace(run, result=replace(run.result, status="failed")) for run in failed]
    return Section("t", "retrieval", tuple(runs), names, "identity" if "identity" in names else None)


def _run(name: str, batch: int, seed: int, score: int) -> Run:
    adapter = "none" if name.startswith("none") else name
    metrics = {"val/recall@1": score / 1000}
    return Run(Path(name), RunResult(data="t", adapter=adapter, metrics=metrics), name, "t", seed, batch, None)


@dataclass(frozen=True)
class Fact:
    """The paired differences of a variant to plain memory, in percentage points, exactly."""

    values: tuple[Fraction, ...]
    conditions: int
    comparisons: int = 1

    @property
    def mean(self):
        return sum(self.values) / len(self.values)

    @property
    def interval(self):
        """None where the seeds have measured no noise."""
        if len(self.values) < FEWEST or len(set(self.values)) == 1:
            return None
        level = 1 - 0.05 / self.comparisons
        return stats.ttest_1samp([float(value) for value in self.values], 0).confidence_interval(level)

    @property
    def verdict(self):
        if len(self.values) < FEWEST:
            return "few"
        if self.interval is None:
            return "unknown"
        return "better" if self.interval.low > 0 else "worse" if self.interval.high < 0 else "within"


def facts_of(scores: Scores) -> dict[str, Fact]:
    batches = list(dict.fromkeys(batch for _, batch in scores))
    found = {}
    for name in dict.fromkeys(name for name, _ in scores):
        shared = {b: scores[name, b].keys() & scores.get(("identity", b), {}).keys() for b in batches}
        conditions = [batch for batch in batches if shared[batch]]
        seeds = set.intersection(*(set(shared[batch]) for batch in conditions)) if conditions else set()
        gaps = [
            Fraction(sum(scores[name, b][s] - scores["identity", b][s] for b in conditions), 10 * len(conditions))
            for s in sorted(seeds)
        ]
        if gaps and name != "identity":
            found[name] = Fact(tuple(gaps), len(conditions))
    family = sum(name in found for name in ADAPTERS)
    return {name: replace(fact, comparisons=family) if name in ADAPTERS else fact for name, fact in found.items()}


def names_in(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def check_points(text: str, value: Fraction) -> None:
    said = float(re.search(r"[+-]\d+\.\d", text).group())
    assert abs(said - float(value)) <= 0.05 + 1e-6, f"{said} is not {float(value)}"
    assert text.startswith("-") == (value < 0)


def check_range(text: str, counts: list[int], what: str) -> None:
    least, most = min(counts), max(counts)
    said = re.search(rf"(\d+)(?: to (\d+))? {what}", text)
    assert (int(said[1]), int(said[2] or said[1])) == (least, most)


def check_interval(text: str, fact: Fact) -> None:
    low, high = re.search(r"95 % interval (\S+) to (\S+) points", text).groups()
    assert fact.interval is not None
    assert float(low) == pytest.approx(fact.interval.low, abs=0.051)
    assert float(high) == pytest.approx(fact.interval.high, abs=0.051)


def check_about_adapters(text: str, scores: Scores) -> None:
    facts = {name: fact for name, fact in facts_of(scores).items() if name in ADAPTERS}
    batches = {batch for _, batch in scores}
    assert not set(names_in(text)) & {*OTHERS, "fresh"}
    if "no run with plain memory" in text:
        assert ("identity", 16) not in scores
    elif "so there is none to judge" in text:
        assert not any((name, 16) in scores for name in ADAPTERS)
    elif "so nothing can be compared" in text:
        assert not facts
    else:
        level = [score for (name, _), found in scores.items() if name == "identity" for score in found.values()]
        assert float(re.search(r"Recall@1 ([\d.]+)", text)[1]) == pytest.approx(sum(level) / len(level) / 10, abs=0.051)
        assert ("averaged over" in text) == (len(batches) > 1)
        if len(batches) > 1:
            check_range(text.partition("averaged over")[2], [fact.conditions for fact in facts.values()], "condition")
        (check_decided if "beyond the noise (paired" in text else check_undecided)(text, facts)


def check_decided(text: str, facts: dict[str, Fact]) -> None:
    said = text.replace("(`identity`", "(")
    for how, sign in (("better", -1), ("worse", 1)):
        clause = re.search(rf"((?:`[^`]+` \([^)]*\)(?:, | and )?)+) (?:is|are) {how} than", said)
        named = names_in(clause[1]) if clause else []
        expected = [name for name in facts if facts[name].verdict == how]
        assert set(named) == set(expected)
        assert [sign * facts[name].mean for name in named] == sorted(sign * facts[name].mean for name in named)
        for name in named:
            check_points(re.search(rf"`{name}` \(([^)]*)\)", clause[1])[1], facts[name].mean)
    for words, kind in (
        ("Within the noise", "within"),
        ("Too few seeds to tell", "few"),
        ("every seed, so", "unknown"),
    ):
        clause = re.search(rf"{words}[^:]*: ([^.]*)\.", text)
        assert set(names_in(clause[1]) if clause else []) == {name for name in facts if facts[name].verdict == kind}
    beyond = [len(fact.values) for fact in facts.values() if fact.verdict in ("better", "worse")]
    check_range(text.partition("intervals over")[2], beyond, "seed")
    assert (f"for {len(facts)} comparisons" in text) == (len(facts) > 1)


def check_undecided(text: str, facts: dict[str, Fact]) -> None:
    assert not any(fact.verdict in ("better", "worse") for fact in facts.values())
    seeds = [len(fact.values) for fact in facts.values()]
    if "scores exactly as" in text:
        assert all(value == 0 for fact in facts.values() for value in fact.values)
        return
    assert any(value != 0 for fact in facts.values() for value in fact.values)
    assert ("cannot tell an adapter" in text) == (max(seeds) < FEWEST)
    assert ("no adapter differs" in text) == (max(seeds) >= FEWEST)
    claim = text.partition("beyond the noise")[2].partition(": ")[2]
    highest = max(fact.mean for fact in facts.values())
    top = [name for name in facts if facts[name].mean == highest]
    assert names_in(claim) == top
    assert ("the largest mean difference is that of" in claim) == (highest > 0)
    assert ("none is above it on average" in claim) == (highest == 0)
    assert ("below it on average" in claim) == (highest < 0)
    if highest != 0:
        check_points(re.search(r"[+-]\d.*", claim)[0], highest)
    if "95 % interval" in claim:
        check_interval(claim, facts[top[0]])
        ahead = sum(value > 0 for value in facts[top[0]].values)
        assert f"ahead with {ahead} of {len(facts[top[0]].values)} seeds" in claim


def check_about_staleness(text: str, scores: Scores) -> None:
    fact = facts_of(scores).get("fresh")
    if not {("fresh", 16), ("identity", 16)} <= scores.keys():
        assert text == ""
        return
    if fact is None:
        assert "is not known" in text
        return
    if fact.verdict == "unknown" and fact.mean == 0:
        assert "not what limits this training" in text
        assert "scores exactly as plain memory" in text
        return
    check_points(re.search(r"[+-]\d.*", text)[0], fact.mean)
    assert ("cannot tell" in text) == (fact.verdict in ("few", "unknown"))
    assert ("Staleness limits this training" in text) == (fact.verdict == "better")
    assert ("is not what limits" in text) == (fact.verdict in ("worse", "within"))
    assert ("is worse than plain memory" in text) == (fact.verdict == "worse")
    if fact.interval is not None:
        check_interval(text, fact)
    check_shares(text, scores, fact)


def check_shares(text: str, scores: Scores, way: Fact) -> None:
    shares = {name: int(share) for name, share in re.findall(r"`([^`]+)` goes (-?\d+) %", text)}
    if way.verdict != "better":
        assert not shares
    for name, share in shares.items():
        fact = facts_of({key: found for key, found in scores.items() if key[0] in ("identity", name)})[name]
        if fact.conditions == way.conditions and len(fact.values) == len(way.values):
            assert share == pytest.approx(float(100 * fact.mean / way.mean), abs=0.51)


def check(text: str, scores: Scores) -> None:
    """Raise where a sentence claims what the scores do not say."""
    about_adapters, _, about_staleness = re.sub(r" (?=(Staleness|Wh\w+ staleness) )", "\n", text).partition("\n")
    check_about_adapters(about_adapters, scores)
    check_about_staleness(about_staleness, scores)


@settings(max_examples=400, deadline=None)
@given(tables())
def test_every_claim_is_true(scores):
    if scores:
        check(verdict(section_of(scores)), scores)


ALL_WORSE: Scores = {
    ("identity", 16): {0: 704, 1: 700, 2: 704},
    ("xbn", 16): {0: 690, 1: 700, 2: 696},
    ("auto", 16): {0: 700, 1: 699, 2: 700},
    ("fresh", 16): {0: 705, 1: 700, 2: 703},
}


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("both are below it on average, `auto` least", "the largest mean difference is that of `auto`"),
        ("`auto` least", "`xbn` least"),
        ("-0.3 points", "-0.5 points"),
        ("ahead with 0 of", "ahead with 1 of"),
        ("no adapter differs from", "3 seeds cannot tell an adapter from"),
        ("Staleness is not what limits this training, as far as 3 seeds can tell", "Staleness limits this training"),
        ("+0.0 points", "+0.2 points"),
    ],
)
def test_the_checker_sees_a_false_claim(right, wrong):
    said = verdict(section_of(ALL_WORSE))
    check(said, ALL_WORSE)
    assert right in said
    with pytest.raises(AssertionError):
        check(said.replace(right, wrong), ALL_WORSE)

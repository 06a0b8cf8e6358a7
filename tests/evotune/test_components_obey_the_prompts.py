"""The components generator is a language model without a model: it recombines, obeys mutation prompts, and a seed decides it."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path

import pytest

from evotune import replies
from evotune.contract import check
from evotune.generators import make
from evotune.generators.components import DESIGN, ComponentsGenerator, Genome, find_genomes, program
from evotune.generators.components.genome import CHOICES
from evotune.generators.components.variation import crossed, novel, random_genome, refined, simplified
from evotune.prompts import MUTATIONS, Prompts
from metabench.errors import UserError

FIRST = [{"role": "user", "content": Prompts().task_text() + Prompts().example + Prompts().output_format}]


def ask_for(kind: str, *parents: Genome) -> list[dict[str, str]]:
    """A prompt as LLaMEA puts it together."""
    text = next(m.text for m in MUTATIONS if m.kind == kind)
    code = "".join(f"# {i}\n## With Code\n```python\n{program(g)}\n```\n" for i, g in enumerate(parents))
    return [{"role": "user", "content": Prompts().task_text() + code + text + Prompts().output_format}]


def genome_of(text: str) -> Genome:
    found = find_genomes(text)
    assert len(found) == 1
    return found[0]


def test_the_same_seed_and_prompts_give_the_same_replies() -> None:
    one, two, other = (ComponentsGenerator(seed=s) for s in (3, 3, 4))
    texts = [one.query(FIRST) for _ in range(5)]
    assert texts == [two.query(FIRST) for _ in range(5)]
    assert texts != [other.query(FIRST) for _ in range(5)]
    assert one.reply(FIRST, 2).text == texts[2], "a reply depends on its number alone, so that a run can be taken up"


def test_first_programs_cover_all_families() -> None:
    genomes = [genome_of(ComponentsGenerator(seed=1).reply(FIRST, call).text) for call in range(6)]
    families = {family for g in genomes for family in g.components()}
    assert families == {"walk", "population", "surrogate"}
    assert len({g.components() for g in genomes}) > 3


@pytest.mark.parametrize("seed", range(20))
def test_a_program_is_complete_and_carries_its_genome(seed: int) -> None:
    genome = random_genome(random.Random(seed), seed)
    source = program(genome)
    assert genome_of(source) == genome
    name = check(source)
    namespace: dict[str, object] = {}
    exec(compile(source, name, "exec"), namespace)
    assert callable(namespace[name])
    assert max(map(len, source.splitlines()[1:])) < 700 and source.startswith('"""Starts from')


def test_refine_changes_numbers_and_keeps_the_structure() -> None:
    parent = random_genome(random.Random(5), 5)
    child = genome_of(ComponentsGenerator(seed=0).reply(ask_for("refine", parent), 9).text)
    assert child != parent
    assert all(getattr(child, gene) == getattr(parent, gene) for gene in CHOICES)


def test_new_changes_the_structure() -> None:
    parent = random_genome(random.Random(6), 1)
    for call in range(10):
        child = genome_of(ComponentsGenerator(seed=0).reply(ask_for("new", parent), call).text)
        assert any(getattr(child, gene) != getattr(parent, gene) for gene in CHOICES)


def test_simplify_leaves_a_component_out() -> None:
    parent = Genome(walk="annealing", population="uniform", surrogate="ridge")
    child = genome_of(ComponentsGenerator(seed=0).reply(ask_for("simplify", parent), 0).text)
    assert len(child.components()) == 2
    assert len(program(child).splitlines()) < len(program(parent).splitlines())


def test_crossover_takes_from_both() -> None:
    one = Genome(initial="spread", walk="annealing", temperature=0.5)
    other = Genome(initial="centre", surrogate="gaussian", scope="space", acquisition="bound")
    children = [
        genome_of(ComponentsGenerator(seed=0).reply(ask_for("crossover", one, other), c).text) for c in range(12)
    ]
    assert all(child.key() not in (one.key(), other.key()) for child in children)
    assert any(child.walk == "annealing" and child.surrogate == "gaussian" for child in children)


@pytest.mark.parametrize("seed", range(30))
def test_variations_of_variations_stay_programs(seed: int) -> None:
    rng = random.Random(seed)
    genome = other = random_genome(rng, seed)
    for step in (refined, novel, simplified, refined, simplified, simplified):
        other, genome = genome, step(genome, rng)
        assert genome.components() and genome.key() != other.key()
        genome = crossed(genome, other, rng)
        check(program(genome))


def test_a_damaged_genome_is_passed_over() -> None:
    line = Genome().line()
    assert find_genomes(line.replace('"random"', '"no such design"', 1)) == []
    assert find_genomes(line[:40]) == []
    assert find_genomes(line.replace('"patience":25', '"patience":1e9')) == []
    assert find_genomes("# genome: [1, 2]") == []


def test_the_reply_has_the_form_that_was_asked_for() -> None:
    text = ComponentsGenerator(seed=0).query(FIRST)
    read = replies.read(text)
    assert text.startswith("# Description: ") and read is not None and read.description.startswith("Starts from")


def test_genes_that_are_silent_do_not_make_another_program() -> None:
    genome = Genome(walk="better")
    assert dataclasses.replace(genome, kappa=3.0, trees=30).key() == genome.key()


def test_an_evolution_starts_from_given_programs(tmp_path: Path) -> None:
    given = Genome(walk="annealing", surrogate="ridge")
    (tmp_path / "best.py").write_text(program(given))
    generator = ComponentsGenerator(seed=0, start=["design", str(tmp_path / "best.py")])
    first = [genome_of(generator.reply(FIRST, call).text) for call in range(6)]
    assert first[:2] == [DESIGN, given]
    assert all(g.key() not in (DESIGN.key(), given.key()) for g in first[2:])
    assert [g.components() for g in first[2:]] == [g.components() for g in first[:2]] * 2
    assert ComponentsGenerator(seed=0, start="design").start == [DESIGN]
    varied = genome_of(generator.reply(ask_for("refine", Genome(walk="better")), 0).text)
    assert varied.walk == "better", "once there are parents, it is they that are varied"


def test_what_is_no_program_of_components_is_no_start(tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text("class Other: ...\n")
    with pytest.raises(UserError, match="carries no genome"):
        make("components", start=[str(tmp_path / "other.py")])
    with pytest.raises(UserError, match="there is no program"):
        make("components", start=["desing"])


def test_an_unknown_generator_is_told_with_those_there_are() -> None:
    with pytest.raises(UserError, match="components, mixture, openai, replay"):
        make("gpt")
    with pytest.raises(UserError, match="cannot be made with"):
        make("components", temprature=1)

"""Programs from algorithm components: genomes, how they vary, how they become programs, the generator that replies with them."""

from .generator import ComponentsGenerator as ComponentsGenerator
from .genome import DESIGN as DESIGN
from .genome import Genome as Genome
from .genome import find_genomes as find_genomes
from .synthesis import program as program

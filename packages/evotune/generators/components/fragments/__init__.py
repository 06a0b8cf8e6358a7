"""The parts that synthesized programs are made of, as real code: linted, typed, tested, then copied out definition by
definition.

Every top-level definition of every module here is one part. A program contains the parts that it names, the parts
that these name, and nothing else (`evotune.generators.components.synthesis`), so a part may use NumPy, `math`,
`random` and other parts, and nothing else. Rows are row numbers of the table of valid configurations; costs are
lower-better with +inf for a failure.
"""

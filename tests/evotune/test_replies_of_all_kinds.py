"""Language models wrap programs in prose, in several blocks, in half a block, or send none at all."""

from __future__ import annotations

from evotune import replies

CODE = "class A:\n    def __call__(self, func, searchspace):\n        return None\n"


def test_a_reply_as_asked_for() -> None:
    program = replies.read(f"# Description: an idea\n# Code:\n```python\n{CODE}```\n")
    assert program is not None
    assert (program.source, program.description) == (CODE, "an idea")


def test_of_several_blocks_the_optimizer_is_taken() -> None:
    text = f"First install:\n```bash\npip install x\n```\nthen\n```python\n{CODE}```\nUse it so:\n```python\nA()(f, s)\n```\n"
    program = replies.read(text)
    assert program is not None and program.source == CODE


def test_the_last_complete_version_wins_over_a_draft_and_over_a_broken_one() -> None:
    draft, broken = CODE.replace("class A", "class Draft"), CODE.replace("class A", "class Broken(")
    program = replies.read("".join(f"```python\n{c}```\n" for c in (draft, CODE, broken)))
    assert program is not None and program.source == CODE


def test_a_block_that_was_cut_off_is_still_read() -> None:
    program = replies.read("```python\n" + CODE + "    def more(self")
    assert program is not None and "def more" in program.source


def test_code_without_a_fence_and_without_a_description() -> None:
    program = replies.read('"""An idea, told by the docstring."""\n' + CODE)
    assert program is not None and program.description == "An idea, told by the docstring."


def test_what_runs_under_main_is_left_out() -> None:
    program = replies.read(f"```python\n{CODE}\nif __name__ == '__main__':\n    A()(1, 2)\n```")
    assert program is not None and program.source == CODE


def test_a_space_block_is_not_evaluated_and_prose_is_no_program() -> None:
    assert replies.read("I cannot help. Space:\n```python\n__import__('os').system('touch /tmp/x')\n```") is None
    assert replies.read("") is None
    assert replies.read(None) is None

"""metaopt spaces list | show | download: what is in the catalog, what one recording or definition holds, the benchmark hub."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from metabench import catalog, hub, results
from metabench.baseline import baseline
from metabench.errors import UserError
from metabench.formats import kernel_tuner
from metabench.recording import Recording
from metabench.space import Space

from . import console


def main(arguments: list[str]) -> int:
    """Entry point of the verb."""
    options = _parser().parse_args(arguments)
    if options.command == "list":
        print("\n".join(catalog.available(options.root)))
    elif options.command == "show":
        print(describe(options.name, options.root))
    else:
        print(fetch(options))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="metaopt spaces", description=__doc__)
    parser.add_argument(
        "--root", help='folder of a benchmark hub, or "hub": the downloaded one; without it, the bundled'
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="names of the recordings")
    commands.add_parser("show", help="one recording or T1 definition").add_argument("name", help="a name, or a file")
    get = commands.add_parser("download", help="fetch the community's benchmark hub, or some kernels of it")
    get.add_argument("kernels", nargs="*", help=f"of {', '.join(hub.kernels())}; all by default")
    get.add_argument("--to", help="folder to put it in; by default the user's data folder, which spaces.root=hub names")
    get.add_argument("--mirror", help="address of a folder laid out like the hub, in place of its public repository")
    get.add_argument("--commit", help="of the public repository; by default the pinned one, whose files have checksums")
    get.add_argument("--timeout", type=float, default=30.0, help="seconds without a byte that count as a stall")
    return parser


def fetch(options: argparse.Namespace) -> str:
    """Download what is missing; the last line says where it is."""
    to = Path(options.to).expanduser() if options.to else hub.folder()
    paths = hub.files_of(options.kernels)
    with console.progress("downloading", len(paths)) as update:
        order = {path: i for i, path in enumerate(paths)}
        got = hub.fetch(
            to,
            options.kernels,
            options.mirror,
            options.commit,
            options.timeout,
            lambda path, have: update(order[path], f"{path} {have / 1e6:.1f} MB"),
        )
        update(len(paths), "done")
    return f"{to}  {len(paths)} files, {len(got)} of them new"


def describe(name: str, root: str | None) -> str:
    """Facts on a recording (or on each of a kernel's), or on a T1 definition."""
    path = Path(name).expanduser()
    if name.endswith((".json", ".json.gz")) and "ConfigurationSpace" in kernel_tuner.parse(path):
        return describe_space(Space.from_t1(path))
    return "\n\n".join(describe_recording(r) for r in catalog.select(name, root))


def describe_space(space: Space) -> str:
    """Parameters, restrictions and sizes."""
    rows = [
        [n, len(v), ", ".join(map(str, v[:8])) + (", ..." if len(v) > 8 else "")]
        for n, v in zip(space.names, space.values, strict=True)
    ]
    lines = [results.text_table(["parameter", "values", ""], rows), ""]
    lines += [f"restriction: {r.text}" for r in space.restrictions]
    return "\n".join([*lines, f"{space.cartesian_size:,} configurations, {len(space):,} of them valid"])


def describe_recording(recording: Recording) -> str:
    """Space, best and median value, budget, hardness."""
    lines = [recording.name, "=" * len(recording.name), describe_space(recording.space)]
    lines += [f"{recording.failures} failed", f"optimum {recording.optimum:.4g} {recording.unit}"]
    best = recording.space.describe(int(recording.losses.argmin()))
    lines += [
        f"   at {', '.join(f'{k}={v}' for k, v in best.items())}",
        f"median {recording.median:.4g} {recording.unit}",
    ]
    try:
        base = baseline(recording)
    except UserError as error:
        return "\n".join([*lines, f"no budget: {error}"])
    lines.append(f"budget {base.end:.4g} s, {base.evaluations:.1f} evaluations of mean cost")
    near = [f"{(recording.losses <= _within(recording, share)).sum()} within {share:.0%}" for share in (0.05, 0.1)]
    return "\n".join([*lines, f"hardness: {', '.join(near)} of the optimum"])


def _within(recording: Recording, share: float) -> float:
    best = float(recording.losses.min())
    return best + share * float(np.abs(best))

"""The Hugging Face Hub: download to its cache, upload with a model card. Imported only when "hub:" is asked for."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

PATTERNS = ("config.json", "*.safetensors", "theta.state", "*.pt")
CARD = """---
license: {license}
library_name: lopt
tags: [learned-optimizer, meta-weights, {kind}]
---
# {title}

Meta-weights of the learned optimizer family `{kind}` ({count:,} numbers), for [lopt](https://pypi.org/project/metaopt-toolkit/).

{description}

```python
import lopt
optimizer = lopt.create("{optimizer}", model.parameters(), weights="hub:{repo}"{extra})
```

`model.safetensors` holds the tensors, `config.json` what they are:

```json
{config}
```
"""


def download(place: str) -> Path:
    """Folder in the Hub's cache for "user/name" or "user/name@revision". ValueError, one sentence, if it cannot be had."""
    from huggingface_hub import HfApi

    repo, _, revision = place.partition("@")
    cache = os.environ.get("HF_HUB_CACHE")
    try:
        api = HfApi(endpoint=os.environ.get("HF_ENDPOINT"))
        return Path(
            api.snapshot_download(repo, revision=revision or None, cache_dir=cache, allow_patterns=list(PATTERNS))
        )
    except Exception as e:  # its errors have no common base: OSError, HTTP errors of two libraries, ValueError
        reason = str(e).strip().splitlines()[0] if str(e).strip() else type(e).__name__
        raise ValueError(f"hub:{place} is not in the local cache and could not be fetched ({reason}); pass a local folder "
                         "or file, or 'random:SEED' (takes steps, is not trained)") from e  # fmt: skip


def upload(folder: Path, repo: str, private: bool, token: str | None) -> str:
    """Create the repository if need be and commit the folder; its address."""
    from huggingface_hub import HfApi

    api = HfApi(endpoint=os.environ.get("HF_ENDPOINT"), token=token)
    address = api.create_repo(repo, private=private, exist_ok=True)
    api.upload_folder(repo_id=repo, folder_path=folder, commit_message="Upload meta-weights")
    return str(address)


def model_card(
    title: str,
    tensors: Mapping[str, Tensor],
    config: Mapping[str, Any],
    repo: str = "user/name",
    license: str = "apache-2.0",
    description: str = "How they were trained has not been written down.",
) -> str:
    """README.md of a repository of meta-weights."""
    kind = config["kind"]
    return CARD.format(
        title=title, kind=kind, license=license, repo=repo, description=description,
        optimizer="mulo" if config.get("hidden_lr_mult") else kind,
        extra=", num_steps=10_000" if kind == "velo" else "",
        config=json.dumps(dict(config), indent=1), count=sum(math.prod(x.shape) for x in tensors.values()),
    )  # fmt: skip

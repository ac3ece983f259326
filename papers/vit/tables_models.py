"""Table 1's parameter counts from the configurations alone, built on the `meta` device: no weights, no memory.

The paper does not say what its millions include, so the parts are counted apart: the encoder with its embeddings and
last norm, the pre-logits layer (dense + tanh, only there in pre-training) and the ImageNet-1k head.
"""

from __future__ import annotations

from papers.vit.tables_source import value
from shared.published import Published
from shared.record import Record

PATCHES = {"ViT-Base": (16, 32), "ViT-Large": (16, 32), "ViT-Huge": (14,)}  # the sizes that the paper trains
CLASSES = 1000


def count(row: dict, patch: int) -> dict[str, int]:
    """Parameters of one row of Table 1 with `patch` x `patch` patches at 224 px, by part."""
    import torch
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(
        num_hidden_layers=int(value(row["layers"])), hidden_size=int(value(row["hidden size"])),
        intermediate_size=int(value(row["MLP size"])), num_attention_heads=int(value(row["heads"])),
        patch_size=patch, image_size=224,
    )  # fmt: skip
    with torch.device("meta"):
        model = ViTModel(config, add_pooling_layer=True)
    total = sum(p.numel() for p in model.parameters())
    pre_logits = sum(p.numel() for p in model.pooler.parameters())
    return {"encoder": total - pre_logits, "pre_logits": pre_logits, "head": CLASSES * (config.hidden_size + 1)}


def table1(record: Record, tables: dict[str, Published]) -> list[dict]:
    """Counts beside the printed millions; judged is the encoder with pre-logits at the smallest patch size."""
    record.section("Table 1: parameters counted from the configurations (meta device, 224 px)")
    record.say(
        f"  {'model':<14}{'printed':>8}{'encoder':>14}{'+ pre-logits':>14}{'+ 1k head':>14}{'+ both':>14}"
        "   prints as printed"
    )
    results = []
    for name, row in tables["table1"].rows.items():
        printed = row["params"]
        for patch in PATCHES[name]:
            parts = count(row, patch)
            sums = {
                "encoder": parts["encoder"],
                "encoder + pre-logits": parts["encoder"] + parts["pre_logits"],
                "encoder + head": parts["encoder"] + parts["head"],
                "encoder + pre-logits + head": sum(parts.values()),
            }
            fits = [what for what, n in sums.items() if printed.format(n / 1e6) == printed.printed]
            results.append({"model": name, "patch": patch, "printed": printed.printed, "counts": sums, "fits": fits})
            record.say(
                f"  {f'{name}/{patch}':<14}{printed.printed + 'M':>8}" + "".join(f"{n:>14,}" for n in sums.values())
                + f"   {', '.join(fits) or 'none'}"
            )  # fmt: skip
        smallest = next(r for r in results if r["model"] == name and r["patch"] == min(PATCHES[name]))
        record.judge(printed, smallest["counts"]["encoder + pre-logits"] / 1e6)
    judged = "encoder + pre-logits"
    misses = [r for r in results if judged not in r["fits"] and r["patch"] == min(PATCHES[r["model"]])]
    record.say(
        f"  judged: {judged} at the smallest patch size, what ImageNet-21k and JFT pre-training holds besides its head"
    )
    for r in misses:
        others = [f"/{o['patch']} ({', '.join(o['fits'])})" for o in results if o["model"] == r["model"] and o["fits"]]
        record.say(
            f"  {r['model']}/{r['patch']} has {r['counts'][judged] / 1e6:.1f}M, not {r['printed']}M; "
            f"the printed number is that of {' or '.join(others) if others else 'none of the counts'}"
        )
    return results

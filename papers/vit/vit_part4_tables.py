"""Recompute every figure that the article derives from the paper's tables, then audit the tables themselves.

    python vit_part4_tables.py              under a second, no torch; all figures of the article's log: equal
    python vit_part4_tables.py --models     also Table 1's parameter counts from configurations (needs torch, 10 s)
    python vit_part4_tables.py --figures    also draws Figures 2 and 3 and Table 6, PNG and SVG (5 s)

Writes results/vit/tables.log and tables.json.
"""

from __future__ import annotations

from dataclasses import dataclass

from papers.vit import tables_audit as audit
from papers.vit.tables_article import article_sheet
from papers.vit.tables_noise import noise
from papers.vit.tables_source import read_tables
from shared import cli
from shared.errors import UserError
from shared.published import load, published_file
from shared.record import Record


@dataclass
class Config(cli.Common):
    models: bool = False
    """count Table 1's parameters from the models' configurations (imports torch)"""
    figures: bool = False
    """draw the figures into results/vit/figures (imports matplotlib)"""


def main(config: Config) -> Record:
    published = load("vit", "tables")
    tables = read_tables()
    with Record(
        "vit", "tables", config=config, results=config.results,
        question="Is every figure that the article derives from the paper's tables right, and do the tables agree?",
    ) as record:  # fmt: skip
        sheet = article_sheet(tables)
        record.say("\n".join(sheet.lines).strip("\n"))
        if set(sheet.figures) != set(published.numbers):
            odd = min(set(sheet.figures) ^ set(published.numbers))
            raise UserError(
                f"{published_file('vit', 'tables')}: does not belong to the tables beside it ({odd!r} is in one only); "
                "restore them from version control"
            )
        for id, measured in sheet.figures.items():
            record.judge(published[id], measured)
        record.results["article"] = sheet.figures

        record.results["cross_table"] = audit.cross_table(record, tables)
        record.results["noise"] = noise(record, tables)
        record.results["compute"] = audit.compute_claim(record, tables)
        record.results["rounding"] = audit.rounding(record, tables)
        if config.models:
            from papers.vit.tables_models import table1

            record.results["table1"] = table1(record, tables)
        if config.figures:
            from papers.vit.tables_figures import draw

            for path, caption in draw(tables, record.figures_dir):
                record.figure(path, caption)
        audit.inputs(record, tables)
        not_run(record, tables)
        record.print_verdicts()
        record.cannot_show(
            "whether the printed accuracies are right. It repeats the arithmetic on them; the runs behind them "
            "(JFT-300M, thousands of TPUv3-core-days) are not repeated."
        )
    return record


def not_run(record: Record, tables: dict) -> None:
    """Every other printed cell of the paper gets its verdict too: nobody measured it here."""
    judged = {(v.source, v.id) for v in record.verdicts}
    for name, table in tables.items():
        for number in table.numbers.values():
            if (number.source, number.id) in judged:
                continue
            if name == "table1":
                why = "counted with --models" if number.id.endswith("/params") else "a definition, not a measurement"
            else:
                why = "the paper's own training runs are not repeated"
            record.judge(number, None, why_not_run=why)


if __name__ == "__main__":
    cli.run(main, Config)

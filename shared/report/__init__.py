"""One self-contained page from the result files below a results folder: nothing is computed here, nothing is fetched.

    python -m shared.report                       results/report/index.html
    python -m shared.report --results results/demo

`collect` reads the result JSON files, `images` brings their figures into the page, `page` renders it.
"""

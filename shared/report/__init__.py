"""One self-contained page from the result files below a results folder: nothing is computed here, nothing is fetched.

`collect` reads the result files, `page` renders them and brings their figures into the page.
"""

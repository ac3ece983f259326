"""Any vision model on any images: `python -m shared.probe`. It knows no paper.

Follow one run: `__main__` (options and story), `images` (which images train and test; `lists`: targets in a file;
`copies`: the same image twice), `probing` (one model on one data set; `shots`: few-shot; `others`: nearest neighbours,
logistic regression), `scores` (what is counted), `rows` (what is kept and shown), `drawings`, `head` (save, predict).
"""

"""Training from scratch, for any paper: images and their order, one run that a kill does not end, all runs of a script.

stream      images as arrays, class-balanced subsets, batches and crops drawn from (seed, step)
runs        what a run is called and leaves on disk: its curve, its starts
trainer     one run: the update, scores, checkpoint, the loop
experiment  all runs of a script: what they will cost, in which order, one process or several

A paper brings a network, a recipe and what is scored when: subclasses of `Curve`, `Trainer` and `Experiment`.
"""

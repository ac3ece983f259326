"""Architectures as graphs: read, checked, measured, priced and aligned. Only `trace` and `dryrun` import torch.

read        a graph file -> Graph: strict about structure, liberal about the variants that public files use
place       one layer where it stands: its settings, what comes in; what a row of the table may ask
kinds       the table: what each layer type does to a shape, and what it costs
windows     its convolutions and poolings; reshapes: its merges, and layers that only move numbers
convention  how things are counted; RIGHT is the default, a publication brings its own formulas
measure     Graph -> Model: shapes, parameters and multiply-accumulates of every layer; two counts compared
language    what is asked of language models: active parameters, cache, few bits, optimisers
cost        memory, GPU fit, training cost; how numbers print
align       two models' layers side by side; fold: repeated blocks as one
trace       a torch module on the meta device -> Model; dryrun: its forward pass without weights
"""

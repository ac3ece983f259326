"""Architectures as graphs: read, checked, measured, priced and aligned. Imports neither torch nor numpy.

read        a graph file -> Graph: strict about structure, liberal about the variants that public files use
layers      what each layer type does to a shape, and what it costs (layers_* hold the families)
measure     Graph -> Model: shapes, parameters and multiply-accumulates of every layer under a Convention
convention  how things are counted; RIGHT is the default, a publication brings its own
cost        memory, GPU fit, training cost
align       two models' layers side by side; fold: repeated blocks as one
explain     why a graph's count is not its model's official count
trace       a torch module on the meta device -> Model (the one module that imports torch)
"""

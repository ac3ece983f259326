"""Words that the page uses and does not explain where they stand; README's glossary has the same ones, and more."""

WORDS = {
    "verdict": "one of the six words above for a published number beside the measured one",
    "stand-in": "another model or other images in the place of the paper's; its numbers are not comparable",
    "reference": "the experiment whose verdict a published number has; variants are listed beside it",
    "class": 'one of the labels; "per class" counts images of one label',
    "top-1, top-5": "right when the label is the best guess, or among the five best",
    "validation, held out": "images that choose the best step of a training, and images that choose nothing",
    "features": "the vector that a frozen model gives for an image",
    "linear probe": "a linear map from features to classes, here by ridge regression in closed form; the model is not "
    "trained",
    "lambda": "the penalty of that ridge regression",
    "shot": "a labelled training image per class: 5-shot is five of each",
    "draw": "one random choice of those images; more draws show how much the choice matters",
    "seed": "the number that decides everything random in one run",
    "SD, standard error": "the spread over draws or seeds; the uncertainty that comes from the size of the test set",
    "Welch's test": "whether two means differ by more than the spread of their runs explains",
    "ablation": "the same training with one detail changed, to see what the detail does",
    "bf16": "numbers of 16 bits instead of 32: faster, with two or three digits",
    "graph": "a model as a list of layers and of the connections between them",
    "multiply-adds (MACs)": "one multiplication and one addition, counted as one operation; many papers call them "
    "FLOPs",
    "Pareto front": "the models that no cheaper one beats: each better one costs more",
    "evidence": "the log, JSON and figures of a run, recorded in results/",
}

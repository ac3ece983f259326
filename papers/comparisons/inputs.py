"""Two real models at equal inputs where that can be: as many tokens, or images of one size.

A count of operations says something of two designs only when both are given the same. Parameters do not change.
"""

from __future__ import annotations

from collections.abc import Sequence

from papers.comparisons.models import Source
from shared.errors import UserError
from shared.graph.measure import Model
from shared.graph.place import text

TOKENS, IMAGE = 2, 4  # axes of a built model's input: batch and tokens; batch, channels, height and width


def measured(
    sources: Sequence[Source], length: int | None = None, image: tuple[int, int] | None = None, *, own: bool = False
) -> tuple[list[Model], str]:
    """Both models, and a sentence where one of them is measured at an input that is not its own ("" otherwise).

    A graph declares its input, so it is left alone, and so is a size that the user chose. own: leave all alone.
    """
    models = [source.measure(length=length, image=image) for source in sources]
    shapes = [model.inputs[0].output if model.inputs else None for model in models]
    axes = {len(shape or ()) for shape in shapes}
    fixed = own or length or image or any(source.graph for source in sources)
    if fixed or shapes[0] == shapes[1] or len(axes) > 1 or not axes <= {TOKENS, IMAGE}:
        return models, ""
    # the larger is made smaller first: every model has seen few tokens, not every one can take more
    for at in sorted((0, 1), key=lambda side: -shapes[side][-1]):
        wanted = shapes[1 - at]
        try:
            if axes == {TOKENS}:
                again = sources[at].measure(length=wanted[-1])
            else:
                again = sources[at].measure(image=(wanted[-2], wanted[-1]))
        except UserError:  # its positions or windows are for its own size
            continue
        if again.inputs[0].output == wanted:
            own = text(shapes[at])
            models[at] = again
            return models, f"Both are measured at {text(wanted)}; {again.name}'s own input is {own}."
    return models, ""

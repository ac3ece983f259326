"""Which of a transformers model's outputs is the representation: one table, one row an architecture.

A row says what transformers' own documentation of that model says (`Family.source`): which output stands for the whole
image, which tokens stand before the patches, and which norm the tokens have been through. `pool` chooses another way
where a model has tokens: "cls", "mean" (of the patches), or "cls+mean" (one after the other).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from shared.errors import UserError
from shared.models import GROUP_NORM

POOLER = "pooler_output"  # what transformers calls the one output for the whole image
TRANSFORMER = ("embeddings", "encoder", "layers", "layernorm", "pooler", "classifier", "decoder", "head")
CONVOLUTIONAL = ("embedder", "encoder", "pooler", "norm", "classifier")
# Heads, for which an encoder has no place; and a pooler, where it is not asked for.
HEADS = ("classifier.", "decoder.", "head.", "lm_head.", "cls_classifier.", "distillation_classifier.", "decode_head.")
HEADS += ("auxiliary_head.", "segmentation_head.", "projector.", "head_dist.", "dist_head.")
# The other tower of a model of images and texts, and what compares both.
TEXT = ("text_model.", "text_projection.", "visual_projection.", "vision_projection.", "logit_scale", "logit_bias")
TEXT += ("text_encoder.", "text_decoder.", "itm_head.", "text_proj.", "vision_proj.")


class Family(NamedTuple):
    """One architecture: transformers' classes, its representation, its habits.

    encoder, classifier: transformers' classes; classifier "" where it has none. output: what is the representation:
    an output's name, or "cls", "mean" (of the patches), "maps" (mean over the places of a feature map). words: the same
    for a reader. tokens: what `last_hidden_state` has been through, "" where it is no row of tokens. prefix: tokens
    before the patches; more: config.json's key with the number of further ones. class_token: whether the first one is
    such; "pooler_output" where only the pooler norms it. processor: of `processors.PROCESSORS`, where the
    preprocessor's file names none. fixed_size: whether the network takes config.json's image_size only.
    """

    encoder: str
    classifier: str = ""
    output: str = POOLER
    words: str = "mean of the last feature map"
    tokens: str = ""
    prefix: int = 0
    more: str = ""
    class_token: bool | str = False
    processor: str = "ViT"
    fixed_size: bool = False
    arguments: tuple[tuple[str, Any], ...] = ()  # of the class
    settings: tuple[tuple[str, Any], ...] = ()  # of config.json that are replaced
    vision: bool = False  # config.json may have the image tower's part in vision_config
    cut: tuple[str, ...] = ()  # layers that are replaced by nothing: what enters them is the representation
    unused: tuple[str, ...] = ()  # weights that the forward pass never reads
    not_read: tuple[str, ...] = ()  # how the names of weights begin that the encoder has no place for
    dim: Callable[[Any], int] | None = None  # width out of config.json; else it is seen in a run without weights
    # The article's families say these themselves, so that describing one imports neither torch nor transformers.
    own: tuple[str, ...] = ()  # the first parts of its weights' names, in this and in older layouts
    transformer: bool = False
    one_token: bool = False  # of the last layer's tokens only the class token is read
    float32_because: str = ""

    @property
    def article(self) -> bool:
        """Whether it is one of the article's families, whose settings are checked one by one."""
        return bool(self.own)


def _last(config: Any) -> int:
    return config.hidden_sizes[-1]


NORMED = "after the last layer norm"
CLASS_TOKEN = f"class token {NORMED}"
PATCHES = f"mean of the patch tokens {NORMED}"

# The article's four, as they have been from the start.
ARTICLE = {
    "vit": Family(
        "ViTModel",
        "ViTForImageClassification",
        words="pre-logits (dense layer and tanh on the class token)",
        tokens=NORMED,
        prefix=1,
        class_token=True,
        dim=lambda c: c.pooler_output_size or c.hidden_size,
        own=("vit", *TRANSFORMER),
        fixed_size=True,
        transformer=True,
        one_token=True,
    ),
    "bit": Family(
        "BitModel",
        "BitForImageClassification",
        dim=lambda c: _last(c) * c.width_factor,
        processor="Bit",
        own=("bit", *CONVOLUTIONAL),
        float32_because=GROUP_NORM,
    ),
    "resnet": Family(
        "ResNetModel",
        "ResNetForImageClassification",
        dim=_last,
        processor="ConvNext",
        own=("resnet", *CONVOLUTIONAL),
    ),
    "dinov2": Family(
        "Dinov2Model",
        "Dinov2ForImageClassification",
        words=CLASS_TOKEN,
        tokens=NORMED,
        prefix=1,
        class_token=True,
        dim=lambda c: c.hidden_size,
        processor="Bit",
        own=("dinov2", *TRANSFORMER),
        transformer=True,
        unused=("embeddings.mask_token",),
    ),
}

_CLASS_TOKEN = Family("", output="cls", words=CLASS_TOKEN, tokens=NORMED, prefix=1, class_token=True, fixed_size=True)
_SELF_SUPERVISED = _CLASS_TOKEN._replace(fixed_size=False, processor="Bit", unused=("mask_token",))
# CLIP's paper probes this output, before the projection to the space of texts; its patches' norm is none.
_CLIP = Family(
    "CLIPVisionModel",
    "CLIPForImageClassification",
    words="class token after post_layernorm, before the projection",
    tokens="without the norm, which is the class token's",
    prefix=1,
    class_token=POOLER,
    processor="CLIP",
    fixed_size=True,
    vision=True,
    not_read=TEXT,
)
_SIGLIP = Family(
    "SiglipVisionModel",
    "SiglipForImageClassification",
    words="output of the attention pooling head",
    tokens="after post_layernorm",
    processor="Siglip",
    fixed_size=True,
    vision=True,
    not_read=TEXT,
)
_BEIT = Family(
    "BeitModel",
    "BeitForImageClassification",
    words="pooler (layer norm of the mean of the patch tokens; the class token without use_mean_pooling)",
    tokens="as the last layer gives them (normed without use_mean_pooling)",
    prefix=1,
    class_token=True,
    processor="Beit",
    fixed_size=True,
)
_WINDOWS = Family("", words=PATCHES, tokens=NORMED, fixed_size=True)  # windows, or positions, of one image size
_MAP = Family("", processor="ConvNext")
_AIMV2 = _SIGLIP._replace(encoder="Aimv2VisionModel", classifier="", tokens="after the last RMS norm", processor="CLIP")

# A further architecture is one more row here, and one in tests/shared/families.py, which compares it with transformers.
FAMILIES: dict[str, Family] = {
    **ARTICLE,
    "dinov2_with_registers": _SELF_SUPERVISED._replace(
        encoder="Dinov2WithRegistersModel",
        classifier="Dinov2WithRegistersForImageClassification",
        more="num_register_tokens",
    ),
    "dinov3_vit": _SELF_SUPERVISED._replace(
        encoder="DINOv3ViTModel", more="num_register_tokens", processor="DINOv3ViT"
    ),
    "dinov3_convnext": Family(
        "DINOv3ConvNextModel",
        words="layer norm of the mean of the last feature map",
        tokens=NORMED,
        prefix=1,  # the mean stands before the places
        processor="DINOv3ViT",
    ),
    "clip": _CLIP,
    "clip_vision_model": _CLIP,
    "metaclip_2": _CLIP._replace(encoder="MetaClip2VisionModel", classifier="MetaClip2ForImageClassification"),
    "chinese_clip": _CLIP._replace(encoder="ChineseCLIPVisionModel", classifier="", processor="ChineseCLIP"),
    "siglip": _SIGLIP,
    "siglip_vision_model": _SIGLIP,
    "siglip2": _SIGLIP._replace(  # the NaFlex checkpoints; those of one size are "siglip"
        encoder="Siglip2VisionModel",
        classifier="",
        processor="Siglip2",
        dim=lambda c: c.hidden_size,  # its positions are not made without numbers
    ),
    "aimv2": _AIMV2,
    "aimv2_vision_model": _AIMV2,
    "deit": _CLASS_TOKEN._replace(
        encoder="DeiTModel",
        classifier="DeiTForImageClassification",
        prefix=2,  # class and distillation token
        processor="DeiT",
        arguments=(("add_pooling_layer", False),),
        not_read=("pooler.",),
    ),
    "vit_msn": _CLASS_TOKEN._replace(encoder="ViTMSNModel", classifier="ViTMSNForImageClassification"),
    # all patches are seen, in their order; by itself the class hides three quarters, at random
    "vit_mae": _CLASS_TOKEN._replace(encoder="ViTMAEModel", settings=(("mask_ratio", 0.0),)),
    "ijepa": Family(
        "IJepaModel",
        "IJepaForImageClassification",
        output="mean",
        words=PATCHES,
        tokens=NORMED,
        fixed_size=True,
        not_read=("pooler.",),
    ),
    "pixio": _SELF_SUPERVISED._replace(
        encoder="PixioModel",
        output=POOLER,
        words=f"mean of the class tokens {NORMED}",
        prefix=0,
        more="n_cls_tokens",
        class_token=POOLER,
    ),
    "beit": _BEIT,
    "data2vec-vision": _BEIT._replace(
        encoder="Data2VecVisionModel",
        classifier="Data2VecVisionForImageClassification",
        arguments=(("add_pooling_layer", True),),  # by itself this class has none
    ),
    "hiera": Family(
        "HieraModel",
        "HieraForImageClassification",
        words="layer norm of the mean of the patch tokens",
        tokens="before the pooler's layer norm",
        processor="Bit",
        fixed_size=True,
    ),
    "swin": _WINDOWS._replace(encoder="SwinModel", classifier="SwinForImageClassification"),
    "swinv2": _WINDOWS._replace(encoder="Swinv2Model", classifier="Swinv2ForImageClassification"),
    "focalnet": _WINDOWS._replace(
        encoder="FocalNetModel", classifier="FocalNetForImageClassification", processor="Bit", fixed_size=False
    ),
    "levit": _WINDOWS._replace(
        encoder="LevitModel",
        classifier="LevitForImageClassification",
        words="mean of the patch tokens",
        tokens="as the last layer gives them",
        processor="Levit",
    ),
    "pvt": _CLASS_TOKEN._replace(encoder="PvtModel", classifier="PvtForImageClassification", processor="Pvt"),
    "pvt_v2": Family("PvtV2Model", "PvtV2ForImageClassification", output="maps", processor="Pvt"),
    "segformer": Family("SegformerModel", "SegformerForImageClassification", output="maps", processor="Segformer"),
    "convnext": _MAP._replace(
        encoder="ConvNextModel",
        classifier="ConvNextForImageClassification",
        words="layer norm of the mean of the last feature map",
    ),
    "convnextv2": _MAP._replace(
        encoder="ConvNextV2Model",
        classifier="ConvNextV2ForImageClassification",
        words="layer norm of the mean of the last feature map",
    ),
    "regnet": _MAP._replace(encoder="RegNetModel", classifier="RegNetForImageClassification"),
    "efficientnet": _MAP._replace(
        encoder="EfficientNetModel", classifier="EfficientNetForImageClassification", processor="EfficientNet"
    ),
    "mobilenet_v1": _MAP._replace(
        encoder="MobileNetV1Model", classifier="MobileNetV1ForImageClassification", processor="MobileNetV1"
    ),
    "mobilenet_v2": _MAP._replace(
        encoder="MobileNetV2Model", classifier="MobileNetV2ForImageClassification", processor="MobileNetV2"
    ),
    "mobilevit": _MAP._replace(
        encoder="MobileViTModel", classifier="MobileViTForImageClassification", processor="MobileViT"
    ),
    "mobilevitv2": _MAP._replace(
        encoder="MobileViTV2Model", classifier="MobileViTV2ForImageClassification", processor="MobileViT"
    ),
    # these keep their last norm with the classifier, so the classifier's class is used without its last layer
    "poolformer": Family(
        "PoolFormerForImageClassification",
        "PoolFormerForImageClassification",
        output="logits",
        words="mean of the last feature map after its group norm",
        processor="PoolFormer",
        cut=("classifier",),
    ),
    "swiftformer": Family(
        "SwiftFormerForImageClassification",
        "SwiftFormerForImageClassification",
        output="logits",
        words="mean of the last feature map after its batch norm",
        cut=("head", "dist_head"),
    ),
    "cvt": Family(
        "CvtForImageClassification",
        "CvtForImageClassification",
        output="logits",
        words="class token (or mean of the last feature map) after the layer norm",
        processor="ConvNext",
        cut=("classifier",),
    ),
}


def source(kind: str) -> str:
    """Where transformers says what the outputs of an architecture are."""
    page = kind.removesuffix("_vision_model").removesuffix("-vision")
    return f"https://huggingface.co/docs/transformers/model_doc/{page}"


def chosen(spec: str, family: Family, pool: str) -> tuple[str, str]:
    """(output, words) of the representation for a `pool`: see `Answer`. UserError where there are no such tokens."""
    if not pool:
        return family.output, family.words
    if not family.tokens:
        raise UserError(
            f"{spec}: has no tokens, only feature maps; leave pool {pool!r} out: it gives the {family.words}"
        )
    if "cls" in pool and not family.class_token:
        raise UserError(f"{spec}: has no class token; expected pool mean, or none for the {family.words}")
    first = family.words if family.class_token == POOLER else f"class token {family.tokens}"
    words = {"cls": first, "mean": f"mean of the patch tokens {family.tokens}"}
    return pool, ", and ".join(words[part] for part in pool.split("+"))

#!/usr/bin/env python3
"""Writes many more networks than export.py does as ONNX files with random weights: to see which of them compile.

    python3 -m venv /tmp/wide && /tmp/wide/bin/pip install numpy torch==2.15.0 torchvision==0.29.2 onnx==1.23.2 timm transformers
    /tmp/wide/bin/python tests/networks/wide.py /tmp/wide_models                  # all of them; what PyTorch cannot export is told
    /tmp/wide/bin/python tests/networks/wide.py /tmp/wide_models bert crnn        # those whose names contain one of these
    for f in /tmp/wide_models/*.onnx; do kernel-gen extract $f > /dev/null; done  # which compile
    /tmp/networks/bin/python tests/networks/compare.py /tmp/wide_models/bert.onnx # results and times beside ONNX Runtime's

Vision models have the sizes that people use; language models are small, since their operators are those of large ones.
"""

import argparse
import pathlib
import warnings

import timm
import torch
import torchvision
import transformers as tf
from torch import nn
from torch.nn import functional

warnings.simplefilter("ignore")
OPSET = 17
TORCHVISION = "alexnet googlenet mnasnet0_5 maxvit_t swin_v2_t shufflenet_v2_x0_5 r3d_18 r2plus1d_18 mc3_18"
TIMM = """beit_base_patch16_224 cait_xxs24_224 coat_tiny coatnet_nano_rw_224 convit_tiny convmixer_768_32 convnextv2_atto crossvit_tiny_240
cspresnet50 cspdarknet53 davit_tiny deit3_small_patch16_224 densenet121 dla34 dpn68 eca_nfnet_l0 edgenext_xx_small efficientformer_l1
efficientformerv2_s0 efficientvit_b0 efficientvit_m0 fastvit_t8 fbnetc_100 focalnet_tiny_srf gcvit_xxtiny ghostnet_100 ghostnetv2_100
hardcorenas_a hgnet_tiny hgnetv2_b0 hrnet_w18_small inception_next_tiny inception_resnet_v2 inception_v4 lambda_resnet26t levit_128s
mambaout_femto maxvit_nano_rw_256 mixer_s32_224 mixnet_s mobilenetv4_conv_small mobilenetv4_hybrid_medium mobileone_s0 mobilevit_xxs
mobilevitv2_050 mvitv2_tiny nest_tiny nextvit_small nf_resnet50 pit_ti_224 poolformer_s12 pvt_v2_b0 regnetz_b16 repghostnet_050 repvgg_a0
repvit_m0_9 res2net50_26w_4s resmlp_12_224 resnest14d rexnet_100 sebotnet33ts_256 selecsls42 sequencer2d_s shvit_s1 skresnet18 starnet_s1
swinv2_tiny_window8_256 swinv2_cr_tiny_224 tiny_vit_5m_224 tinynet_e tnt_s_legacy_patch16_224 tresnet_m twins_svt_small vgg11 visformer_tiny
vit_tiny_patch16_224 vit_small_patch14_dinov2 vit_small_patch14_reg4_dinov2 vitamin_small_224 vovnet39a xception41 xcit_nano_12_p16_224
samvit_base_patch16 bat_resnext26ts gmixer_24_224 gmlp_s16_224 hiera_tiny_224"""


class Of(nn.Module):
    """A model, and what is taken of its results."""

    def __init__(self, model, run):
        super().__init__()
        self.model, self.run = model.eval(), run

    def forward(self, *inputs):
        return self.run(self.model, *inputs)


class Crnn(nn.Module):
    """Text recognition: convolutions, two recurrent layers in both directions, a classifier for each column."""

    def __init__(self, cell):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU())
        self.layers = cell(32 * 8, 32, num_layers=2, bidirectional=True, batch_first=True)
        self.classes = nn.Linear(64, 20)

    def forward(self, x):
        columns = self.features(x).permute(0, 3, 1, 2).flatten(2)
        return self.classes(self.layers(columns)[0])


def language_models():
    """Small language models and those that read images into words: name, what makes it, what is run, inputs."""
    size = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128)
    words = dict(vocab_size=100, **size)
    vision = dict(image_size=64, patch_size=16, **size)
    ids, mask = torch.randint(5, 90, (1, 16)), torch.ones(1, 16, dtype=torch.long)
    image = torch.randn(1, 3, 64, 64)
    masked = lambda m, i, k: m(input_ids=i, attention_mask=k).last_hidden_state
    distil = dict(vocab_size=100, dim=64, n_layers=2, n_heads=2, hidden_dim=128)
    t5 = dict(vocab_size=100, d_model=64, d_kv=32, d_ff=128, num_layers=2, num_heads=2)
    trocr = dict(vocab_size=100, d_model=64, decoder_layers=1, decoder_attention_heads=2, decoder_ffn_dim=64)
    whisper = dict(vocab_size=100, d_model=64, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2)
    whisper |= dict(encoder_ffn_dim=64, decoder_ffn_dim=64, num_mel_bins=80, max_source_positions=100, pad_token_id=0)
    whisper |= dict(bos_token_id=1, eos_token_id=2, decoder_start_token_id=1)
    detr = dict(d_model=64, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2, num_queries=10)
    detr |= dict(encoder_ffn_dim=64, decoder_ffn_dim=64, use_pretrained_backbone=False, backbone="resnet18", use_timm_backbone=True)
    sam = tf.SamVisionConfig(**(vision | dict(window_size=2, output_channels=16, global_attn_indexes=[1], mlp_dim=64)))
    return [
        ("bert", lambda: tf.BertModel(tf.BertConfig(**words)), masked, [ids, mask]),
        ("roberta", lambda: tf.RobertaModel(tf.RobertaConfig(**words)), masked, [ids, mask]),
        ("distilbert", lambda: tf.DistilBertModel(tf.DistilBertConfig(**distil)), masked, [ids, mask]),
        ("mpnet", lambda: tf.MPNetModel(tf.MPNetConfig(**words)), masked, [ids, mask]),
        ("t5_encoder", lambda: tf.T5EncoderModel(tf.T5Config(**t5)), masked, [ids, mask]),
        ("clip_text", lambda: tf.CLIPTextModel(tf.CLIPTextConfig(eos_token_id=99, **words)), lambda m, i: m(input_ids=i).pooler_output, [ids]),
        ("clip_vision", lambda: tf.CLIPVisionModel(tf.CLIPVisionConfig(**vision)), lambda m, x: m(x).pooler_output, [image]),
        (
            "trocr_decoder",
            lambda: tf.TrOCRForCausalLM(tf.TrOCRConfig(cross_attention_hidden_size=64, **trocr)),
            lambda m, i, e: m(input_ids=i, encoder_hidden_states=e, use_cache=False).logits,
            [ids, torch.randn(1, 17, 64)],
        ),
        ("whisper_encoder", lambda: tf.WhisperModel(tf.WhisperConfig(**whisper)).encoder, lambda m, x: m(x).last_hidden_state, [torch.randn(1, 80, 200)]),
        ("detr", lambda: tf.DetrForObjectDetection(tf.DetrConfig(**detr)), lambda m, x: m(x).logits, [torch.randn(1, 3, 128, 128)]),
        ("sam_encoder", lambda: tf.SamModel(tf.SamConfig(vision_config=sam.to_dict())).vision_encoder, lambda m, x: m(x).last_hidden_state, [image]),
    ]


def models():
    """All models: name, what makes one, inputs."""
    image = torch.randn(1, 3, 224, 224)
    for name in TORCHVISION.split():
        extra = dict(aux_logits=False, init_weights=False) if name == "googlenet" else {}
        video = torch.randn(1, 3, 16, 112, 112)
        make = lambda name=name, extra=extra: torchvision.models.get_model(name, weights=None, **extra)
        yield name, make, [video if "_18" in name else image]
    raft = lambda: Of(torchvision.models.get_model("raft_small", weights=None), lambda m, a, b: m(a, b, num_flow_updates=2)[-1])
    yield "raft_small", raft, [torch.randn(1, 3, 128, 128)] * 2
    for name in TIMM.split():
        size = timm.get_pretrained_cfg(name).input_size
        yield "timm_" + name, lambda name=name: timm.create_model(name, pretrained=False), [torch.randn(1, *size)]
    for name, make, run, inputs in language_models():
        yield name, lambda make=make, run=run: Of(make(), run), inputs
    for cell in (nn.LSTM, nn.GRU):
        yield "crnn_" + cell.__name__.lower(), lambda cell=cell: Crnn(cell), [torch.randn(1, 1, 32, 64)]
    sample = lambda _, x, grid: functional.grid_sample(x, grid, align_corners=False)
    yield "grid_sample", lambda: Of(nn.Identity(), sample), [torch.randn(1, 3, 32, 32), torch.rand(1, 16, 16, 2) * 2 - 1]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    for name, make, inputs in models():
        if args.names and not any(part in name for part in args.names):
            continue
        torch.manual_seed(0)
        try:
            names = [f"x{i}" if x.dtype.is_floating_point else f"ids{i}" for i, x in enumerate(inputs)]
            with torch.no_grad():
                path = str(args.folder / f"{name}.onnx")
                torch.onnx.export(make().eval(), tuple(inputs), path, opset_version=OPSET, dynamo=False, input_names=names)
            print(name, flush=True)
        except Exception as error:  # Another model may go.
            print(f"{name}: {type(error).__name__}: {str(error).splitlines()[0][:120]}", flush=True)


if __name__ == "__main__":
    main()

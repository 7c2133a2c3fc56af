//! ResNet-50 (He et al. 2015, with the stride on the 3 x 3 convolutions): the layers as lines of [`network!`](crate::network!).

/// The layers, for kernels of some element type.
macro_rules! resnet50 {
    ($kernels:path, $E:ty, $tolerance:literal, $order:expr) => {
        $crate::network! {ResNet50, $kernels, $E, $tolerance, $order; pooled like layer1_shortcut, ends with b15;
            b0_shortcut = layer1_shortcut(pooled);
            b0_reduce = layer1_down_reduce(pooled);
            b0_conv = layer1_conv(b0_reduce);
            b0 = layer1_expand(b0_conv, b0_shortcut);
            b1_reduce = layer1_reduce(b0);
            b1_conv = layer1_conv(b1_reduce);
            b1 = layer1_expand(b1_conv, b0);
            b2_reduce = layer1_reduce(b1);
            b2_conv = layer1_conv(b2_reduce);
            b2 = layer1_expand(b2_conv, b1);
            b3_shortcut = layer2_shortcut(b2);
            b3_reduce = layer2_down_reduce(b2);
            b3_conv = layer2_down_conv(b3_reduce);
            b3 = layer2_expand(b3_conv, b3_shortcut);
            b4_reduce = layer2_reduce(b3);
            b4_conv = layer2_conv(b4_reduce);
            b4 = layer2_expand(b4_conv, b3);
            b5_reduce = layer2_reduce(b4);
            b5_conv = layer2_conv(b5_reduce);
            b5 = layer2_expand(b5_conv, b4);
            b6_reduce = layer2_reduce(b5);
            b6_conv = layer2_conv(b6_reduce);
            b6 = layer2_expand(b6_conv, b5);
            b7_shortcut = layer3_shortcut(b6);
            b7_reduce = layer3_down_reduce(b6);
            b7_conv = layer3_down_conv(b7_reduce);
            b7 = layer3_expand(b7_conv, b7_shortcut);
            b8_reduce = layer3_reduce(b7);
            b8_conv = layer3_conv(b8_reduce);
            b8 = layer3_expand(b8_conv, b7);
            b9_reduce = layer3_reduce(b8);
            b9_conv = layer3_conv(b9_reduce);
            b9 = layer3_expand(b9_conv, b8);
            b10_reduce = layer3_reduce(b9);
            b10_conv = layer3_conv(b10_reduce);
            b10 = layer3_expand(b10_conv, b9);
            b11_reduce = layer3_reduce(b10);
            b11_conv = layer3_conv(b11_reduce);
            b11 = layer3_expand(b11_conv, b10);
            b12_reduce = layer3_reduce(b11);
            b12_conv = layer3_conv(b12_reduce);
            b12 = layer3_expand(b12_conv, b11);
            b13_shortcut = layer4_shortcut(b12);
            b13_reduce = layer4_down_reduce(b12);
            b13_conv = layer4_down_conv(b13_reduce);
            b13 = layer4_expand(b13_conv, b13_shortcut);
            b14_reduce = layer4_reduce(b13);
            b14_conv = layer4_conv(b14_reduce);
            b14 = layer4_expand(b14_conv, b13);
            b15_reduce = layer4_reduce(b14);
            b15_conv = layer4_conv(b15_reduce);
            b15 = layer4_expand(b15_conv, b14);
        }
    };
}

/// In f32, channels first.
pub mod single {
    resnet50!(crate::kernels::resnet50, f32, 1e-4, Order::ChannelsFirst);
}

/// In f16, channels last, on tensor cores.
pub mod half {
    resnet50!(crate::kernels::resnet50_f16, kernel_gen_runtime::F16, 2e-2, Order::ChannelsLast);
}

//! ResNet-18 (He et al. 2015): the layers as lines of [`network!`](crate::network!).

/// The layers, for kernels of some element type.
macro_rules! resnet18 {
    ($kernels:path, $E:ty, $tolerance:literal, $order:expr) => {
        $crate::network! {ResNet18, $kernels, $E, $tolerance, $order; pooled like layer1_conv1, ends with b7;
            b0_conv1 = layer1_conv1(pooled);
            b0 = layer1_conv2(b0_conv1, pooled);
            b1_conv1 = layer1_conv1(b0);
            b1 = layer1_conv2(b1_conv1, b0);
            b2_shortcut = layer2_shortcut(b1);
            b2_conv1 = layer2_down_conv1(b1);
            b2 = layer2_conv2(b2_conv1, b2_shortcut);
            b3_conv1 = layer2_conv1(b2);
            b3 = layer2_conv2(b3_conv1, b2);
            b4_shortcut = layer3_shortcut(b3);
            b4_conv1 = layer3_down_conv1(b3);
            b4 = layer3_conv2(b4_conv1, b4_shortcut);
            b5_conv1 = layer3_conv1(b4);
            b5 = layer3_conv2(b5_conv1, b4);
            b6_shortcut = layer4_shortcut(b5);
            b6_conv1 = layer4_down_conv1(b5);
            b6 = layer4_conv2(b6_conv1, b6_shortcut);
            b7_conv1 = layer4_conv1(b6);
            b7 = layer4_conv2(b7_conv1, b6);
        }
    };
}

/// In f32, channels first.
pub mod single {
    resnet18!(::resnet18::kernels, f32, 1e-4, Order::ChannelsFirst);
}

/// In f16, channels last, on tensor cores.
pub mod half {
    resnet18!(crate::kernels::resnet18_f16, kernel_gen_runtime::F16, 2e-2, Order::ChannelsLast);
}

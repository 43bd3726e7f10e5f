#!/usr/bin/env python3
"""torch_steps.py MODEL --batch N -- training steps of one of situ's models in PyTorch, measured whenever it is asked.

The counterpart of `situ bench MODEL --serve`: for each number of seconds read from standard input it prints one line of
JSON. It times as situ does: a few steps to warm up, then blocks of about 20 ms, of which best and median are reported.
The data is drawn once and stays in memory; a step is zero_grad, forward, loss, backward and update.
"""
import argparse
import json
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F


class LeNet5(nn.Module):
    def __init__(self, classes, resolution):
        super().__init__()
        side = (resolution // 2 - 4) // 2
        self.conv1 = nn.Conv2d(1, 6, 5, padding=2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * side * side, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x.flatten(1))))))


def conv_norm(inputs, outputs, kernel, stride=1, groups=1):
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return [conv, nn.BatchNorm2d(outputs)]


def relu():
    return nn.ReLU(inplace=True)


def relu6():
    return nn.ReLU6(inplace=True)


class BasicBlock(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.body = nn.Sequential(*conv_norm(inputs, outputs, 3, stride), relu(), *conv_norm(outputs, outputs, 3))
        projects = stride != 1 or inputs != outputs
        self.shortcut = nn.Sequential(*conv_norm(inputs, outputs, 1, stride)) if projects else nn.Identity()

    def forward(self, x):
        return F.relu_(self.body(x) + self.shortcut(x))


def resnet(stem, widths, blocks, classes):
    layers, width = list(stem), widths[0]
    for stage, channels in enumerate(widths):
        for block in range(blocks):
            layers.append(BasicBlock(width, channels, 2 if stage and not block else 1))
            width = channels
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes))


def resnet20(classes):
    return resnet([*conv_norm(3, 16, 3), relu()], (16, 32, 64), 3, classes)


def resnet18(classes):
    return resnet([*conv_norm(3, 64, 7, 2), relu(), nn.MaxPool2d(3, 2, 1)], (64, 128, 256, 512), 2, classes)


class InvertedResidual(nn.Module):
    def __init__(self, inputs, outputs, stride, expand):
        super().__init__()
        hidden = inputs * expand
        widen = [*conv_norm(inputs, hidden, 1), relu6()] if expand != 1 else []
        depthwise = [*conv_norm(hidden, hidden, 3, stride, hidden), relu6()]
        self.body = nn.Sequential(*widen, *depthwise, *conv_norm(hidden, outputs, 1))
        self.adds = stride == 1 and inputs == outputs

    def forward(self, x):
        return x + self.body(x) if self.adds else self.body(x)


def scaled_channels(channels, width):
    """The nearest multiple of 8, not below nine tenths of it."""
    wanted = channels * width
    result = max(8, int(wanted + 4) // 8 * 8)
    return result + 8 if result < 0.9 * wanted else result


MOBILE_STAGES = (  # expansion, channels, blocks, stride
    (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
)  # fmt: skip


def mobilenetv2(classes, width):
    inputs = scaled_channels(32, width)
    layers = [*conv_norm(3, inputs, 3, 2), relu6()]
    for expand, channels, blocks, stride in MOBILE_STAGES:
        outputs = scaled_channels(channels, width)
        for block in range(blocks):
            layers.append(InvertedResidual(inputs, outputs, 1 if block else stride, expand))
            inputs = outputs
    last = scaled_channels(1280, max(1.0, width))
    layers += [*conv_norm(inputs, last, 1), relu6(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2)]
    return nn.Sequential(*layers, nn.Linear(last, classes))


class Transformer(nn.Module):
    def __init__(self, channels, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.qkv, self.project = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)
        self.up, self.down = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)

    def forward(self, x):
        batch, length, channels = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, channels // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(mixed.transpose(1, 2).reshape(batch, length, channels))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class GptMini(nn.Module):
    def __init__(self, length, vocabulary=256, channels=256, heads=4, blocks=4):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocabulary, channels), nn.Embedding(length, channels)
        self.blocks = nn.Sequential(*[Transformer(channels, heads) for _ in range(blocks)])
        self.norm, self.head = nn.LayerNorm(channels), nn.Linear(channels, vocabulary, bias=False)

    def forward(self, ids):
        return self.head(self.norm(self.blocks(self.tok(ids) + self.pos.weight))).flatten(0, 1)


class CharLstm(nn.Module):
    def __init__(self, vocabulary=256, channels=128, hidden=256, layers=2):
        super().__init__()
        self.tok = nn.Embedding(vocabulary, channels)
        self.lstm = nn.LSTM(channels, hidden, layers, batch_first=True)
        self.head = nn.Linear(hidden, vocabulary)

    def forward(self, ids):
        return self.head(self.lstm(self.tok(ids))[0]).flatten(0, 1)


def build(spec):
    """NAME@RESOLUTION:WIDTH as situ reads it -> (network, shape of one sample as situ prints it, classes)."""
    name, _, size = spec.partition("@")
    resolution, _, width = size.partition(":")
    width = float(width or 1)
    defaults = {"lenet5": 28, "resnet20": 32, "mobilenetv2": 224, "resnet18": 224, "gpt-mini": 128, "char-lstm": 64}
    if name not in defaults:
        sys.exit(f"torch_steps.py: there is no `{name}` here; there are {', '.join(defaults)}")
    if width != 1 and name != "mobilenetv2":
        sys.exit(f"torch_steps.py: {name} has no width here")
    side = int(resolution or defaults[name])
    if name == "lenet5":
        return LeNet5(10, side), [side, side, 1], 10
    if name == "gpt-mini":
        return GptMini(side), [side], 256
    if name == "char-lstm":
        return CharLstm(), [side], 256
    if name == "resnet20":
        return resnet20(10), [side, side, 3], 10
    net = resnet18(1000) if name == "resnet18" else mobilenetv2(1000, width)
    return net, [side, side, 3], 1000


def train_last(net):
    """Everything but the last layer is frozen; batch norms use their running statistics."""
    net.requires_grad_(False)
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eval()
    [m for m in net.modules() if isinstance(m, nn.Linear)][-1].requires_grad_(True)


class Stepper:
    def __init__(self, o):
        net, shape, classes = build(o.model)
        net.train()
        if o.train == "last":
            train_last(net)
        if len(shape) == 3:
            x = torch.rand(o.batch, shape[2], *shape[:2]) - 0.5
            y = torch.randint(classes, (o.batch,))
        else:
            x = torch.randint(classes, (o.batch, *shape))
            y = torch.randint(classes, (o.batch * shape[0],))
        if o.mode == "channels_last":
            net, x = net.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
        trained = [p for p in net.parameters() if p.requires_grad]
        if o.optimizer == "adamw":
            self.optimizer = torch.optim.AdamW(trained, lr=1e-4, weight_decay=0, fused=True)
        else:
            self.optimizer = torch.optim.SGD(trained, lr=1e-4, momentum=0.9, fused=True)
        self.data, self.loss_of = (x, y), lambda x, y: F.cross_entropy(net(x), y)
        if o.mode == "compile":
            self.loss_of = torch.compile(self.loss_of)
        self.facts = {
            "model": o.model,
            "device": f"PyTorch {torch.__version__}, {o.mode}, {torch.get_num_threads()} threads",
            "batch": o.batch,
            "parameters": sum(p.numel() for p in net.parameters()),
            "trained": sum(p.numel() for p in trained),
            "input": shape,
            "classes": classes,
        }

    def steps(self, count):
        """Seconds per step."""
        start = time.perf_counter()
        for _ in range(count):
            self.optimizer.zero_grad(set_to_none=True)
            loss = self.loss_of(*self.data)
            loss.backward()
            self.optimizer.step()
        return (time.perf_counter() - start) / count


def measure(stepper, seconds, warmup, least=3):
    stepper.steps(warmup)
    block = int(min(64, max(1, 0.02 / stepper.steps(1))))
    times, begin = [], time.perf_counter()
    while time.perf_counter() - begin < seconds or len(times) * block < least:
        times.append(stepper.steps(block))
    return {
        "ms": round(statistics.median_high(times) * 1e3, 4),
        "best_ms": round(min(times) * 1e3, 4),
        "steps": len(times) * block,
    }


def memory(key):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith(key))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--mode", choices=("eager", "channels_last", "compile"), default="eager")
    parser.add_argument("--optimizer", choices=("sgd", "adamw"), default="sgd")
    parser.add_argument("--train", choices=("all", "last"), default="all")
    parser.add_argument("--threads", type=int, default=0, help="0: PyTorch's own choice")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    before, stepper, warmup = memory("VmRSS"), None, 5
    for line in sys.stdin:
        stepper = stepper or Stepper(options)
        answer = {**stepper.facts, **measure(stepper, float(line), warmup)}
        warmup = 1
        print(json.dumps({**answer, "peak_mib": round(memory("VmHWM") - before, 1)}), flush=True)


if __name__ == "__main__":
    main()

// sequence.cpp -- networks over sensor windows, sound, text and patches.
#include "model/net.h"

namespace situ::model::zoo {
namespace {

Type window_input(const Size& size, int64_t steps, int64_t channels) {
  return size.input.rank() == 2 ? f32(size.input) : f32({steps, channels});
}
Type token_input(const Size& size, int64_t length) {
  return size.input.rank() == 1 ? i32(size.input) : i32({size.resolution ? size.resolution : length});
}

Model har_cnn(const Size& size) {
  Net net("har-cnn", window_input(size, 100, 6), classes_of(size, 4));
  int index = 0;
  for (auto [channels, kernel] : {std::pair<int64_t, int64_t>{32, 7}, {64, 5}, {128, 3}}) {
    const std::string i = std::to_string(++index);
    net.conv_norm("conv" + i, "bn" + i, channels, {.kernel = kernel, .pad = kernel / 2});
    net.op("relu");
    if (index < 3) net.op("max_pool", {{"kernel", int64_t{2}}});
  }
  net.op("global_pool");
  net.classifier("fc");
  return net.take();
}

Model har_lstm(const Size& size) {
  Net net("har-lstm", window_input(size, 100, 6), classes_of(size, 4));
  net.add("lstm", "lstm", {{"hidden", int64_t{64}}, {"bidirectional", int64_t{1}}});
  net.op("global_pool", {{"of", "max"}});  // in cross-validation better than the mean, which drowns short events
  net.classifier("fc");
  return net.take();
}

// DS-CNN (Hello Edge, small): one convolution, four depthwise separable ones.
Model kws(const Size& size) {
  Net net("kws", size.input.rank() == 3 ? f32(size.input) : f32({49, 10, 1}), classes_of(size, 12));
  net.add("conv1", "conv",
          {{"channels", int64_t{64}},
           {"kernel", ir::Ints{10, 4}},
           {"stride", ir::Ints{2, 2}},
           {"pad", ir::Ints{4, 1, 5, 1}},
           {"bias", int64_t{0}},
           {"init", "kaiming"}});
  net.add("bn1", "batch_norm");
  net.op("relu");
  for (int i = 2; i < 6; ++i) {
    const std::string n = std::to_string(i);
    net.conv_norm("dw" + n, "dw_bn" + n, 64, {.kernel = 3, .pad = 1, .groups = 64});
    net.op("relu");
    net.conv_norm("pw" + n, "pw_bn" + n, 64, {});
    net.op("relu");
  }
  net.op("global_pool");
  net.op("dropout", {{"p", 0.2}});
  net.classifier("fc");
  return net.take();
}

Model char_lstm(const Size& size) {
  Net net("char-lstm", token_input(size, 64), 256);
  net.add("tok", "embedding", {{"entries", int64_t{256}}, {"channels", int64_t{128}}});
  net.add("lstm", "lstm", {{"hidden", int64_t{256}}, {"layers", int64_t{2}}});
  net.classifier("head");
  return net.take();
}

// The names of one transformer block's layers, which differ from family to family.
struct BlockNames {
  std::string norm1, qkv, project, norm2, up, down;
};
struct BlockShape {
  int64_t channels, heads;
  bool causal;
  const char* activation;
  double eps = 1e-5;
  const char* init = "normal:0.02";
};

// x + project(attention(norm(x))), then x + down(activation(up(norm(x)))).
void block(Net& net, const BlockNames& names, const BlockShape& s) {
  const std::string input = net.last();
  net.add(names.norm1, "layer_norm", {{"eps", s.eps}});
  net.linear(names.qkv, 3 * s.channels, s.init);
  net.op("attention", {{"heads", s.heads}, {"causal", int64_t{s.causal}}});
  net.linear(names.project, s.channels, s.init);
  const std::string middle = net.sum(input, net.last());
  net.add(names.norm2, "layer_norm", {{"eps", s.eps}});
  net.linear(names.up, 4 * s.channels, s.init);
  net.op(s.activation);
  net.linear(names.down, s.channels, s.init);
  net.sum(middle, net.last());
}

Model gpt_mini(const Size& size) {
  const int64_t channels = 256;
  Net net("gpt-mini", token_input(size, 128), 256);
  net.add("tok", "embedding", {{"entries", int64_t{256}}, {"channels", channels}, {"std", 0.02}});
  net.add("pos", "positions");
  for (int i = 0; i < 4; ++i) {
    const std::string b = "blocks." + std::to_string(i);
    block(net, {b + ".n1", b + ".qkv", b + ".proj", b + ".n2", b + ".up", b + ".down"},
          {channels, 4, true, "gelu_tanh"});
  }
  net.add("norm", "layer_norm");
  net.add("head", "linear", {{"channels", int64_t{256}}, {"bias", int64_t{0}}, {"init", "normal:0.02"}});
  return net.take();
}

Model gpt2(const Size& size) {
  const int64_t channels = 768, vocabulary = 50257;
  Net net("gpt2-124m", token_input(size, 1024), static_cast<int>(vocabulary));
  net.add("transformer.wte", "embedding", {{"entries", vocabulary}, {"channels", channels}, {"std", 0.02}});
  net.add("transformer.wpe", "positions", {{"entries", int64_t{1024}}});
  for (int i = 0; i < 12; ++i) {
    const std::string b = "transformer.h." + std::to_string(i);
    block(net, {b + ".ln_1", b + ".attn.c_attn", b + ".attn.c_proj", b + ".ln_2", b + ".mlp.c_fc", b + ".mlp.c_proj"},
          {channels, 12, true, "gelu_tanh"});
  }
  net.add("transformer.ln_f", "layer_norm");
  net.add("lm_head", "linear", {{"channels", vocabulary}, {"bias", int64_t{0}}, {"tied", "transformer.wte"}});
  return net.take();
}

Model vit_tiny(const Size& size) {
  const int64_t channels = 192;
  const Type input = image_input(size, 224);
  const int64_t patch = input.shape[0] >= 64 ? 16 : 4;  // small images get small patches
  Net net("vit-tiny", input, classes_of(size, 1000));
  net.conv("patch_embed.proj", channels, {.kernel = patch, .stride = patch, .bias = true});
  net.op("tokens");
  net.add("cls_token", "class_token");
  net.add("pos_embed", "positions", {{"plain", int64_t{1}}});
  for (int i = 0; i < 12; ++i) {
    const std::string b = "blocks." + std::to_string(i);
    block(net, {b + ".norm1", b + ".attn.qkv", b + ".attn.proj", b + ".norm2", b + ".mlp.fc1", b + ".mlp.fc2"},
          {channels, 3, false, "gelu", 1e-6});
  }
  net.op("step", {{"at", int64_t{0}}});  // a norm works on rows: the class token's alone is needed
  net.add("norm", "layer_norm", {{"eps", 1e-6}});
  net.classifier("head", "normal:0.02");
  return net.take();
}

// One layer of BERT: norms stand behind the sums.
void bert_layer(Net& net, const std::string& name, int64_t channels, int64_t heads) {
  const std::string input = net.last(), self = name + ".attention.self", out = name + ".attention.output";
  const char* init = "normal:0.02";
  const std::string query = net.linear(self + ".query", channels, init);
  const std::string key = net.from(input).linear(self + ".key", channels, init);
  const std::string value = net.from(input).linear(self + ".value", channels, init);
  net.op("attention", {{"heads", heads}}, {query, key, value});
  net.linear(out + ".dense", channels, init);
  net.sum(net.last(), input);
  const std::string middle = net.add(out + ".LayerNorm", "layer_norm", {{"eps", 1e-12}});
  net.linear(name + ".intermediate.dense", 4 * channels, init);
  net.op("gelu");
  net.linear(name + ".output.dense", channels, init);
  net.sum(net.last(), middle);
  net.add(name + ".output.LayerNorm", "layer_norm", {{"eps", 1e-12}});
}

Model bert_tiny(const Size& size) {
  const int64_t channels = 128;
  Net net("bert-tiny", token_input(size, 128), classes_of(size, 2));
  const std::string e = "bert.embeddings.";
  net.add(e + "word_embeddings", "embedding", {{"entries", int64_t{30522}}, {"channels", channels}, {"std", 0.02}});
  net.add(e + "position_embeddings", "positions", {{"entries", int64_t{512}}});
  net.add(e + "token_type_embeddings", "segment", {{"entries", int64_t{2}}});
  net.add(e + "LayerNorm", "layer_norm", {{"eps", 1e-12}});
  for (int i = 0; i < 2; ++i) bert_layer(net, "bert.encoder.layer." + std::to_string(i), channels, 2);
  net.op("step", {{"at", int64_t{0}}});
  net.linear("bert.pooler.dense", channels, "normal:0.02");
  net.op("tanh");
  net.classifier("classifier", "normal:0.02");
  return net.take();
}

}  // namespace

ZooList sequence() {
  static constexpr ZooEntry list[] = {
      {"har-cnn", "1D convolutions over sensor windows", 0, har_cnn},
      {"har-lstm", "bidirectional LSTM over sensor windows", 0, har_lstm},
      {"kws", "keyword spotting: DS-CNN over log-mel frames", 0, kws},
      {"char-lstm", "two LSTM layers over bytes; @ is the length", 0, char_lstm, true},
      {"gpt-mini", "four transformer blocks over bytes; @ is the length", 0, gpt_mini, true},
      {"gpt2-124m", "GPT-2 small; @ is the length", 124439808, gpt2, true},
      {"vit-tiny", "twelve transformer blocks over image patches", 5717416, vit_tiny, true},
      {"bert-tiny", "two encoder blocks and a classifier; @ is the length", 4386178, bert_tiny, true}};
  return list;
}
}  // namespace situ::model::zoo

#include "library/nixl/options.h"

#include <dlfcn.h>

#include <algorithm>
#include <cctype>
#include <climits>
#include <cstdlib>
#include <functional>
#include <stdexcept>
#include <vector>

#include "library/nixl/wire.h"

namespace tcpx::nixl {
namespace {

struct Option {
  const char* name;
  std::function<void(Options&, const std::string&)> take;
  std::function<std::string(const Options&)> tell;
};

double number_of(const char* name, const std::string& text, double least, double most) {
  char* end = nullptr;
  const double value = strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !(value >= least && value <= most)) {
    auto bound = [](double n) { return std::to_string(static_cast<int64_t>(n)); };
    throw std::invalid_argument(std::string(name) + " is \"" + text + "\": give a number from " +
                                bound(least) + " to " + bound(most));
  }
  return value;
}

template <typename Value>
Option numeric(const char* name, Value Options::*member, double least, double most) {
  return {name,
          [=](Options& options, const std::string& text) {
            const double value = number_of(name, text, least, most);
            if constexpr (std::is_integral_v<Value>) {
              if (value != static_cast<double>(static_cast<int64_t>(value))) {
                throw std::invalid_argument(std::string(name) + " is \"" + text +
                                            "\": give a whole number");
              }
            }
            options.*member = static_cast<Value>(value);
          },
          [=](const Options& options) { return std::to_string(options.*member); }};
}

Option text(const char* name, std::string Options::*member) {
  return {name, [=](Options& options, const std::string& value) { options.*member = value; },
          [=](const Options& options) { return options.*member; }};
}

const std::vector<Option>& all_options() {
  static const std::vector<Option> all = {
      text("plugin", &Options::plugin),
      numeric("device", &Options::device, 0, 1023),
      numeric("channels", &Options::channels, 1, kMaxChannels),
      numeric("chunk_bytes", &Options::chunk_bytes, 1, 2 << 20),
      numeric("stage_below", &Options::stage_below, 0, 16 << 20),
      numeric("stage_bytes", &Options::stage_bytes, 1, 16 << 20),
      numeric("inline_bytes", &Options::inline_bytes, 0, 1 << 20),
      numeric("gpu", &Options::gpu, -1, 1023),
      text("nvrtc", &Options::nvrtc),
      text("kernel_cache", &Options::kernel_cache),
      text("ip", &Options::ip),
      text("interface", &Options::interface),
      numeric("port", &Options::port, 0, 65535),
      numeric("connect_patience_s", &Options::connect_patience_s, 0, 86400),
      numeric("patience_s", &Options::patience_s, 0, 86400),
  };
  return all;
}

// softtcpx lies one folder above this library.
std::string shipped_plugin() {
  Dl_info here;
  if (dladdr(reinterpret_cast<const void*>(&shipped_plugin), &here) == 0) return "";
  char real[PATH_MAX];  // NIXL's directory may have a link to it
  std::string path = realpath(here.dli_fname, real) != nullptr ? real : here.dli_fname;
  for (int up = 0; up < 2; ++up) {
    const size_t slash = path.rfind('/');
    if (slash == std::string::npos) return "libnccl-net-softtcpx.so";
    path.resize(slash);
  }
  return path + "/libnccl-net-softtcpx.so";
}

std::string variable_of(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char letter) { return static_cast<char>(toupper(letter)); });
  return "TCPX_NIXL_" + name;
}

}  // namespace

Options read_options(const Params& params) {
  Options options;
  for (const Option& option : all_options()) {
    const auto given = params.find(option.name);
    const std::string variable = variable_of(option.name);
    if (given != params.end() && !given->second.empty()) {
      option.take(options, given->second);
    } else if (const char* value = getenv(variable.c_str()); value != nullptr && *value != '\0') {
      try {
        option.take(options, value);
      } catch (const std::invalid_argument& error) {
        throw std::invalid_argument(variable + ": " + error.what());
      }
    }
  }
  if (options.stage_bytes < options.stage_below) {
    throw std::invalid_argument("stage_bytes (" + std::to_string(options.stage_bytes) +
                                ") is smaller than stage_below (" +
                                std::to_string(options.stage_below) + "): a block would not fit");
  }
  if (options.plugin.empty() || options.plugin == "softtcpx") options.plugin = shipped_plugin();
  return options;
}

Params default_params() {
  Params params;
  Options options;
  try {
    options =
        read_options({});  // the environment's, for NIXL may hand them back as if they were set
  } catch (const std::invalid_argument&) {
    // Whoever creates the backend is told.
  }
  for (const Option& option : all_options()) params[option.name] = option.tell(options);
  return params;
}

}  // namespace tcpx::nixl

// The contract through C++: commands of a test on stdin, an answer a line on stdout.
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "tcpx_p2p/session.h"

namespace {

std::map<std::string, tcpx_p2p::Session> sessions;
std::map<std::string, tcpx_p2p::Transfer> transfers;
std::map<std::string, std::vector<uint8_t>> memories;
std::map<std::string, uint64_t> ids;
std::string last_text;

uint8_t byte_of(uint64_t i, uint64_t seed) {
  return static_cast<uint8_t>(i * 31 + (i >> 8) + seed * 7);
}

std::string hex_of(const std::string& bytes) {
  std::string text;
  char two[3];
  for (const char byte : bytes) {
    snprintf(two, sizeof(two), "%02x", static_cast<unsigned char>(byte));
    text += two;
  }
  return text;
}

std::string bytes_of(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

// A number after '#', else that of a name.
uint64_t id_of(const std::string& name) {
  return name[0] == '#' ? std::stoull(name.substr(1)) : ids.at(name);
}

std::string run(const std::string& command, std::istringstream& in) {
  const auto word = [&] {
    std::string text;
    in >> text;
    return text;
  };
  const auto number = [&] { return std::stoull(word()); };
  if (command == "session") {
    const std::string name = word();
    const int channels = static_cast<int>(number());
    tcpx_p2p::Options options;
    options.plugin = word();
    options.chunk_bytes = number();
    options.progress =
        word() == "thread" ? tcpx_p2p::Progress::kThread : tcpx_p2p::Progress::kCaller;
    options.accept_early = word() != "late";
    sessions.emplace(name, tcpx_p2p::Session(0, channels, options));
    return "";
  }
  if (command == "plugin") return sessions.at(word()).plugin_name();
  if (command == "text") return last_text;
  if (command == "fill" || command == "check") {
    std::vector<uint8_t>& memory = memories.at(word());
    const uint64_t offset = number(), bytes = number(), seed = number();
    for (uint64_t i = 0; i < bytes; ++i) {
      if (command == "fill") {
        memory[offset + i] = byte_of(i, seed);
      } else if (memory[offset + i] != byte_of(i, seed)) {
        return "WRONG at " + std::to_string(offset + i);
      }
    }
    return "";
  }
  if (command == "send" || command == "recv") {
    tcpx_p2p::Transfer& transfer = transfers.at(word());
    const uint64_t id = id_of(word()), offset = number(), bytes = number();
    command == "send" ? transfer.post_send(id, offset, bytes)
                      : transfer.post_recv(id, offset, bytes);
    return "";
  }
  if (command == "complete") return transfers.at(word()).is_complete() ? "1" : "0";
  if (command == "wait") {
    tcpx_p2p::Transfer& transfer = transfers.at(word());
    transfer.wait(std::stod(word()));
    return "";
  }
  if (command == "release") {
    transfers.at(word()).release();
    return "";
  }
  tcpx_p2p::Session& session = sessions.at(word());
  if (command == "close") {
    session.close();
    return "";
  }
  if (command == "progress") {
    session.progress();
    return "";
  }
  if (command == "register") {
    const std::string name = word();
    std::vector<uint8_t>& memory = memories[name];
    memory.assign(number(), 0);
    ids[name] = session.register_memory(memory.data(), memory.size());
    return std::to_string(ids[name]);
  }
  if (command == "deregister") {
    session.deregister_memory(id_of(word()));
    return "";
  }
  if (command == "transfer") {
    const std::string name = word();
    transfers[name] = session.create_transfer(word());
    return "";
  }
  const std::string remote = word();
  if (command == "listen") return hex_of(session.listen(remote));
  if (command == "load") session.load_remote_conn_info(remote, bytes_of(word()));
  if (command == "accept") session.accept(remote, std::stod(word()));
  if (command == "connect") session.connect(remote, std::stod(word()));
  if (command == "establish") session.establish(remote, std::stod(word()));
  if (command == "stage") return std::to_string(static_cast<int>(session.remote_stage(remote)));
  if (command == "fail") session.fail_remote(remote, word());
  if (command == "leave") session.close_remote(remote);
  return "";
}

}  // namespace

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream in(line);
    std::string command;
    in >> command;
    if (command == "quit") break;
    try {
      const std::string answer = run(command, in);
      std::cout << "ok" << (answer.empty() ? "" : " ") << answer << std::endl;
    } catch (const tcpx_p2p::Error& error) {
      last_text = error.what();
      const bool usage = dynamic_cast<const tcpx_p2p::UsageError*>(&error) != nullptr;
      const bool timeout = dynamic_cast<const tcpx_p2p::TimeoutError*>(&error) != nullptr;
      std::cout << (usage     ? "usage "
                    : timeout ? "timeout "
                              : "fatal ")
                << static_cast<int>(error.status()) << std::endl;
    }
  }
  return 0;
}

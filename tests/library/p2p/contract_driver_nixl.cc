// The contract through NIXL's table, which knows one side of a transfer only: a receive tells the
// other agent of its place, as users of NIXL exchange descriptors, and a send writes there.
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <list>
#include <map>
#include <sstream>

#include "nixl_agent.h"

using namespace stand_in;

namespace {

struct Receive {
  std::string to, from;  // agents
  const Bytes* memory;
  uint64_t offset, bytes;
  std::string notification;
  bool is_sent_to, has_come;
};

struct Sent {
  std::string notification;
  std::unique_ptr<Known> there;
  std::unique_ptr<Xfer> request;
};

struct Transfer {
  std::string session, remote;
  std::vector<const Receive*> receives;
  std::vector<Sent> sends;
};

std::map<std::string, std::unique_ptr<Agent>> agents;
std::map<std::string, std::unique_ptr<Bytes>> memories;
std::map<std::string, std::map<std::string, std::string>> names;  // a session's names for agents
std::map<std::string, Transfer> transfers;
std::list<Receive> places;

class Refused {
 public:
  explicit Refused(Status status) : status(status) {}
  const Status status;
};

void require(Status status) {
  if (status != kSuccess && status != kInProgress) throw Refused(status);
}

// What the backend says goes to stderr; here, to memory.
char* said = nullptr;
size_t said_bytes = 0;

std::string last_line() {
  fflush(stderr);
  std::istringstream lines(std::string(said, said_bytes));
  std::string line, last;
  while (std::getline(lines, line)) last = line;
  return last;
}

// Every agent of this program has its turn: without a thread nobody else moves its bytes.
void turn() {
  for (auto& [name, agent] : agents) {
    for (const auto& [from, text] : agent->fetch()) {
      for (Receive& place : places) {
        if (place.to == name && place.from == from && place.notification == text) {
          place.has_come = true;
        }
      }
    }
  }
}

bool is_complete(Transfer& transfer) {
  bool all = true;
  for (const Receive* place : transfer.receives) all &= place->has_come;
  for (Sent& sent : transfer.sends) {
    const Status status = sent.request->check();
    require(status);
    all &= status == kSuccess;
  }
  return all;
}

void wait(Transfer& transfer, double seconds) {
  const int64_t deadline = tcpx::now_ns() + static_cast<int64_t>(seconds * 1e9);
  while (!is_complete(transfer)) {
    if (tcpx::now_ns() > deadline) throw Refused(kInProgress);
    turn();
  }
}

void receive(Transfer& transfer, const Bytes& memory, uint64_t offset, uint64_t bytes) {
  places.push_back({transfer.session, transfer.remote, &memory, offset, bytes,
                    std::to_string(places.size()), false, false});
  transfer.receives.push_back(&places.back());
}

void send(Transfer& transfer, const Bytes& memory, uint64_t offset, uint64_t bytes) {
  for (Receive& place : places) {
    if (place.is_sent_to || place.to != transfer.remote || place.from != transfer.session) continue;
    Agent& agent = *agents.at(transfer.session);
    Sent sent;
    sent.notification = place.notification;
    sent.there = std::make_unique<Known>(agent, place.to, place.memory->blob());
    sent.request = std::make_unique<Xfer>(
        agent, kWrite, memory, std::vector<Block>{{offset, bytes}}, place.to,
        place.memory->data.data(), sent.there->metadata, std::vector<Block>{{place.offset, bytes}});
    require(sent.request->prepared);
    require(sent.request->post(sent.notification.c_str()));
    place.is_sent_to = true;
    transfer.sends.push_back(std::move(sent));
    return;
  }
  fprintf(stderr, "no receive was told of\n");
  throw Refused(kUnknown);
}

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

// An agent goes by its own name, which whoever brings its info knows.
std::string name_behind(const std::string& info, const std::string& otherwise) {
  for (const auto& [name, agent] : agents) {
    if (agent->info() == info) return name;
  }
  return otherwise;
}

std::string run(const std::string& command, std::istringstream& in) {
  const auto word = [&] {
    std::string text;
    in >> text;
    return text;
  };
  const auto number = [&] { return std::stoull(word()); };
  if (command == "text") return last_line();
  if (command == "session") {
    const std::string name = word();
    Params params{{"channels", word()}};
    params["plugin"] = word();
    params["chunk_bytes"] = word();
    auto agent = std::make_unique<Agent>(name, word() == "thread", params);
    if (agent->backend->init_failed()) throw Refused(kBackend);
    agents[name] = std::move(agent);
    return "";
  }
  if (command == "fill" || command == "check") {
    std::vector<uint8_t>& memory = memories.at(word())->data;
    const uint64_t offset = number(), bytes = number(), seed = number();
    for (uint64_t i = 0; i < bytes; ++i) {
      if (command == "fill") {
        memory.at(offset + i) = byte_of(i, seed);
      } else if (memory.at(offset + i) != byte_of(i, seed)) {
        return "WRONG at " + std::to_string(offset + i);
      }
    }
    return "";
  }
  const std::string subject = word();
  if (command == "listen") return hex_of(agents.at(subject)->info());
  if (command == "load") {
    const std::string remote = word(), info = bytes_of(word());
    const std::string name = name_behind(info, remote);
    require(agents.at(subject)->backend->load_connection_info(name, info));
    names[subject][remote] = name;
  } else if (command == "connect" || command == "establish") {
    const std::string remote = word();
    const auto known = names[subject].find(remote);
    require(agents.at(subject)->backend->connect(known == names[subject].end() ? remote
                                                                               : known->second));
  } else if (command == "register") {
    const std::string name = word();
    memories[name] = std::make_unique<Bytes>(*agents.at(subject), number());
  } else if (command == "transfer") {
    const std::string name = word();
    transfers[name] = Transfer{subject, names.at(subject).at(word()), {}, {}};
  } else if (command == "recv" || command == "send") {
    const Bytes& memory = *memories.at(word());
    const uint64_t offset = number(), bytes = number();
    (command == "recv" ? receive : send)(transfers.at(subject), memory, offset, bytes);
  } else if (command == "wait") {
    wait(transfers.at(subject), std::stod(word()));
  } else if (command == "complete") {
    return is_complete(transfers.at(subject)) ? "1" : "0";
  } else if (command == "release") {
    transfers.erase(subject);
  } else {
    fprintf(stderr, "NIXL has no %s\n", command.c_str());
    throw Refused(kUnknown);
  }
  return "";
}

}  // namespace

int main() {
  stderr = open_memstream(&said, &said_bytes);
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream in(line);
    std::string command;
    in >> command;
    std::string answer;
    try {
      answer = "ok " + run(command, in);
    } catch (const Refused& refused) {
      answer = "nixl " + std::to_string(refused.status);
    }
    std::cout << answer << std::endl;
  }
  transfers.clear();
  memories.clear();
  agents.clear();
  return check::failures() > 0 ? 1 : 0;
}

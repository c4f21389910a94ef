// What a file of the tap holds: a header, then blocks, each with its length in front, so that a
// file that was cut off anywhere is read up to its last whole block. No byte of a message is in it.
//
// tcpx_mpi/tap/file.py has the same numbers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tap {

constexpr char kMagic[8] = {'T', 'C', 'P', 'X', 'T', 'A', 'P', '1'};
constexpr uint32_t kBlockMagic = 0x42504154;  // "TAPB"

struct FileHeader {
  char magic[8];
  uint32_t record_bytes;
  uint32_t abi;
};
static_assert(sizeof(FileHeader) == 16, "the file has it");

enum BlockType : uint32_t {
  kLines = 1,    // objects of JSON, a line each: the process, devices, comms, what was said
  kRecords = 2,  // of one thread, in order
  kClock = 3,    // one ClockPair
};

struct Block {
  uint32_t magic;
  uint32_t type;
  uint32_t thread;  // of records: the ring that they come from
  uint32_t bytes;   // that follow
};
static_assert(sizeof(Block) == 16, "the file has it");

// One instant by all clocks: between two of them ticks become time.
struct ClockPair {
  uint64_t ticks;
  int64_t monotonic_ns;
  int64_t real_ns;
};
static_assert(sizeof(ClockPair) == 24, "the file has it");

enum Kind : uint8_t {
  kSend = 1,
  kReceive = 2,
  kFlush = 3,
  kDone = 4,   // test said so
  kError = 5,  // test returned `code`
};

// Two a request: one when it is posted (of a grouped receive one a part), one when it is done.
struct Record {
  uint8_t kind;
  uint8_t part;   // of a grouped receive, from 0
  uint8_t parts;  // of it in all
  uint8_t code;   // the plugin's, of an error
  uint32_t comm;
  uint32_t request;  // of this comm, from 0
  int32_t word;      // posted: its tag; done: how often it was tested
  uint64_t ticks;    // when
  uint64_t bytes;    // posted; done: as test reported them, else as posted
  float plugin;      // ticks within the plugin's calls; done: in all
  float took;        // done: ticks since it was posted
};
static_assert(sizeof(Record) == 40 && offsetof(Record, ticks) == 16, "the file has them");

}  // namespace tap

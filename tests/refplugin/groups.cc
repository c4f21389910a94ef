// softtcpx of the kind that puts data in place, which takes several receives in one call, with its
// answers to a group changed by GROUPS_DO. GROUPS_REAL is the path of softtcpx.
//
//   reversed  lawful: it looks at the receives from the last to the first
//   tags      the tags of the first two are mistaken for each other, where there is room
//   untold    the same, and it writes no sizes
//   sizes     the sizes of the first two are mistaken for each other
//   room      the size of a receive is told as it was posted
//   spills    a receive is overwritten up to its end, whatever came
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "net/abi_v7.h"

extern "C" __attribute__((visibility("default"))) NetTableV7 ncclNetPlugin_v7;
NetTableV7 ncclNetPlugin_v7;

namespace {

NetTableV7* g_real;

struct Part {
  char* data;
  int room;
};
thread_local std::map<void*, std::vector<Part>> g_groups;  // that are posted, by request

bool does(const char* what) {
  const char* asked = getenv("GROUPS_DO");
  return asked != nullptr && strcmp(asked, what) == 0;
}

int irecv(void* comm, int n, void** data, int* sizes, int* tags, void** mhandles, void** request) {
  std::vector<Part> parts;
  for (int i = 0; i < n; ++i) parts.push_back({static_cast<char*>(data[i]), sizes[i]});
  if (does("reversed")) {
    std::reverse(data, data + n);
    std::reverse(sizes, sizes + n);
    std::reverse(tags, tags + n);
    std::reverse(mhandles, mhandles + n);
  }
  if (n > 1 && (does("tags") || does("untold"))) {
    const char* end = parts.back().data + parts.back().room;
    for (int i = 0; i < n; ++i) sizes[i] = static_cast<int>(end - parts[i].data);
    if (parts[0].room <= sizes[1]) std::swap(tags[0], tags[1]);  // else softtcpx would refuse it
  }
  const int code = g_real->irecv(comm, n, data, sizes, tags, mhandles, request);
  if (*request != nullptr) g_groups[*request] = parts;
  return code;
}

int test(void* request, int* done, int* sizes) {
  const auto found = g_groups.find(request);
  if (found == g_groups.end()) return g_real->test(request, done, sizes);
  const std::vector<Part> parts = found->second;
  int got[8] = {};
  const int code = g_real->test(request, done, got);
  if (code != kNetSuccess || !*done) return code;
  g_groups.erase(found);
  const auto n = static_cast<int>(parts.size());
  if (does("reversed")) std::reverse(got, got + n);
  if (n > 1 && does("sizes")) std::swap(got[0], got[1]);
  for (int i = 0; i < n; ++i) {
    if (does("spills")) memset(parts[i].data + got[i], 0x5a, parts[i].room - got[i]);
    if (!does("untold")) sizes[i] = does("room") ? parts[i].room : got[i];
  }
  return code;
}

int init(NetLogger log);

// The entries of softtcpx, which changes some when it is initialised.
void take_entries() {
  ncclNetPlugin_v7 = *g_real;
  ncclNetPlugin_v7.name = "groups";
  ncclNetPlugin_v7.init = init;
  ncclNetPlugin_v7.irecv = irecv;
  ncclNetPlugin_v7.test = test;
}

int init(NetLogger log) {
  const int code = g_real->init(log);
  take_entries();
  return code;
}

__attribute__((constructor)) void load() {
  const char* path = getenv("GROUPS_REAL");
  void* library = dlopen(path != nullptr ? path : "", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return;
  g_real = static_cast<NetTableV7*>(dlsym(library, "ncclNetPlugin_v7"));
  take_entries();
}

}  // namespace

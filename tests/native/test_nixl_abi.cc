// The table of virtual functions, word by word, and the guard against a NIXL of another layout.
#include <dlfcn.h>

#include "check.h"
#include "library/nixl/abi.h"
#include "library/nixl/guard.h"

using namespace tcpx::nixl;

namespace {

// Where a virtual function is in the table, as the C++ ABI of this machine keeps it.
template <typename Method>
size_t place_of(Method method) {
  intptr_t words[2];
  static_assert(sizeof(method) == sizeof(words));
  memcpy(words, &method, sizeof(words));
  return (words[0] - 1) / sizeof(void*);
}

}  // namespace

TEST(the_functions_have_the_places_where_nixl_calls_them) {
  // Behind the two destructors.
  CHECK_EQ(place_of(&Backend::supports_remote), 2u);
  CHECK_EQ(place_of(&Backend::supports_local), 3u);
  CHECK_EQ(place_of(&Backend::supports_notif), 4u);
  CHECK_EQ(place_of(&Backend::supported_memories), 5u);
  CHECK_EQ(place_of(&Backend::register_memory), 6u);
  CHECK_EQ(place_of(&Backend::deregister_memory), 7u);
  CHECK_EQ(place_of(&Backend::connect), 8u);
  CHECK_EQ(place_of(&Backend::disconnect), 9u);
  CHECK_EQ(place_of(&Backend::unload_metadata), 10u);
  CHECK_EQ(place_of(&Backend::prepare), 11u);
  CHECK_EQ(place_of(&Backend::post), 12u);
  CHECK_EQ(place_of(&Backend::check), 13u);
  CHECK_EQ(place_of(&Backend::release), 14u);
  CHECK_EQ(place_of(&Backend::prepare_remote_view), 15u);
  CHECK_EQ(place_of(&Backend::prepare_local_view), 16u);
  CHECK_EQ(place_of(&Backend::release_view), 17u);
  CHECK_EQ(place_of(&Backend::public_data), 18u);
  CHECK_EQ(place_of(&Backend::connection_info), 19u);
  CHECK_EQ(place_of(&Backend::load_connection_info), 20u);
  CHECK_EQ(place_of(&Backend::load_remote_metadata), 21u);
  CHECK_EQ(place_of(&Backend::load_local_metadata), 22u);
  CHECK_EQ(place_of(&Backend::notifications), 23u);
  CHECK_EQ(place_of(&Backend::notify), 24u);
  CHECK_EQ(place_of(&Backend::query_memory), 25u);
  CHECK_EQ(place_of(&Backend::estimate_cost), 26u);
}

TEST(the_plugin_wants_to_be_loaded_by_nixl) {
  CHECK(check::contains(why_not_this_nixl(), "no libnixl.so"));
}

TEST(the_plugin_refuses_a_nixl_of_before_1_0) {
  CHECK(dlopen(NIXL_OLD, RTLD_NOW) != nullptr);
  CHECK(check::contains(why_not_this_nixl(), "older than NIXL 1.0"));
  void* plugin = dlopen(NIXL_PLUGIN, RTLD_NOW | RTLD_LOCAL);
  CHECK(plugin != nullptr);
  auto* init = reinterpret_cast<void* (*)()>(dlsym(plugin, "nixl_plugin_init"));
  CHECK(init() == nullptr);
}

TEST(the_plugin_takes_a_nixl_of_its_layout) {
  CHECK(dlopen(NIXL_STAND_IN, RTLD_NOW) != nullptr);
  CHECK_EQ(why_not_this_nixl(), "");
}

CHECK_MAIN()

// Finding a plugin in a file, and what is no plugin.
#include <dlfcn.h>

#include <csignal>
#include <fstream>

#include "check.h"
#include "net/library.h"
#include "net/logger.h"

using namespace tcpx;

namespace {

std::string in_folder(const char* name) { return std::string(PLUGIN_FOLDER "/lib") + name + ".so"; }

}  // namespace

TEST(a_missing_file_is_named) {
  CHECK_THROWS(Plugin("/no/such/libnccl-net.so"), LibraryError, "/no/such/libnccl-net.so");
}

TEST(a_file_that_is_no_library_is_named) {
  const std::string path = "test_loader_no_library.so";
  std::ofstream(path) << "#!/bin/sh\n";
  CHECK_THROWS(Plugin("./" + path), LibraryError, path);
  remove(path.c_str());
}

TEST(a_library_that_is_no_plugin_is_named) {
  CHECK_THROWS(Plugin(in_folder("no_table")), LibraryError,
               "libno_table.so is no NCCL network plugin: it exports no ncclNetPlugin_vN");
}

TEST(a_plugin_of_other_versions_is_named_with_them) {
  CHECK_THROWS(Plugin(in_folder("only_v13")), LibraryError,
               "offers ABI v13, v5, supported are v6 to v12: use a build of the plugin");
  CHECK_THROWS(Plugin(in_folder("only_v13"), 9), LibraryError, "offers ABI v13, v5, not the v9");
}

TEST(the_newest_table_that_we_can_drive_is_used_or_the_one_that_is_asked_for) {
  const std::string path = in_folder("fills_in_init");
  CHECK(Plugin(path).abi_versions() == std::vector<int>({10, 9, 8}));
  CHECK_EQ(Plugin(path).net().abi(), 10);
  CHECK_EQ(Plugin(path, 8).net().abi(), 8);
  CHECK_THROWS(Plugin(path, 7), LibraryError, "offers ABI v10, v9, v8, not the v7");
}

TEST(a_table_may_be_filled_by_its_init) {
  Plugin plugin(in_folder("fills_in_init"), 8);
  CHECK_EQ(plugin.net().missing().size(), size_t{14});
  plugin.init();
  CHECK(plugin.net().missing().empty());
  int count = 0;
  CHECK_EQ(plugin.net().devices(&count), 0);
  CHECK_EQ(count, 3);
  NetProperties properties;
  CHECK_EQ(plugin.net().properties(0, &properties), 0);
  CHECK_EQ(properties.max_recvs, 5);
}

TEST(a_table_that_lacks_entries_after_init_is_refused_with_their_names) {
  Plugin plugin(in_folder("fills_in_init"), 9);
  CHECK_THROWS(plugin.init(), IncompleteTable,
               "after init its table of v9 still has no getProperties, isend, irecv");
  CHECK(!plugin.initialised());
}

TEST(a_table_without_init_is_refused) {
  Plugin plugin(in_folder("fills_in_init"), 10);
  CHECK_THROWS(plugin.init(), IncompleteTable, "its table of v10 has no init");
}

TEST(the_table_of_a_plugin_is_found) {
  Plugin plugin(NULL_PLUGIN);
  CHECK_EQ(plugin.net().abi(), 7);
  CHECK_EQ(std::string(plugin.net().name()), std::string("null"));
  CHECK(plugin.abi_versions() == std::vector<int>({7}));
  CHECK(check::contains(plugin.path(), "libnccl-net-null.so"));
  CHECK(!plugin.initialised());
  plugin.init();
  CHECK(plugin.initialised());
  int count = 0;
  CHECK_EQ(plugin.net().devices(&count), 0);
  CHECK_EQ(count, 1);
  NetProperties properties;
  CHECK_EQ(plugin.net().properties(0, &properties), 0);
  CHECK_EQ(properties.name, std::string("null0"));
  CHECK_EQ(properties.pci_path, std::string());  // NULL in the table
}

TEST(the_path_is_that_of_the_file_as_mapped) {
  const std::string link = "test_loader_link.so";
  unlink(link.c_str());
  CHECK_EQ(symlink(NULL_PLUGIN, link.c_str()), 0);
  CHECK_EQ(Plugin("./" + link).path(), Plugin(NULL_PLUGIN).path());
  unlink(link.c_str());
}

TEST(init_is_once_a_process) {
  Plugin plugin(NULL_PLUGIN);
  plugin.init();
  CHECK_THROWS(plugin.init(), PluginError, "once a process");
  Plugin again(NULL_PLUGIN);
  CHECK_THROWS(again.init(), PluginError, "once a process");
}

TEST(init_is_not_tried_again_after_a_failure_and_the_plugin_is_quoted) {
  Plugin plugin(in_folder("refuses_init"));
  CHECK_THROWS(plugin.init(), PluginError,
               "plugin call init returned 3 (internal error): the plugin said: "
               "no rx_rule_manager today: (null)");
  CHECK(!plugin.initialised());
  CHECK_THROWS(plugin.init(), PluginError, "also after a failure");
  void* library = dlopen(in_folder("refuses_init").c_str(), RTLD_NOW | RTLD_NOLOAD);
  CHECK_EQ(*static_cast<int*>(dlsym(library, "refuses_init_calls")), 1);
}

TEST(names_of_a_plugin_stay_its_own) {
  Plugin plugin(in_folder("exports_much"));
  CHECK_EQ(std::string(plugin.net().name()), std::string("exports"));
  CHECK(dlsym(RTLD_DEFAULT, "tcpx_test_leaked_name") == nullptr);
  CHECK(dlsym(RTLD_DEFAULT, "ncclNetPlugin_v7") == nullptr);
}

TEST(slots_that_a_plugin_leaves_null_are_not_offered) {
  Plugin plugin(in_folder("exports_much"));
  CHECK(!plugin.net().offers_consumed());
  CHECK(!plugin.net().offers_device_mr());
  CHECK(!plugin.net().offers_dma_buf());
  CHECK_EQ(plugin.net().irecv_consumed(nullptr, 1, nullptr), 0);
  CHECK_EQ(plugin.net().finalize(), 0);
}

TEST(sizes_that_the_version_cannot_express_are_refused_not_cut) {
  Plugin plugin(NULL_PLUGIN);
  void* mhandle = nullptr;
  CHECK_EQ(plugin.net().max_region_bytes(), size_t{INT32_MAX});
  CHECK_EQ(plugin.net().reg_mr(nullptr, nullptr, size_t{1} << 31, 1, &mhandle), 4);
  void* data[9] = {};
  void* mhandles[9] = {};
  size_t bytes[9] = {};
  int tags[9] = {};
  void* request = nullptr;
  CHECK_EQ(plugin.net().irecv(nullptr, 9, data, bytes, tags, mhandles, &request), 4);
}

TEST(a_dead_peer_is_a_code_and_not_our_death) {
  signal(SIGPIPE, SIG_DFL);
  Plugin plugin(NULL_PLUGIN);
  struct sigaction now {};
  sigaction(SIGPIPE, nullptr, &now);
  CHECK(now.sa_handler == SIG_IGN);
}

TEST(result_codes_have_names) {
  CHECK_EQ(std::string(result_name(6)), std::string("remote error"));
  CHECK_EQ(std::string(result_name(77)), std::string("unknown code"));
}

CHECK_MAIN()

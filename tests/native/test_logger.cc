// The logger that plugins call: any text, from any thread, at any rate.
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "engine/clock.h"
#include "net/logger.h"

using namespace tcpx;
using plugin_log::function;
using plugin_log::recent_lines;

TEST(a_null_string_is_printed_as_such) {
  const char* null = nullptr;
  function()(kNetLogInfo, 0, "init", 1, "path %s, %d", null, 7);
  CHECK_EQ(recent_lines().back(), std::string("path (null), 7"));
}

TEST(a_null_format_or_function_is_survived) {
  function()(kNetLogWarn, 0, nullptr, 0, nullptr);
  CHECK(recent_lines().empty());
  plugin_log::set_print_level(kNetLogWarn);
  function()(kNetLogWarn, 0, nullptr, 0, "no function");
  CHECK_EQ(recent_lines().back(), std::string("no function"));
}

TEST(long_and_ragged_lines_are_cut) {
  const std::string longer(5000, 'x');
  function()(kNetLogWarn, 0, "f", 1, "%s", longer.c_str());
  CHECK_EQ(recent_lines().back(), std::string(511, 'x'));
  function()(kNetLogWarn, 0, "f", 1, "one\r\ntwo\n");
  CHECK_EQ(recent_lines().back(), std::string("one"));
}

TEST(the_last_lines_are_kept_oldest_first) {
  for (int i = 0; i < 100; ++i) function()(kNetLogInfo, 0, "f", 1, "line %d", i);
  const auto lines = recent_lines();
  CHECK_EQ(lines.size(), 16u);
  CHECK_EQ(lines.front(), std::string("line 84"));
  CHECK_EQ(lines.back(), std::string("line 99"));
}

TEST(the_first_warnings_outside_of_a_batch_are_kept_once_each) {
  const auto warn = [](int number) { function()(kNetLogWarn, 0, "f", 1, "bad %d", number); };
  warn(0);
  warn(0);
  for (int i = 0; i < 100; ++i) function()(kNetLogInfo, 0, "f", 1, "line %d", i);
  plugin_log::set_quiet(true);
  warn(-1);
  plugin_log::set_quiet(false);
  for (int i = 1; i < 100; ++i) warn(i);
  const auto lines = plugin_log::first_warnings();
  CHECK_EQ(lines.size(), 16u);
  for (int i = 0; i < 16; ++i) CHECK_EQ(lines[i], "bad " + std::to_string(i));
}

TEST(traces_are_not_kept_and_what_precedes_an_end_is) {
  function()(kNetLogTrace, 0, "f", 1, "trace");
  CHECK(recent_lines().empty());
  for (const int level : {kNetLogVersion, kNetLogWarn, kNetLogInfo, kNetLogAbort}) {
    function()(level, 0, "f", 1, "level %d", level);
    CHECK_EQ(recent_lines().back(), "level " + std::to_string(level));
  }
}

TEST(warnings_are_counted_from_many_threads_and_lines_are_whole) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < 5000; ++i) {
        function()(kNetLogWarn, 0, "f", i, "%s", std::string(100, char('a' + t)).c_str());
        if (i % 100 == 0) recent_lines();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK_EQ(plugin_log::warnings(), 20'000u);
  for (const std::string& line : recent_lines()) {
    CHECK_EQ(line, std::string(100, line[0]));
  }
}

TEST(the_last_place_that_warned_is_told_with_what_it_said_first) {
  CHECK_EQ(plugin_log::quote(plugin_log::last_warning()), std::string());
  const auto warn = [](const char* function_name, const char* text) {
    function()(kNetLogWarn, 0, function_name, 1, "%s!", text);
  };
  static const char* const kOne = "one";
  static const char* const kOther = "other";
  warn(kOne, "a");
  warn(kOther, "b");
  function()(kNetLogInfo, 0, kOne, 1, "an INFO line is no warning");
  CHECK_EQ(plugin_log::quote(plugin_log::last_warning()), std::string("; the plugin said: b!"));
  const int earlier = plugin_log::last_warning();
  warn(kOne, "c");
  CHECK_EQ(plugin_log::quote(plugin_log::last_warning()),
           std::string("; the plugin said, and not only once: a!"));
  CHECK_EQ(plugin_log::text_of(earlier), std::string("b!"));
  plugin_log::set_quiet(true);
  CHECK_EQ(plugin_log::last_warning(), plugin_log::kNoPlace);
  warn(kOther, "d");
  CHECK_EQ(plugin_log::last_warning(), earlier);
  plugin_log::set_quiet(false);
}

TEST(of_more_places_than_there_is_room_for_nothing_is_kept) {
  static const char formats[100][8] = {};
  for (int i = 0; i < 100; ++i) function()(kNetLogWarn, 0, "f", 1, formats[i]);
  CHECK_EQ(plugin_log::warnings(), 100u);
  CHECK_EQ(plugin_log::last_warning(), 63);
  CHECK_EQ(plugin_log::text_of(64), std::string());
  plugin_log::set_quiet(true);
  // A text that would fault if it were looked at.
  function()(kNetLogWarn, 0, "new", 1, "%s", reinterpret_cast<const char*>(0x10));
  plugin_log::set_quiet(false);
}

TEST(while_quiet_a_line_is_formatted_once_and_not_kept) {
  const auto cpu_of = [](const auto& line) {  // of this thread: whoever else runs does not count
    const auto now = [] {
      timespec used;
      clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
      return used.tv_sec * int64_t{1'000'000'000} + used.tv_nsec;
    };
    const int64_t start = now();
    for (int i = 0; i < 1'000'000; ++i) line(i);
    return now() - start;
  };
  char text[64];
  const int64_t formatting = cpu_of([&](int i) {
    std::snprintf(text, sizeof text, "%s %d", "a line of a plugin that talks a lot", i);
  });
  CHECK_EQ(std::string(text), "a line of a plugin that talks a lot 999999");
  plugin_log::set_quiet(true);
  const int64_t quiet = cpu_of([](int i) {
    function()(kNetLogWarn, 0, "f", i, "%s %d", "a line of a plugin that talks a lot", i);
  });
  plugin_log::set_quiet(false);
  CHECK(recent_lines().empty());
  CHECK_EQ(plugin_log::warnings(), 1'000'000u);
  CHECK_LT(quiet, formatting);
}

TEST(a_call_leaves_errno_alone) {
  errno = ECONNRESET;
  function()(kNetLogWarn, 0, "f", 1, "%ls", L"\xD800");  // a character that cannot be converted
  CHECK_EQ(errno, ECONNRESET);
}

CHECK_MAIN()

TEST(an_error_of_set_up_quotes_what_the_call_warned_of_and_not_the_trace_behind_it) {
  plugin_log::begin_call();
  function()(kNetLogWarn, 0, "listen", 1, "of the call before");
  plugin_log::begin_call();
  function()(kNetLogWarn, 0, "connect", 2, "Connection refused");
  std::thread([] { function()(kNetLogWarn, 0, "helper", 3, "of another thread"); }).join();
  function()(kNetLogInfo, 0, "connect", 4, "net.cc:4 -> 2");
  CHECK_EQ(plugin_log::quote_call(), std::string("; the plugin said: Connection refused"));
  plugin_log::begin_call();
  function()(kNetLogInfo, 0, "accept", 5, "net.cc:5 -> 3");
  CHECK_EQ(plugin_log::quote_call(), std::string("; the plugin said: net.cc:5 -> 3"));
}

TEST(a_stall_quotes_a_warning_that_came_once_before_one_that_repeats) {
  plugin_log::set_quiet(true);
  CHECK_EQ(plugin_log::quote_since(0), std::string());
  for (int i = 0; i < 1000; ++i) function()(kNetLogWarn, 0, "recv", 1, "would block");
  CHECK(plugin_log::quote_since(0).find("; the plugin said: would block (1000 times, last 0.") ==
        0);
  function()(kNetLogWarn, 0, "send", 2, "Connection %s by peer", "reset");
  for (int i = 0; i < 1000; ++i) function()(kNetLogWarn, 0, "recv", 1, "would block");
  CHECK(plugin_log::quote_since(0).find("; the plugin said: Connection reset by peer (once, 0.") ==
        0);
  CHECK_EQ(plugin_log::quote_since(now_ns() + 1'000'000'000), std::string());
}

TEST(an_end_by_the_plugin_quotes_the_last_two_warnings_that_differ) {
  plugin_log::begin_call();
  for (const char* text : {"first", "no such file", "no such file", "cannot go on"}) {
    function()(kNetLogWarn, 0, "init", 1, "%s", text);
  }
  CHECK_EQ(plugin_log::quote_end(), std::string("; the plugin said: no such file; cannot go on"));
}

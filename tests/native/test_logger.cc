// The logger that plugins call: any text, from any thread, at any rate.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "engine/clock.h"
#include "net/log_printer.h"
#include "net/logger.h"
#include "net/printable.h"

using namespace tcpx;
using plugin_log::function;
using plugin_log::recent_lines;

TEST(a_null_string_is_printed_as_such) {
  const char* null = nullptr;
  function()(kNetLogInfo, 0, "init", 1, "path %s, %d", null, 7);
  CHECK_EQ(recent_lines().back(), std::string("path (null), 7"));
}

TEST(a_line_without_a_function_has_a_place_all_the_same) {
  plugin_log::set_quiet(true);
  function()(kNetLogWarn, 0, nullptr, 3, "first");
  // A text that would fault if it were looked at.
  function()(kNetLogWarn, 0, nullptr, 3, "%s", reinterpret_cast<const char*>(0x10));
  CHECK_EQ(plugin_log::text_of(plugin_log::last_warning()), std::string("first"));
}

TEST(a_null_format_or_function_is_survived) {
  function()(kNetLogWarn, 0, nullptr, 0, nullptr);
  CHECK(recent_lines().empty());
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

TEST(places_are_told_apart_by_function_and_line_and_not_by_what_they_say) {
  static const char* const kFunction = "f";
  plugin_log::set_quiet(true);
  for (int line = 1; line <= 100; ++line) {
    function()(kNetLogWarn, 0, kFunction, line, "line %d", line);
    const int place = plugin_log::last_warning();
    // Of the second one nothing is looked at, neither format nor text.
    function()(kNetLogWarn, 0, kFunction, line, reinterpret_cast<const char*>(0x10));
    CHECK_EQ(plugin_log::last_warning(), place);
    CHECK_EQ(plugin_log::text_of(place), "line " + std::to_string(line));
  }
  plugin_log::set_quiet(false);
}

TEST(places_whose_hashes_are_alike_are_told_apart) {
  static const char names[4096] = {};
  plugin_log::set_quiet(true);
  for (int i = 0; i < 100; ++i) {
    // Equal lines of many functions, and equal sums of both: 8 bytes weigh as much as 31 lines.
    const char* text = names + 8 * i;
    function()(kNetLogWarn, 0, text, 31 * (100 - i), "alike %d", i);
    CHECK_EQ(plugin_log::text_of(plugin_log::last_warning()), "alike " + std::to_string(i));
    function()(kNetLogWarn, 0, text, 7, "function %d", i);
    CHECK_EQ(plugin_log::text_of(plugin_log::last_warning()), "function " + std::to_string(i));
  }
  plugin_log::set_quiet(false);
}

TEST(places_for_which_there_is_no_room_are_one) {
  plugin_log::set_quiet(true);
  for (int i = 0; i < 256; ++i) function()(kNetLogWarn, 0, "f", i, "known");
  function()(kNetLogWarn, 0, "f", 256, "one more");
  const int place = plugin_log::last_warning();
  // A text that would fault if it were looked at.
  for (int i = 257; i < 1000; ++i) {
    function()(kNetLogWarn, 0, "f", i, "%s", reinterpret_cast<const char*>(0x10));
  }
  CHECK_EQ(plugin_log::last_warning(), place);
  CHECK_EQ(plugin_log::quote(place), std::string("; the plugin said, and not only once: one more"));
  function()(kNetLogWarn, 0, "f", 7, reinterpret_cast<const char*>(0x10));  // still known
  CHECK_EQ(plugin_log::text_of(plugin_log::last_warning()), std::string("known"));
  plugin_log::set_quiet(false);
}

TEST(between_calls_a_place_is_kept_three_times_and_then_not_looked_at) {
  plugin_log::initialised();
  for (int i = 0; i < 3; ++i) function()(kNetLogWarn, 0, "helper", 1, "text %d", i);
  for (int i = 0; i < 1000; ++i) {
    function()(kNetLogWarn, 0, "helper", 1, "%s", reinterpret_cast<const char*>(0x10));
    function()(kNetLogTrace, 0, "helper", 2, "%s", reinterpret_cast<const char*>(0x10));
  }
  CHECK_EQ(recent_lines().size(), 3u);
  CHECK_EQ(recent_lines().back(), std::string("text 2"));
  {
    const plugin_log::SetUpCall call;  // what it fails of must be quoted, however often it was said
    function()(kNetLogWarn, 0, "helper", 1, "text %d", 3);
    CHECK_EQ(plugin_log::quote_call(), std::string("; the plugin said: text 3"));
  }
  function()(kNetLogWarn, 0, "helper", 1, "%s", reinterpret_cast<const char*>(0x10));
}

TEST(all_lines_of_init_are_kept_up_to_64_kib) {
  for (int i = 0; i < 1000; ++i) function()(kNetLogInfo, 0, "init", 1, "line %d", i);
  plugin_log::initialised();
  function()(kNetLogInfo, 0, "connect", 1, "later");
  auto lines = plugin_log::init_lines();
  CHECK_EQ(lines.size(), 1000u);
  for (int i = 0; i < 1000; ++i) CHECK_EQ(lines[i], "line " + std::to_string(i));
  plugin_log::begin_init();
  const std::string longest(511, 'x');
  for (int i = 0; i < 1000; ++i) function()(kNetLogWarn, 0, "init", 2, "%s", longest.c_str());
  lines = plugin_log::init_lines();
  CHECK_EQ(lines.size(), 128u);
  CHECK_EQ(lines.back(), longest);
}

// What a function prints to stderr.
template <typename F>
std::string printed(F&& f) {
  FILE* file = tmpfile();
  const int before = dup(STDERR_FILENO);
  dup2(fileno(file), STDERR_FILENO);
  f();
  dup2(before, STDERR_FILENO);
  close(before);
  rewind(file);
  std::string text;
  for (int c; (c = fgetc(file)) != EOF;) text += static_cast<char>(c);
  fclose(file);
  return text;
}

// Its lines without their time, which is looked at here.
std::vector<std::string> timeless(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    const size_t at = line.find(':', line.find(':') + 1);
    int hour, minute, second, ms;
    CHECK_EQ(sscanf(line.c_str() + at - 2, "%2d:%2d:%2d.%3d ", &hour, &minute, &second, &ms), 4);
    lines.push_back(line.erase(at - 2, 13));
  }
  return lines;
}

TEST(a_place_is_printed_three_times_then_counted) {
  plugin_log::initialised();
  plugin_log::set_name("rank 3 on a");
  plugin_log::set_print(kNetLogInfo, 1);
  plugin_log::set_quiet(true);  // where most of them come from
  const auto text = printed([] {
    for (int i = 0; i < 120'717; ++i) function()(kNetLogWarn, 0, "recv", 53, "lost %d", i);
    function()(kNetLogInfo, 1, "close", 7, "closed");
    plugin_log::end_printing();
    plugin_log::end_printing();  // says it once
  });
  const std::vector<std::string> expected = {
      "# plugin: rank 3 on a WARN recv:53 lost 0",
      "# plugin: rank 3 on a WARN recv:53 lost 1",
      "# plugin: rank 3 on a WARN recv:53 lost 2",
      "# plugin: rank 3 on a WARN recv:53 ... 7 more",
      "# plugin: rank 3 on a WARN recv:53 ... 97 more",
      "# plugin: rank 3 on a WARN recv:53 ... 997 more",
      "# plugin: rank 3 on a WARN recv:53 ... 9,997 more",
      "# plugin: rank 3 on a WARN recv:53 ... 99,997 more",
      "# plugin: rank 3 on a INFO close:7 closed",
      "# plugin: rank 3 on a WARN recv:53 ... 120,714 more",
  };
  CHECK(timeless(text) == expected);
  if (timeless(text) != expected) fprintf(stderr, "%s", text.c_str());
}

TEST(lines_are_printed_by_level_and_subsystem) {
  plugin_log::initialised();
  static int line = 0;
  const auto shown = [](int print_level, unsigned long subsystems, int level, unsigned long flags) {
    plugin_log::set_print(print_level, subsystems);
    return !printed([&] { function()(level, flags, "f", ++line, "text"); }).empty();
  };
  CHECK(!shown(kNetLogNone, ~0ul, kNetLogWarn, ~0ul));
  CHECK(!shown(kNetLogTrace, ~0ul, kNetLogNone, ~0ul));
  CHECK(!shown(kNetLogVersion, ~0ul, kNetLogWarn, ~0ul));
  CHECK(shown(kNetLogVersion, 0, kNetLogVersion, 16));
  CHECK(shown(kNetLogWarn, 1, kNetLogWarn, 16));  // whatever it belongs to
  CHECK(!shown(kNetLogWarn, ~0ul, kNetLogInfo, ~0ul));
  CHECK(shown(kNetLogInfo, 1 | 16, kNetLogInfo, 16));
  CHECK(!shown(kNetLogInfo, 1, kNetLogInfo, 16));
  CHECK(!shown(kNetLogInfo, ~0ul, kNetLogTrace, ~0ul));
  CHECK(shown(kNetLogTrace, 16, kNetLogTrace, 16));
  CHECK(!shown(kNetLogTrace, 1, kNetLogTrace, 16));
}

TEST(in_init_all_lines_are_printed_whatever_their_place) {
  plugin_log::set_print(kNetLogInfo, ~0ul);
  const auto text = printed([] {
    for (int i = 0; i < 40; ++i) function()(kNetLogInfo, 1, "init", 1, "line %d", i);
    plugin_log::end_printing();
  });
  CHECK_EQ(timeless(text).size(), 40u);
}

TEST(while_quiet_a_line_is_formatted_once_and_not_kept) {
  plugin_log::set_quiet(true);
  for (int i = 0; i < 1'000'000; ++i) {
    // A text that would fault if it were looked at.
    const auto* text = i == 0 ? "first" : reinterpret_cast<const char*>(0x10);
    function()(kNetLogWarn, 0, "f", 1, "%s", text);
    function()(kNetLogInfo, 0, "f", 2, "%s", reinterpret_cast<const char*>(0x10));
  }
  CHECK_EQ(plugin_log::text_of(plugin_log::last_warning()), std::string("first"));
  plugin_log::set_quiet(false);
  CHECK(recent_lines().empty());
  CHECK(plugin_log::init_lines().empty());
  CHECK_EQ(plugin_log::warnings(), 1'000'000u);
}

TEST(a_call_leaves_errno_alone) {
  errno = ECONNRESET;
  function()(kNetLogWarn, 0, "f", 1, "%ls", L"\xD800");  // a character that cannot be converted
  CHECK_EQ(errno, ECONNRESET);
}

TEST(an_error_of_set_up_quotes_what_the_call_warned_of_and_not_the_trace_behind_it) {
  {
    const plugin_log::SetUpCall call;
    function()(kNetLogWarn, 0, "listen", 1, "of the call before");
  }
  {
    const plugin_log::SetUpCall call;
    function()(kNetLogWarn, 0, "connect", 2, "Connection refused");
    std::thread([] { function()(kNetLogWarn, 0, "helper", 3, "of another thread"); }).join();
    function()(kNetLogInfo, 0, "connect", 4, "net.cc:4 -> 2");
  }
  CHECK_EQ(plugin_log::quote_call(), std::string("; the plugin said: Connection refused"));
  {
    const plugin_log::SetUpCall call;
    function()(kNetLogInfo, 0, "accept", 5, "net.cc:5 -> 3");
  }
  CHECK_EQ(plugin_log::quote_call(), std::string("; the plugin said: net.cc:5 -> 3"));
  { const plugin_log::SetUpCall call; }
  CHECK_EQ(plugin_log::quote_call(), std::string());
}

TEST(an_error_of_a_connection_quotes_a_warning_of_another_thread_since_it_began) {
  function()(kNetLogWarn, 0, "helper", 6, "of a connection before");
  const int64_t began_ns = now_ns();
  std::thread([] { function()(kNetLogWarn, 0, "helper", 7, "no manager answers"); }).join();
  {
    const plugin_log::SetUpCall call;
    function()(kNetLogInfo, 0, "accept", 8, "net.cc:8 -> 3");
  }
  CHECK_EQ(plugin_log::quote_call(began_ns), std::string("; the plugin said: no manager answers"));
  CHECK_EQ(plugin_log::quote_call(now_ns()), std::string("; the plugin said: net.cc:8 -> 3"));
}

TEST(a_stall_quotes_a_warning_that_came_once_before_one_that_repeats) {
  plugin_log::set_quiet(true);
  CHECK_EQ(plugin_log::quote_since(0), std::string());
  plugin_log::set_quiet(false);
  function()(kNetLogInfo, 0, "connect", 9, "no warning, and never repeated");
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
  const plugin_log::SetUpCall call;
  for (const char* text : {"first", "no such file", "no such file", "cannot go on"}) {
    function()(kNetLogWarn, 0, "init", 1, "%s", text);
  }
  function()(kNetLogWarn, 0, "init", 1, "cannot go on");
  CHECK_EQ(plugin_log::quote_end(), std::string("; the plugin said: no such file; cannot go on"));
  plugin_log::set_quiet(true);  // in a batch it ends of what it warned of there
  function()(kNetLogWarn, 0, "test", 2, "too many fragments");
  CHECK_EQ(plugin_log::quote_end(), std::string("; the plugin said: too many fragments"));
}

TEST(what_is_no_text_is_made_one) {
  function()(kNetLogWarn, 0, "f", 1, "%s", "a\xff\x01\xc3\xa9\xe2\x82");
  CHECK_EQ(recent_lines().back(), std::string("a??\xc3\xa9??"));
  CHECK_EQ(printable("od\xff\x01\nd"), std::string("od\\xff\\x01\\x0ad"));
  const std::string whole = "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\xf4\x8f\xbf\xbf";
  CHECK_EQ(printable(whole.c_str()), whole);
  CHECK_EQ(printable("\xc0\x80\xed\xa0\x80"), std::string("\\xc0\\x80\\xed\\xa0\\x80"));
  CHECK_EQ(printable("\xf4\x90\xc2"), std::string("\\xf4\\x90\\xc2"));
  CHECK_EQ(printable(std::string(5000, 'n').c_str(), 4), std::string("nnnnn..."));
}

CHECK_MAIN()

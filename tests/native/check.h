// Named checks for native tests: TEST(name) { CHECK_EQ(a, b); }, and a main that runs them.
//
// A check that fails prints file, line and both values, and the test goes on. `program NAME` runs
// one test in this process; without a name each runs in a process of its own, as state that lasts
// as long as a process (a plugin's init, a signal flag) is part of what is tested.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

namespace check {

struct Test {
  const char* name;
  void (*body)();
};

inline std::vector<Test>& tests() {
  static std::vector<Test> all;
  return all;
}

inline int& failures() {
  static int count = 0;
  return count;
}

struct Registration {
  Registration(const char* name, void (*body)()) { tests().push_back({name, body}); }
};

template <typename T>
std::string text(const T& value) {
  std::ostringstream out;
  if constexpr (std::is_same_v<T, uint8_t> || std::is_same_v<T, int8_t>) {
    out << int{value};
  } else if constexpr (std::is_enum_v<T>) {
    out << static_cast<long long>(value);
  } else {
    out << value;
  }
  return out.str();
}

inline void fail(const char* file, int line, const std::string& what) {
  // A broken loop must not bury the first failure.
  if (++failures() <= 20) fprintf(stderr, "%s:%d: %s\n", file, line, what.c_str());
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// What a test lacks here; empty where it lacks nothing.
inline std::string& lacks() {
  static std::string what;
  return what;
}

constexpr int kSkipped = 77;  // as ctest and automake have it

inline int run_one(const Test& test) {
  test.body();
  if (!lacks().empty()) {
    printf("%s: needs %s\n", test.name, lacks().c_str());
    fflush(stdout);  // what follows may be _exit
    return kSkipped;
  }
  if (failures() > 0) fprintf(stderr, "%s: %d failed checks\n", test.name, failures());
  return failures() > 0 ? 1 : 0;
}

inline int main(int count, char** arguments) {
  int failed = 0;
  for (const Test& test : tests()) {
    if (count > 1) {
      if (strcmp(test.name, arguments[1]) == 0) return run_one(test);
      continue;
    }
    const pid_t child = fork();
    if (child == 0) _exit(run_one(test));
    int status = 0;
    waitpid(child, &status, 0);
    const bool skipped = WIFEXITED(status) && WEXITSTATUS(status) == kSkipped;
    printf("%s %s\n", skipped ? "skip  " : status == 0 ? "ok    " : "FAILED", test.name);
    failed += status != 0 && !skipped;
  }
  if (count > 1) {
    fprintf(stderr, "no test %s\n", arguments[1]);
    return 2;
  }
  return failed > 0 ? 1 : 0;
}

}  // namespace check

#define TEST(name)                                                    \
  static void test_##name();                                          \
  static check::Registration registration_##name{#name, test_##name}; \
  static void test_##name()

#define CHECK(condition)                                                      \
  do {                                                                        \
    if (!(condition)) check::fail(__FILE__, __LINE__, "not so: " #condition); \
  } while (false)

#define CHECK_COMPARED(a, relation, b)                                                             \
  do {                                                                                             \
    const auto check_a = (a);                                                                      \
    const auto check_b = (b);                                                                      \
    if (!(check_a relation check_b)) {                                                             \
      check::fail(__FILE__, __LINE__,                                                              \
                  std::string(#a " " #relation " " #b ", but ") + check::text(check_a) + " and " + \
                      check::text(check_b));                                                       \
    }                                                                                              \
  } while (false)

#define CHECK_EQ(a, b) CHECK_COMPARED(a, ==, b)
#define CHECK_NE(a, b) CHECK_COMPARED(a, !=, b)
#define CHECK_LT(a, b) CHECK_COMPARED(a, <, b)
#define CHECK_LE(a, b) CHECK_COMPARED(a, <=, b)

// Expects `expression` to throw an `Exception` whose text contains `part`.
#define CHECK_THROWS(expression, Exception, part)                                           \
  do {                                                                                      \
    try {                                                                                   \
      expression;                                                                           \
      check::fail(__FILE__, __LINE__, "did not throw: " #expression);                       \
    } catch (const Exception& error) {                                                      \
      if (!check::contains(error.what(), part)) {                                           \
        check::fail(__FILE__, __LINE__, std::string("threw other words: ") + error.what()); \
      }                                                                                     \
    }                                                                                       \
  } while (false)

// Ends a test that cannot run here, with "THING: why". Not an `ok`: its line says `skip`.
#define SKIP_FOR(what)     \
  do {                     \
    check::lacks() = what; \
    return;                \
  } while (false)

#define CHECK_MAIN() \
  int main(int count, char** arguments) { return check::main(count, arguments); }

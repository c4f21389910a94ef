#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "bindings/bind.h"
#include "engine/clock.h"
#include "engine/last_words.h"
#include "engine/signals.h"
#include "engine/watch.h"
#include "memory/policy.h"
#include "net/exit_guard.h"
#include "net/log_printer.h"
#include "net/logger.h"

namespace tcpx {
void bind_process(nb::module_& m) {
  m.def("now_ns", &now_ns, "CLOCK_MONOTONIC in nanoseconds, shared by all processes of a host.");
  m.def("bind_memory_to", &bind_memory_to, "node"_a,
        "Memory that this thread and later ones touch first lies on this NUMA node; False where "
        "the kernel refuses.");
  m.def("install_signal_handlers", [] { install_signal_handlers(); });
  m.def("restore_signal_handlers", &restore_signal_handlers);
  m.def("stop_signal", &stop_signal);
  m.def("stop_sender", &stop_sender, "The process that sent the last one.");
  m.def("say_to_mpirun", &say_to_mpirun, "line"_a, "shares"_a = true,
        nb::call_guard<nb::gil_scoped_release>(),
        "Where its own errors go; False if it may not stay there; see engine/last_words.h.");
  m.def("take_report_request", &take_report_request, "True once after a SIGUSR1.");
  m.def(
      "watch_begin",
      [](double limit_s, double first_line_s, double every_s) {
        watch::begin(limit_s, {first_line_s, every_s});
      },
      "limit_s"_a, "first_line_s"_a = watch::Pace{}.first_line_s,
      "every_s"_a = watch::Pace{}.every_s,
      "A thread watches this rank from now on, its set-up first; see engine/watch.h.");
  m.def("watch_name", &watch::set_name, "name"_a, "table"_a = "", "slot"_a = 0);
  m.def("watch_limit", &watch::set_limit, "limit_s"_a, "Of set-up.");
  m.def("watch_waits_for", &watch::waits_for, "what"_a, "later_s"_a = 0.0);
  m.def("watch_left_s", &watch::left_s, "Of set-up; infinity where none is watched.");
  m.def("watch_enter", &watch::enter, "option"_a, "limit_s"_a, "exit_code"_a,
        "Set-up is over: no call of the plugin may take longer from now on; 0: any time.");
  m.def("watch_ending", &watch::ending, "exit_code"_a,
        "What is left to do ends within WATCH_END_S.");
  m.def(
      "watch_await",
      [](double seconds) -> std::optional<std::tuple<std::string, double, bool>> {
        const auto call = watch::await(seconds);
        if (!call) return std::nullopt;
        return std::tuple{call->text, call->age_s, call->late};
      },
      "seconds"_a, nb::call_guard<nb::gil_scoped_release>(),
      "Waits for a call of the plugin that takes long: which, its age, whether it is late.");
  m.def("stopped_ns", &watch::stopped_ns, "How long this process was stopped or frozen.");
  m.def("running_ns", &watch::running_ns, "A clock that stands while this process is.");
  m.attr("WATCH_END_S") = watch::kEndS;
  m.attr("WATCH_LEAD_S") = watch::kLeadS;
  m.attr("WATCH_RECORD_BYTES") = watch::kRecordBytes;
  m.def(
      "name_process",
      [](const std::string& name) {
        exit_guard::set_name(name);
        plugin_log::set_name(name);
      },
      "name"_a, "Who this process is: for a plugin that ends it by exit(), and for its log.");
  m.def("begin_plugin_init", &plugin_log::begin_init,
        "From here on all that plugins log is kept, until `end_plugin_init`.");
  m.def("end_plugin_init", &plugin_log::initialised);
  m.def("plugin_log_of_init", &plugin_log::init_lines);
  m.def("plugin_log_first_warnings", &plugin_log::first_warnings);
  m.def(
      "plugin_warned_within",
      [](double seconds) {
        return plugin_log::quote_since(now_ns() - static_cast<int64_t>(seconds * 1e9));
      },
      "seconds"_a);
  m.def(
      "plugin_warned_in_call", [] { return plugin_log::quote_call(); },
      "What the plugin warned of in this thread's last call that was not of traffic, or \"\".");
  m.def("plugin_log_warnings", &plugin_log::warnings);
  m.def("print_plugin_log", &plugin_log::set_print, "level"_a, "subsystems"_a,
        "What of plugins' logs goes to stderr.");
  m.def("end_plugin_log", &plugin_log::end_printing,
        "Says how many lines were not printed; before a process ends by _exit.");
}

}  // namespace tcpx

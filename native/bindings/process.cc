#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings/bind.h"
#include "engine/clock.h"
#include "engine/setup_watch.h"
#include "engine/signals.h"
#include "memory/policy.h"
#include "net/exit_guard.h"
#include "net/logger.h"

namespace tcpx {
void bind_process(nb::module_& m) {
  m.def("now_ns", &now_ns, "CLOCK_MONOTONIC in nanoseconds, shared by all processes of a host.");
  m.def("bind_memory_to", &bind_memory_to, "node"_a,
        "Memory that this thread and later ones touch first lies on this NUMA node; False where "
        "the kernel refuses.");
  m.def("install_signal_handlers", &install_signal_handlers);
  m.def("restore_signal_handlers", &restore_signal_handlers);
  m.def("stop_signal", &stop_signal);
  m.def("stop_sender", &stop_sender, "The process that sent the last one.");
  m.def("take_report_request", &take_report_request, "True once after a SIGUSR1.");
  m.def(
      "setup_begin",
      [](double limit_s, double first_line_s, double every_s) {
        setup_watch::begin(limit_s, {first_line_s, every_s});
      },
      "limit_s"_a, "first_line_s"_a = setup_watch::Pace{}.first_line_s,
      "every_s"_a = setup_watch::Pace{}.every_s,
      "A thread watches this rank's set-up from now on; see engine/setup_watch.h.");
  m.def("setup_name", &setup_watch::set_name, "name"_a, "table"_a = "", "slot"_a = 0);
  m.def("setup_limit", &setup_watch::set_limit, "limit_s"_a);
  m.def("setup_waits_for", &setup_watch::waits_for, "what"_a, "later_s"_a = 0.0);
  m.def("setup_left_s", &setup_watch::left_s, "Infinity where no set-up is watched.");
  m.def("setup_end", &setup_watch::end, "Set-up is over; whether it was watched.");
  m.attr("SETUP_RECORD_BYTES") = setup_watch::kRecordBytes;
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
      "plugin_said_within",
      [](double seconds) {
        return plugin_log::quote_since(now_ns() - static_cast<int64_t>(seconds * 1e9));
      },
      "seconds"_a);
  m.def("plugin_said_in_call", &plugin_log::quote_call,
        "What the plugin warned of in this thread's last call that was not of traffic, or \"\".");
  m.def("plugin_log_warnings", &plugin_log::warnings);
  m.def("print_plugin_log", &plugin_log::set_print, "level"_a, "subsystems"_a,
        "What of plugins' logs goes to stderr.");
  m.def("end_plugin_log", &plugin_log::end_printing,
        "Says how many lines were not printed; before a process ends by _exit.");
}

}  // namespace tcpx

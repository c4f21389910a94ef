#include "bindings/memory.h"

#include <nanobind/stl/vector.h>

#include <utility>
#include <vector>

#include "bindings/bind.h"

namespace tcpx {
namespace {

std::vector<PayloadSpan> spans_of(const LongTable& table) {
  if (table.shape(1) != 4) throw nb::value_error("spans have 4 columns");
  std::vector<PayloadSpan> spans(table.shape(0));
  for (size_t i = 0; i < spans.size(); ++i) {
    spans[i] = {static_cast<uint64_t>(table(i, 0)), static_cast<uint64_t>(table(i, 1)),
                static_cast<uint32_t>(table(i, 2)), static_cast<uint64_t>(table(i, 3))};
  }
  return spans;
}

// SlotMemory's `fill` and `poison`, which have the same arguments.
using Writing = void (SlotMemory::*)(size_t, size_t, uint64_t, uint64_t, const PayloadSpan*,
                                     size_t);
template <Writing write>
void written(SlotMemory& slots, size_t first, size_t count, uint64_t iteration, uint64_t seed,
             const LongTable& spans) {
  const auto s = spans_of(spans);
  nb::gil_scoped_release release;
  (slots.*write)(first, count, iteration, seed, s.data(), s.size());
}

class Verdict : public nb::dict {
  NB_OBJECT_DEFAULT(Verdict, nb::dict, "Verdict", PyDict_Check)
};

// `bytes`: of what was found at the first wrong place, and of what was expected there.
template <typename Found>
Verdict dict_of(const Found& v, uint64_t iteration, uint64_t first_slot, nb::object element,
                size_t bytes) {
  Verdict d;
  d["wrong"] = v.wrong;
  d["guard_wrong"] = v.guard_wrong;
  d["first"] = nb::none();
  if (!v.has_first) return d;
  nb::dict place;
  place["iteration"] = iteration + (v.slot - first_slot);
  place["offset"] = v.offset;
  place["sender"] = v.sender == kNoSender ? -1 : static_cast<int64_t>(v.sender);
  place["element"] = element;
  place["expected"] = nb::bytes(&v.expected, bytes);
  place["found"] = nb::bytes(&v.found, bytes);
  d["first"] = place;
  return d;
}

// SlotMemory's `fill` and `poison` of elements.
using WritingElements = void (SlotMemory::*)(size_t, size_t, uint64_t, uint64_t, const PayloadSpan*,
                                             size_t, const ElementGroup&);
template <WritingElements write>
void written_elements(SlotMemory& slots, size_t first, size_t count, uint64_t iteration,
                      uint64_t seed, const LongTable& spans, const ElementGroup& group) {
  const auto s = spans_of(spans);
  nb::gil_scoped_release release;
  (slots.*write)(first, count, iteration, seed, s.data(), s.size(), group);
}

void bind_elements(nb::module_& m) {
  nb::class_<ElementGroup>(m, "ElementGroup",
                           "Ranks that reduce elements together: what each puts in and what must "
                           "come out is a function of it. `origins`: ranks of the run by their "
                           "index in the group; redop -1: bytes are only moved.")
      .def(nb::init<int, int, uint32_t, std::vector<uint32_t>>(), "dtype"_a, "redop"_a, "ranks"_a,
           "origins"_a = std::vector<uint32_t>())
      .def_prop_ro("element_bytes", &ElementGroup::bytes)
      .def_prop_ro(
          "active", [](const ElementGroup& g) { return g.rule.active; },
          "How many ranks put something in that changes an element.");
}

}  // namespace

void bind_memory(nb::module_& m) {
  m.def(
      "payload",
      [](size_t bytes, uint64_t seed, uint32_t sender, uint64_t iteration, uint64_t offset) {
        std::vector<uint8_t> out(bytes);
        payload_generate(out.data(), bytes, payload_key(seed, sender, iteration), offset);
        return nb::bytes(out.data(), bytes);
      },
      "bytes"_a, "seed"_a, "sender"_a, "iteration"_a, "offset"_a,
      "The bytes that `sender` sends in `iteration` from `offset` of its buffer on.");

  bind_elements(m);

  nb::class_<SlotMemory>(m, "SlotMemory")
      .def_prop_ro("bytes", &SlotMemory::bytes)
      .def_prop_ro("gpu", &SlotMemory::gpu, "The GPU that has it; -1: the host.")
      .def("cut", &SlotMemory::cut, "used"_a, "guard"_a, "stride"_a, "count"_a)
      .def("fill", &written<&SlotMemory::fill>, "first"_a, "count"_a, "iteration"_a, "seed"_a,
           "spans"_a)
      .def("poison", &written<&SlotMemory::poison>, "first"_a, "count"_a, "iteration"_a, "seed"_a,
           "spans"_a)
      .def(
          "verify",
          [](SlotMemory& b, size_t first, size_t count, uint64_t iteration, uint64_t seed,
             const LongTable& spans) {
            const auto s = spans_of(spans);
            SlotVerdict v;
            {
              nb::gil_scoped_release release;
              v = b.verify(first, count, iteration, seed, s.data(), s.size());
            }
            return dict_of(v, iteration, first, nb::none(), 1);
          },
          "first"_a, "count"_a, "iteration"_a, "seed"_a, "spans"_a)
      .def("fill_elements", &written_elements<&SlotMemory::fill>, "first"_a, "count"_a,
           "iteration"_a, "seed"_a, "spans"_a, "group"_a,
           "What ranks put in: the sender of a span is the index of one in the group.")
      .def("poison_elements", &written_elements<&SlotMemory::poison>, "first"_a, "count"_a,
           "iteration"_a, "seed"_a, "spans"_a, "group"_a,
           "The complement of what must come out, and the guard behind each slot.")
      .def(
          "verify_elements",
          [](SlotMemory& b, size_t first, size_t count, uint64_t iteration, uint64_t seed,
             const LongTable& spans, const ElementGroup& group) {
            const auto s = spans_of(spans);
            ElementVerdict v;
            {
              nb::gil_scoped_release release;
              v = b.verify(first, count, iteration, seed, s.data(), s.size(), group);
            }
            return dict_of(v, iteration, first, v.in_guard ? nb::none() : nb::cast(v.element),
                           v.in_guard ? 1 : group.bytes());
          },
          "first"_a, "count"_a, "iteration"_a, "seed"_a, "spans"_a, "group"_a,
          "Wrong elements, and of the first one where it is and the bytes found and expected.");

  nb::class_<HostSlots, SlotMemory>(m, "SlotBuffer")
      .def(nb::init<size_t>(), "bytes"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("view", [](HostSlots& b) {
        return nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>>(b.data(), {b.bytes()}, nb::find(b));
      });
}

}  // namespace tcpx

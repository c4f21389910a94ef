// What the bindings share: one file a part of the engine, each of which fills the module with it.
// This folder is the only one that knows Python. Exceptions stop here.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/tuple.h>

#include <cstdint>
#include <tuple>

namespace nb = nanobind;

namespace tcpx {

using namespace nb::literals;

using IntTable = nb::ndarray<const int32_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using LongTable = nb::ndarray<const int64_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using LongVector = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using LongResult = nb::ndarray<nb::numpy, int64_t, nb::ndim<1>>;

// What tcpx_mpi/_native.pyi says of a result: it is made from these types. A dict whose keys the
// stub names (stub.patterns) is a class of its own, by NB_OBJECT_DEFAULT.
template <typename Item>
using List = nb::typed<nb::list, Item>;

// An array of our own for Python: what the native side has is overwritten by the next batch.
LongResult copied(const int64_t* data, size_t count);

void bind_process(nb::module_& m);
void bind_plugin(nb::module_& m);
void bind_net(nb::module_& m);
void bind_memory(nb::module_& m);
void bind_cuda(nb::module_& m);
void bind_reduce(nb::module_& m);
void bind_batch(nb::module_& m);
void bind_runner(nb::module_& m);
void bind_engine(nb::module_& m);
void bind_sockets(nb::module_& m);
void bind_baselines(nb::module_& m);
void bind_session(nb::module_& m);

}  // namespace tcpx

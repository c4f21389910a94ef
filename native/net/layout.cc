#include "net/layout.h"

#include "net/abi_v12.h"
#include "net/abi_v6.h"
#include "net/abi_v7.h"
#include "net/abi_v8.h"

// The members of a structure by name, so that a version says but what it has.
#define TCPX_FIELD(Properties, member) \
  Field { #member, offsetof(Properties, member), sizeof(Properties::member) }

namespace tcpx {
namespace {

using Fields = std::vector<Field>;

Fields operator+(Fields first, const Fields& more) {
  first.insert(first.end(), more.begin(), more.end());
  return first;
}

template <typename P>
Fields identity() {
  return {TCPX_FIELD(P, name), TCPX_FIELD(P, pci_path), TCPX_FIELD(P, guid),
          TCPX_FIELD(P, ptr_support)};
}

template <typename P>
Fields capacity() {
  return {TCPX_FIELD(P, speed_mbps), TCPX_FIELD(P, port), TCPX_FIELD(P, latency_us),
          TCPX_FIELD(P, max_comms), TCPX_FIELD(P, max_recvs)};
}

template <typename P>
Fields device() {
  return {TCPX_FIELD(P, net_device_type), TCPX_FIELD(P, net_device_version)};
}

template <typename P>
Fields from_v9() {
  return identity<P>() + Fields{TCPX_FIELD(P, reg_is_global), TCPX_FIELD(P, force_flush)} +
         capacity<P>() + device<P>() +
         Fields{TCPX_FIELD(P, v_device), TCPX_FIELD(P, max_p2p_bytes),
                TCPX_FIELD(P, max_coll_bytes)};
}

}  // namespace

Fields properties_layout(int abi) {
  using V8 = NetPropertiesV8;
  using V12 = NetPropertiesV12;
  switch (abi) {
    case 6:
      return identity<NetPropertiesV6>() + capacity<NetPropertiesV6>();
    case 7:
      return identity<NetPropertiesV7>() + capacity<NetPropertiesV7>() + device<NetPropertiesV7>();
    case 8:
      return identity<V8>() + Fields{TCPX_FIELD(V8, reg_is_global)} + capacity<V8>() + device<V8>();
    case 9:
    case 10:
      return from_v9<NetPropertiesV9>();
    case 11:
      return from_v9<NetPropertiesV11>() + Fields{TCPX_FIELD(NetPropertiesV11, max_multi_request)};
    case 12:
      return from_v9<V12>() + Fields{TCPX_FIELD(V12, max_multi_request), TCPX_FIELD(V12, rail_id),
                                     TCPX_FIELD(V12, plane_id)};
    default:
      return {};
  }
}

}  // namespace tcpx

// What the properties of the versions say of an interface.
#pragma once

#include "plugins/softtcpx/api/calls.h"

namespace softtcpx {

// The fields that all versions have. Each byte is written: NCCL hands over what was on its stack.
template <class Properties>
int describe(int index, Properties* properties, int ptr_support) {
  const Interface* nic = interface_of(index);
  if (nic == nullptr || properties == nullptr) return kNetInvalidArgument;
  *properties = Properties{};
  properties->name = nic->name.c_str();
  properties->pci_path = nic->pci_path.empty() ? nullptr : nic->pci_path.c_str();
  properties->guid = static_cast<uint64_t>(index);
  properties->ptr_support = ptr_support;
  properties->speed_mbps = nic->speed_mbps;
  properties->max_comms = 65536;
  properties->max_recvs = 1;
  return kNetSuccess;
}

// From v7 on.
template <class Properties>
int describe_device(int index, Properties* properties) {
  const int code = describe(index, properties, kNetPtrHost | kNetPtrCuda);
  if (code != kNetSuccess) return code;
  properties->net_device_type = kNetDeviceUnpack;
  properties->net_device_version = kNetUnpackVersion;
  return kNetSuccess;
}

// From v9 on. A message may be as long as NCCL's own limit.
template <class Properties>
int describe_virtual(int index, Properties* properties) {
  const int code = describe_device(index, properties);
  if (code != kNetSuccess) return code;
  properties->v_device.ndevs = 1;
  properties->v_device.devs[0] = index;
  properties->max_p2p_bytes = properties->max_coll_bytes = size_t{1} << 40;
  return kNetSuccess;
}

}  // namespace softtcpx

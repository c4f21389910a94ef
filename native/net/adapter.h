// What is alike in the tables of all versions.
#pragma once

#include <atomic>
#include <cstdint>
#include <iterator>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "net/logger.h"
#include "net/net.h"
#include "net/plugin_call.h"
#include "net/printable.h"
#include "net/profiler.h"

namespace tcpx {

template <typename Table, typename Properties>
class Adapter : public Net {
 public:
  explicit Adapter(const void* table) : table_(static_cast<const Table*>(table)) {}

  std::string name() const override {
    return table_->name != nullptr ? printable(table_->name) : "(unnamed)";
  }
  bool offers_dma_buf() const override { return table_->reg_mr_dma_buf != nullptr; }

  std::vector<std::string> missing() const override {
    std::vector<std::string> names;
    const auto look = [&](bool there, const char* entry) {
      if (!there) names.push_back(entry);
    };
    look(table_->init != nullptr, "init");
    look(table_->devices != nullptr, "devices");
    look(table_->get_properties != nullptr, "getProperties");
    look(table_->listen != nullptr, "listen");
    look(table_->connect != nullptr, "connect");
    look(table_->accept != nullptr, "accept");
    look(table_->reg_mr != nullptr, "regMr");
    look(table_->dereg_mr != nullptr, "deregMr");
    look(table_->isend != nullptr, "isend");
    look(table_->irecv != nullptr, "irecv");
    look(table_->iflush != nullptr, "iflush");
    look(table_->test != nullptr, "test");
    look(table_->close_send != nullptr, "closeSend");
    look(table_->close_recv != nullptr, "closeRecv");
    look(table_->close_listen != nullptr, "closeListen");
    return names;
  }
  std::vector<std::string> extras() const override {
    std::vector<std::string> names;
    if (offers_dma_buf()) names.push_back("regMrDmaBuf");
    return names;
  }

  int finalize() override { return kNetSuccess; }
  int devices(int* count) override {
    return plugin_call::run("devices", [&] { return table_->devices(count); });
  }
  int properties(int device, NetProperties* out) override {
    Properties raw{};
    const int code =
        plugin_call::run("getProperties", [&] { return table_->get_properties(device, &raw); });
    if (code != kNetSuccess) return code;
    out->name = raw.name != nullptr ? printable(raw.name) : "";
    out->pci_path = raw.pci_path != nullptr ? printable(raw.pci_path, 4096) : "";
    out->guid = raw.guid;
    out->ptr_support = raw.ptr_support;
    out->speed_mbps = raw.speed_mbps;
    out->port = raw.port;
    out->latency_us = raw.latency_us;
    out->max_comms = raw.max_comms;
    out->max_recvs = raw.max_recvs;
    read_newer(raw, out);
    return kNetSuccess;
  }

  size_t properties_bytes() const override { return sizeof(Properties); }
  int raw_properties(int device, void* out) override {
    return plugin_call::run("getProperties", [&] {
      return table_->get_properties(device, static_cast<Properties*>(out));
    });
  }

  int reg_mr_dma_buf(void* comm, void* data, size_t bytes, int type, uint64_t offset, int fd,
                     void** mhandle) override {
    if (table_->reg_mr_dma_buf == nullptr) return kNetInvalidUsage;
    return plugin_call::run("regMrDmaBuf", [&] {
      return table_->reg_mr_dma_buf(comm, data, bytes, type, offset, fd, mhandle);
    });
  }
  int dereg_mr(void* comm, void* mhandle) override {
    return plugin_call::run("deregMr", [&] { return table_->dereg_mr(comm, mhandle); });
  }

  int iflush(void* comm, int n, void** data, int* bytes, void** mhandles, void** request) override {
    return table_->iflush(comm, n, data, bytes, mhandles, request);
  }
  int test(void* request, int* done, int* bytes) override {
    return table_->test(request, done, bytes);
  }

  int close_send(void* comm) override {
    return plugin_call::run("closeSend", [&] { return table_->close_send(comm); });
  }
  int close_recv(void* comm) override {
    return plugin_call::run("closeRecv", [&] { return table_->close_recv(comm); });
  }
  int close_listen(void* comm) override {
    return plugin_call::run("closeListen", [&] { return table_->close_listen(comm); });
  }

 protected:
  // The fields that not all versions have.
  virtual void read_newer(const Properties& raw, NetProperties* out) const = 0;

  const Table* const table_;
};

// From v7 on: connections have a device side.
template <typename Table, typename Properties>
class DeviceAdapter : public Adapter<Table, Properties> {
 public:
  using Adapter<Table, Properties>::Adapter;

  bool offers_consumed() const override { return this->table_->irecv_consumed != nullptr; }
  bool offers_device_mr() const override { return this->table_->get_device_mr != nullptr; }
  std::vector<std::string> extras() const override {
    std::vector<std::string> names = Adapter<Table, Properties>::extras();
    if (offers_device_mr()) names.push_back("getDeviceMr");
    if (offers_consumed()) names.push_back("irecvConsumed");
    return names;
  }

  int accept(void* listen_comm, void** recv_comm, NetDeviceHandle** handle_out) override {
    return plugin_call::run(
        "accept", [&] { return this->table_->accept(listen_comm, recv_comm, handle_out); });
  }
  int get_device_mr(void* comm, void* mhandle, void** device_mhandle) override {
    if (!offers_device_mr()) return kNetInvalidUsage;
    return this->table_->get_device_mr(comm, mhandle, device_mhandle);
  }
  int irecv_consumed(void* comm, int n, void* request) override {
    // Of each receive: not by offers_consumed(), which would be a virtual call more.
    if (this->table_->irecv_consumed == nullptr) return kNetSuccess;
    return this->table_->irecv_consumed(comm, n, request);
  }

 protected:
  void read_newer(const Properties& raw, NetProperties* out) const override {
    out->device_type = raw.net_device_type;
    out->device_version = raw.net_device_version;
  }
};

// From v9 on: devices are made of several, and messages have size_t sizes.
template <typename Table, typename Properties>
class VirtualAdapter : public DeviceAdapter<Table, Properties> {
  using Base = DeviceAdapter<Table, Properties>;

 public:
  using Base::Base;

  size_t max_region_bytes() const override { return std::numeric_limits<size_t>::max(); }
  std::vector<std::string> extras() const override {
    std::vector<std::string> names = Base::extras();
    if (this->table_->make_v_device != nullptr) names.push_back("makeVDevice");
    return names;
  }
  int reg_mr(void* comm, void* data, size_t bytes, int type, void** mhandle) override {
    return plugin_call::run("regMr",
                            [&] { return this->table_->reg_mr(comm, data, bytes, type, mhandle); });
  }
  int make_v_device(const std::vector<int>& parts, int* device) override {
    if (this->table_->make_v_device == nullptr) return kNetInvalidUsage;
    decltype(Properties::v_device) asked{};
    if (parts.size() > std::size(asked.devs)) return kNetInvalidArgument;
    for (const int part : parts) asked.devs[asked.ndevs++] = part;
    return plugin_call::run("makeVDevice",
                            [&] { return this->table_->make_v_device(device, &asked); });
  }

 protected:
  void read_newer(const Properties& raw, NetProperties* out) const override {
    Base::read_newer(raw, out);
    out->reg_is_global = raw.reg_is_global;
    out->force_flush = raw.force_flush;
    const int most = static_cast<int>(std::size(raw.v_device.devs));
    if (raw.v_device.ndevs > 0 && raw.v_device.ndevs <= most) {
      out->parts.assign(raw.v_device.devs, raw.v_device.devs + raw.v_device.ndevs);
    }
    out->max_p2p_bytes = raw.max_p2p_bytes;
    out->max_coll_bytes = raw.max_coll_bytes;
  }
};

// From v10 on: requests may have a profiler's handle.
template <typename Table, typename Properties>
class ProfiledAdapter : public VirtualAdapter<Table, Properties> {
 public:
  using VirtualAdapter<Table, Properties>::VirtualAdapter;

  int isend(void* comm, void* data, size_t bytes, int tag, void* mhandle, void** request) override {
    return this->table_->isend(comm, data, bytes, tag, mhandle, this->phandle_, request);
  }
  int irecv(void* comm, int n, void** data, size_t* bytes, int* tags, void** mhandles,
            void** request) override {
    if (n < 1 || n > kMaxReceives) return kNetInvalidArgument;
    void* phandles[kMaxReceives];
    for (int i = 0; i < n; ++i) phandles[i] = this->phandle_;
    return this->table_->irecv(comm, n, data, bytes, tags, mhandles, phandles, request);
  }
};

// From v11 on: a context for each communicator, from init to finalize.
template <typename Table, typename Properties>
class ContextAdapter : public ProfiledAdapter<Table, Properties> {
  using Base = ProfiledAdapter<Table, Properties>;

 public:
  using Base::Base;

  bool has_contexts() const override { return true; }
  bool offers_traffic_class() const override { return true; }
  void set_traffic_class(int traffic_class) override { config_.traffic_class = traffic_class; }
  std::vector<std::string> extras() const override {
    std::vector<std::string> names = Base::extras();
    if (this->table_->finalize != nullptr) names.push_back("finalize");
    if (this->table_->set_net_attr != nullptr) names.push_back("setNetAttr");
    return names;
  }
  int init(NetLogger logger) override {
    static std::atomic<uint64_t> communicators{0};
    return plugin_call::run("init", [&] {
      return this->table_->init(&context_, ++communicators, &config_, logger, note_profiler_event);
    });
  }
  int finalize() override {
    if (this->table_->finalize == nullptr) return kNetSuccess;
    return plugin_call::run(
        "finalize", [&] { return this->table_->finalize(std::exchange(context_, nullptr)); });
  }
  int listen(int device, void* handle, void** listen_comm) override {
    return plugin_call::run(
        "listen", [&] { return this->table_->listen(context_, device, handle, listen_comm); });
  }
  int connect(int device, void* handle, void** send_comm, NetDeviceHandle** handle_out) override {
    return plugin_call::run("connect", [&] {
      return this->table_->connect(context_, device, handle, send_comm, handle_out);
    });
  }
  int set_net_attr(const NetAttributes& attributes) override {
    if (this->table_->set_net_attr == nullptr) return kNetInvalidUsage;
    NetAttributes copy = attributes;
    return plugin_call::run("setNetAttr",
                            [&] { return this->table_->set_net_attr(context_, &copy); });
  }

 protected:
  void read_newer(const Properties& raw, NetProperties* out) const override {
    Base::read_newer(raw, out);
    out->max_multi_request = raw.max_multi_request;
  }

 private:
  void* context_ = nullptr;
  NetCommConfig config_{-1};  // for as long as the context
};

}  // namespace tcpx

// Answers as NVML does for three GPUs, the second of which this process may not have.
#include <stdio.h>
#include <string.h>

static int open_count;

int nvmlInit_v2(void) {
  ++open_count;
  return FAIL_INIT;
}

int nvmlShutdown(void) { return --open_count; }

int fake_open_count(void) { return open_count; }

int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 3;
  return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  if (index == 1) return 4;  // NVML_ERROR_NO_PERMISSION
  *device = (void*)(unsigned long)(0x1000 + index);
  return 0;
}

static unsigned index_of(void* device) { return (unsigned)((unsigned long)device - 0x1000); }

struct PciInfo {  // nvmlPciInfo_t
  char bus_id_legacy[16];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};

int nvmlDeviceGetPciInfo_v3(void* device, struct PciInfo* info) {
  memset(info, 0, sizeof *info);
  snprintf(info->bus_id_legacy, sizeof info->bus_id_legacy, "legacy");
  snprintf(info->bus_id, sizeof info->bus_id, "00000000:%02X:00.0", 0x8A + index_of(device));
  return 0;
}

int nvmlDeviceGetName(void* device, char* name, unsigned length) {
  snprintf(name, length, "NVIDIA H%u00", 1 + index_of(device));
  return 0;
}

int nvmlDeviceGetUUID(void* device, char* uuid, unsigned length) {
  snprintf(uuid, length, "GPU-%u", index_of(device));
  return 0;
}

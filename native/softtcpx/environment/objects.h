// What hides behind the void pointers of the table: each object begins with its kind, so that a
// pointer of the wrong kind is refused instead of followed.
#pragma once

#include <cstdint>

namespace softtcpx {

struct Device;

enum class ObjectKind : uint32_t {
  kClosed = 0,
  kListener = 0x6c74736c,
  kSendComm = 0x6d6d6373,
  kRecvComm = 0x6d6d6372,
  kRegion = 0x6e676572,
  kContext = 0x78746e63,
  kTicket = 0x746b6374,
};

struct Object {
  explicit Object(ObjectKind kind) : kind_(kind) {}
  ~Object() { kind_ = ObjectKind::kClosed; }
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;

  ObjectKind kind() const { return kind_; }

 private:
  volatile ObjectKind kind_;  // volatile: the last store is for a caller who comes too late
};

template <class T>
T* as(void* pointer, ObjectKind kind) {
  auto* object = static_cast<Object*>(pointer);
  return object != nullptr && object->kind() == kind ? static_cast<T*>(object) : nullptr;
}

}  // namespace softtcpx

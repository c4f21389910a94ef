// A plugin of versions that we have no adapter for; its tables are never looked into.
extern "C" {
__attribute__((visibility("default"))) void* ncclNetPlugin_v5[32] = {};
__attribute__((visibility("default"))) void* ncclNetPlugin_v13[32] = {};
}

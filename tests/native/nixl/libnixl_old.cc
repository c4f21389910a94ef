// NIXL's library as it was before 1.0.
extern "C" __attribute__((visibility("default"))) void nixl_of_another_layout() {}

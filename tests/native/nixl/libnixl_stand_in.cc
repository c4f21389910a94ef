// What the guard of libplugin_TCPX.so looks for in NIXL's own library.
extern "C" __attribute__((visibility("default"))) void _ZNK9nixlAgent14releaseMemViewEPv() {}

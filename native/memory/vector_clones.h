// One clone a vector width, chosen by the loader for the CPU at hand.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define TCPX_VECTOR_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define TCPX_VECTOR_CLONES
#endif

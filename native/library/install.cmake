# Headers, library and what finds them, below tcpx_mpi/ of a wheel. A wheel has no symbolic links: the
# name for linkers is a script of one line that names the library.
include(CMakePackageConfigHelpers)
set(made ${CMAKE_CURRENT_BINARY_DIR}/p2p)
configure_file(library/tcpx_p2p.pc.in ${made}/tcpx_p2p.pc @ONLY)
configure_file(library/tcpx_p2p-config.cmake.in ${made}/tcpx_p2p-config.cmake @ONLY)
write_basic_package_version_file(${made}/tcpx_p2p-config-version.cmake
  VERSION ${TCPX_P2P_VERSION} COMPATIBILITY SameMinorVersion)
file(WRITE ${made}/libtcpx_p2p.so "INPUT(libtcpx_p2p.so.${TCPX_P2P_ABI})\n")

install(FILES library/include/tcpx_p2p.h DESTINATION tcpx_mpi/include COMPONENT p2p)
install(TARGETS tcpx_p2p LIBRARY DESTINATION tcpx_mpi/lib COMPONENT p2p NAMELINK_SKIP)
if(NOT TCPX_MPI_LIBCXX)
  install(DIRECTORY library/include/tcpx_p2p DESTINATION tcpx_mpi/include COMPONENT p2p)
  install(TARGETS tcpx_p2p_static ARCHIVE DESTINATION tcpx_mpi/lib COMPONENT p2p)
endif()
install(FILES ${made}/libtcpx_p2p.so DESTINATION tcpx_mpi/lib COMPONENT p2p)
install(FILES ${made}/tcpx_p2p.pc DESTINATION tcpx_mpi/lib/pkgconfig COMPONENT p2p)
install(FILES ${made}/tcpx_p2p-config.cmake ${made}/tcpx_p2p-config-version.cmake
        DESTINATION tcpx_mpi/lib/cmake/tcpx_p2p COMPONENT p2p)

# SPDX-License-Identifier: MIT
# The Debian package, by CPack: `./dev package`, or
#
#   cmake -B build/deb -DCMAKE_INSTALL_PREFIX=/usr -DREDLOCKD_TESTS=OFF && cmake --build build/deb && (cd build/deb && cpack)
#
# What `cmake --install` leaves is rearranged by arrange.cmake as Debian wants it; the maintainer scripts lie beside it. The same commit gives the same bytes:
# all times are that of the commit (SOURCE_DATE_EPOCH, which is also taken from the environment).
#
# Who publishes packages names himself: -DCPACK_PACKAGE_CONTACT='Name <address>' and -DCPACK_DEBIAN_PACKAGE_HOMEPAGE=URL.
set(deb ${CMAKE_CURRENT_SOURCE_DIR}/packaging/deb)
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME redlockd)
if(NOT CPACK_PACKAGE_CONTACT)
	set(CPACK_PACKAGE_CONTACT "redlockd contributors <redlockd@redlockd.invalid>")
endif()
set(CPACK_PACKAGING_INSTALL_PREFIX ${CMAKE_INSTALL_PREFIX})
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_PRE_BUILD_SCRIPTS ${deb}/arrange.cmake)
set(CPACK_PROJECT_CONFIG_FILE ${CMAKE_CURRENT_BINARY_DIR}/package.cmake)
configure_file(packaging/deb/package.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/package.cmake @ONLY)

set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 0upstream1) # before the -1 of a distribution
set(CPACK_DEBIAN_PACKAGE_SECTION net)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_DEPENDS "systemd | systemd-standalone-sysusers | systemd-sysusers")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "redis-server | valkey-server, prometheus")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION "lock service over HTTP, by Redlock over Redis masters
redlockd gives out leases on named resources: a caller takes one over HTTP,
extends it, gives it back, or waits in line for it. Each is decided by a
majority of independent Redis (or Valkey) masters, by the Redlock algorithm.
.
A lease comes with a fencing number that grows with each holder, and a master
that lost its memory does not vote until all leases that it may have forgotten
are over.
.
The package has the daemon, redlockd, and redlockctl, which takes locks from
the shell and runs commands under them.")
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${deb}/conffiles ${deb}/postinst ${deb}/prerm ${deb}/postrm)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
include(CPack)

# SPDX-License-Identifier: MIT
# What `cmake --install` puts where: programs, manual pages, completions, the service and its user, the first configuration, documents, and what Prometheus and
# Grafana take. Folders are those of GNUInstallDirs, and the unit names them: so the prefix is to be given when CMake configures (-DCMAKE_INSTALL_PREFIX=/usr),
# and DESTDIR says where a package is put together. tests/packages compares what it leaves with a list.
#
# Included by CMakeLists.txt when all targets are known.
include(GNUInstallDirs)

install(TARGETS redlockd redlockctl RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(FILES man/redlockd.8 DESTINATION ${CMAKE_INSTALL_MANDIR}/man8)
install(FILES man/redlockctl.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
foreach(completion cli/completion/redlockctl packaging/completion/redlockd)
	get_filename_component(folder ${completion} DIRECTORY)
	get_filename_component(program ${completion} NAME)
	install(FILES ${completion}.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME ${program})
	install(FILES ${folder}/_${program} DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
endforeach()

# The service. lib/ and not what CMAKE_INSTALL_LIBDIR is: systemd looks there on every architecture.
configure_file(systemd/redlockd.service.in ${CMAKE_CURRENT_BINARY_DIR}/redlockd.service @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/redlockd.service DESTINATION lib/systemd/system)
install(FILES systemd/redlockd.conf DESTINATION lib/sysusers.d)

# The configuration: only where there is none. `masters` is made empty, so that whoever writes addresses with passwords into it finds the right mode there; the
# service is not started before (ConditionFileNotEmpty= in the unit).
install(CODE "
	set(folder \"${CMAKE_INSTALL_FULL_SYSCONFDIR}/redlockd\")
	set(there \"\$ENV{DESTDIR}\${folder}\")
	if(NOT EXISTS \"\${there}/redlockd.json\")
		file(INSTALL DESTINATION \"\${folder}\" TYPE FILE FILES \"${CMAKE_CURRENT_SOURCE_DIR}/packaging/redlockd.json\")
	endif()
	if(NOT EXISTS \"\${there}/masters\")
		message(STATUS \"Installing: \${there}/masters\")
		file(WRITE \"\${there}/masters\" \"\")
		file(CHMOD \"\${there}/masters\" FILE_PERMISSIONS OWNER_READ OWNER_WRITE)
	endif()
")

install(FILES README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md LICENSE openapi.yaml DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} PATTERN __pycache__ EXCLUDE)

install(FILES docker/prometheus/redlockd.rules.yml DESTINATION ${CMAKE_INSTALL_DATADIR}/redlockd/prometheus)
install(FILES docker/grafana/redlockd.json DESTINATION ${CMAKE_INSTALL_DATADIR}/redlockd/grafana)

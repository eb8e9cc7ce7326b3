# SPDX-License-Identifier: MIT
# Run by cpack between installation and packing, in what was installed: from what `cmake --install` makes of the folders to what Debian policy makes of them.
# Takes SOURCE_DIR and SOURCE_DATE_EPOCH from package.cmake.
set(root ${CPACK_TEMPORARY_INSTALL_DIRECTORY})
set(doc ${root}/usr/share/doc/redlockd)

function(run)
	execute_process(COMMAND ${ARGN} RESULT_VARIABLE status)
	if(NOT status EQUAL 0)
		message(FATAL_ERROR "failed: ${ARGN}")
	endif()
endfunction()

# The secret is not the package's: postinst makes it.
file(REMOVE ${root}/etc/redlockd/masters)

# Licence and history have names and places of their own.
file(REMOVE ${doc}/LICENSE)
file(COPY_FILE ${SOURCE_DIR}/packaging/deb/copyright ${doc}/copyright)
file(COPY_FILE ${SOURCE_DIR}/packaging/deb/README.Debian ${doc}/README.Debian)
file(RENAME ${doc}/CHANGELOG.md ${doc}/changelog)
foreach(page README CONTRIBUTING) # they link to both
	file(READ ${doc}/${page}.md text)
	string(REPLACE "](LICENSE)" "](copyright)" text "${text}")
	string(REPLACE "](CHANGELOG.md)" "](changelog.gz)" text "${text}")
	file(WRITE ${doc}/${page}.md "${text}")
endforeach()
string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC) # of SOURCE_DATE_EPOCH
set(VERSION ${CPACK_PACKAGE_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE})
set(CONTACT ${CPACK_PACKAGE_CONTACT})
configure_file(${SOURCE_DIR}/packaging/deb/changelog.in ${doc}/changelog.Debian @ONLY)
file(GLOB pages ${root}/usr/share/man/man?/*)
run(gzip -9n ${doc}/changelog ${doc}/changelog.Debian ${pages})

# Where Debian's zsh looks.
file(RENAME ${root}/usr/share/zsh/site-functions ${root}/usr/share/zsh/vendor-completions)

# Whatever umask and clock this machine has.
run(find ${root} -type d -exec chmod 755 {} +)
run(find ${root} -type f -exec chmod u=rwX,go=rX {} +)
run(find ${root} -exec touch --no-dereference --date=@${SOURCE_DATE_EPOCH} {} +)

# SPDX-License-Identifier: MIT
# Which commit the sources are, and when it was made.
#
# Where it is known from, in this order: what was given (-DREDLOCKD_COMMIT=…, for packagers); git, where the sources are a checkout; commit.txt, into which
# `git archive` writes it (.gitattributes), for tarballs. Only a .git of our own counts: unpacked within another repository, we are not that one's commit.
#
# As a script (cmake -DGIVEN=… -DOUTPUT=FILE -P commit.cmake), at each build, it writes OUTPUT, a C file with build_commit[], where that changes something.
set(COMMIT_SOURCE ${CMAKE_CURRENT_LIST_DIR}/..)

# Sets ret_commit to twelve hexadecimal digits, with -dirty behind them where files of a checkout were changed, or to `unknown`; ret_time to the time of the
# commit in seconds since 1970, empty where it is not known.
function(commit_find given ret_commit ret_time)
	set(commit "")
	set(time "")
	set(git git --no-optional-locks -C ${COMMIT_SOURCE})
	if(EXISTS ${COMMIT_SOURCE}/.git)
		execute_process(COMMAND ${git} log -1 "--format=%H %ct" OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
		execute_process(COMMAND ${git} status --porcelain --untracked-files=no OUTPUT_VARIABLE changed ERROR_QUIET)
	else()
		file(READ ${COMMIT_SOURCE}/cmake/commit.txt found)
	endif()
	if(found MATCHES "^([0-9a-f]+) ([0-9]+)")
		string(SUBSTRING ${CMAKE_MATCH_1} 0 12 commit)
		set(time ${CMAKE_MATCH_2})
	else()
		set(commit unknown)
	endif()
	if(changed)
		string(APPEND commit -dirty)
	endif()
	if(given)
		set(commit ${given})
	endif()
	set(${ret_commit} ${commit} PARENT_SCOPE)
	set(${ret_time} "${time}" PARENT_SCOPE)
endfunction()

if(CMAKE_SCRIPT_MODE_FILE STREQUAL CMAKE_CURRENT_LIST_FILE)
	commit_find("${GIVEN}" commit time)
	set(text "/* Made by cmake/commit.cmake at each build. */\nextern const char build_commit[];\nconst char build_commit[] = \"${commit}\";\n")
	set(there "")
	if(EXISTS ${OUTPUT})
		file(READ ${OUTPUT} there)
	endif()
	if(NOT there STREQUAL text)
		file(WRITE ${OUTPUT} "${text}")
	endif()
endif()

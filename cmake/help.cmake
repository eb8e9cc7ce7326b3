# SPDX-License-Identifier: MIT
# Writes a C header with the sentences of --help, which stand in a manual page: of each option the first paragraph of its item. Called by
# add_custom_command with -DINPUT=…/page.8 -DOUTPUT=…/help.h
file(READ "${INPUT}" page)
string(REPLACE ";" "<semicolon>" page "${page}") # it would separate the items of a list
string(REGEX MATCHALL "\\.It (Fl [a-zA-Z] , )?Fl \\\\?-[^\n]*\n([^.\n][^\n]*\n)+" items "${page}")
set(body "")
foreach(item IN LISTS items)
	string(REGEX MATCH "Fl \\\\?-([a-z-]+)[^\n]*\n(.*)\n$" matched "${item}")
	string(REPLACE "-" "_" name "${CMAKE_MATCH_1}")
	string(REPLACE "\n" " " sentences "${CMAKE_MATCH_2}")
	string(REPLACE "\\-" "-" sentences "${sentences}")
	string(REPLACE "<semicolon>" ";" sentences "${sentences}")
	if(sentences MATCHES "[\"\\\\]")
		message(FATAL_ERROR "${INPUT}: --${CMAKE_MATCH_1}: neither quotes nor backslashes but those of \\- may be in: ${sentences}")
	endif()
	string(APPEND body "#define HELP_${name} \"${sentences}\"\n")
endforeach()
file(WRITE "${OUTPUT}" "/* Made by cmake/help.cmake. */\n${body}")

# SPDX-License-Identifier: MIT
# Mutations: bugs put in on purpose (tests/sim/README.md). mutations/NAME.patch is applied to copies of the files that it names in every build, and fails it
# where it no longer fits. PROGRAM_NAME, for each program in its lines "Found by", is built by the target `mutations` alone: the patched objects and PROGRAM's
# own stand in front of the unchanged libraries, whose members of the same names are then not taken. Where a patch changes a script, all scripts are embedded
# anew.

# The scripts of a folder with patched ones, beside it.
function(embed_patched folder patched)
	file(GLOB scripts ${CMAKE_SOURCE_DIR}/server/scripts/*.lua)
	file(GLOB parts ${CMAKE_SOURCE_DIR}/server/scripts/lib/*.lua)
	set(inputs "")
	foreach(script ${scripts})
		get_filename_component(name ${script} NAME_WE)
		string(APPEND inputs "|${name}=${folder}/server/scripts/${name}.lua")
	endforeach()
	string(SUBSTRING "${inputs}" 1 -1 inputs)
	add_custom_command(OUTPUT ${folder}.scripts.c
		COMMAND ${CMAKE_COMMAND} -DMODE=scripts -DOUTPUT=${folder}.scripts.c "-DINPUTS=${inputs}" -P ${CMAKE_SOURCE_DIR}/cmake/embed.cmake
		DEPENDS ${patched} ${scripts} ${parts} ${CMAKE_SOURCE_DIR}/cmake/embed.cmake VERBATIM)
endfunction()

function(mutate patch)
	get_filename_component(name ${patch} NAME_WE)
	set(folder ${CMAKE_CURRENT_BINARY_DIR}/mutations/${name})
	file(STRINGS ${patch} files REGEX "^\\+\\+\\+ b/")
	list(TRANSFORM files REPLACE "^\\+\\+\\+ b/" "")
	list(TRANSFORM files PREPEND ${CMAKE_SOURCE_DIR}/ OUTPUT_VARIABLE originals)
	list(TRANSFORM files PREPEND ${folder}/ OUTPUT_VARIABLE patched)
	set(copy COMMAND ${CMAKE_COMMAND} -E rm -rf ${folder} ${folder}.new)
	set(folders "")
	set(compiled ${patched})
	list(FILTER compiled EXCLUDE REGEX "\\.lua$")
	if(NOT "${compiled}" STREQUAL "${patched}")
		embed_patched(${folder} "${patched}")
		list(APPEND compiled ${folder}.scripts.c)
		list(APPEND copy COMMAND ${CMAKE_COMMAND} -E copy_directory ${CMAKE_SOURCE_DIR}/server/scripts ${folder}.new/server/scripts)
	endif()
	foreach(file ${files})
		get_filename_component(below ${file} DIRECTORY)
		list(APPEND copy COMMAND ${CMAKE_COMMAND} -E make_directory ${folder}.new/${below}
			COMMAND ${CMAKE_COMMAND} -E copy ${CMAKE_SOURCE_DIR}/${file} ${folder}.new/${file})
		list(APPEND folders ${CMAKE_SOURCE_DIR}/${below})
	endforeach()
	add_custom_command(OUTPUT ${patched} DEPENDS ${patch} ${originals} VERBATIM ${copy}
		COMMAND ${CMAKE_COMMAND} -E chdir ${folder}.new ${CMAKE_COMMAND} -E env GIT_CEILING_DIRECTORIES=${CMAKE_CURRENT_BINARY_DIR} git apply ${patch}
		COMMAND ${CMAKE_COMMAND} -E rename ${folder}.new ${folder})
	set(all_patched ${all_patched} ${patched} PARENT_SCOPE)
	file(STRINGS ${patch} programs REGEX "^Found by: ")
	list(TRANSFORM programs REPLACE "^Found by: ([a-z_0-9]+).*" "\\1")
	list(REMOVE_DUPLICATES programs)
	foreach(program ${programs})
		if(TARGET ${program}_main)
			add_executable(${program}_${name} EXCLUDE_FROM_ALL ${compiled} $<TARGET_OBJECTS:${program}_main>)
			add_dependencies(${program}_${name} patched)
			get_target_property(libraries ${program} LINK_LIBRARIES)
			target_include_directories(${program}_${name} PRIVATE ${folders})
			target_compile_options(${program}_${name} PRIVATE -w)
			target_link_libraries(${program}_${name} PRIVATE ${libraries})
			add_dependencies(mutations ${program}_${name})
		endif()
	endforeach()
endfunction()

add_custom_target(mutations)
file(GLOB patches CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/sim/mutations/*.patch)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${patches}) # their heads name the programs
set(all_patched "")
foreach(patch ${patches})
	mutate(${patch})
endforeach()
add_custom_target(patched ALL DEPENDS ${all_patched})

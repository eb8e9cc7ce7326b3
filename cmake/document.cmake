# SPDX-License-Identifier: MIT
# Markdown -> HTML, for a document that the program serves (docs/reference/errors.md): headings, paragraphs, lists, fenced blocks, code, emphasis, links.
# Nothing else may be in it. Without lists of CMake, which would take semicolons and brackets of the text for their own.

# Sets ret_html to the page: api/page/document.html around the text of `path`. A section whose heading is code (## `locked`) has that as its id.
function(document_html path ret_html)
	file(READ "${path}" text)
	string(REGEX MATCH "^# ([^\n]+)" matched "${text}")
	set(title "${CMAKE_MATCH_1}")
	string(REPLACE "&" "&amp;" text "\n${text}\n")
	string(REPLACE "<" "&lt;" text "${text}")
	string(REPLACE ">" "&gt;" text "${text}")
	# Blocks: each on lines of its own that begin with a tag; what is left between blank lines is a paragraph.
	string(REGEX REPLACE "\n```[a-z]*\n([^`]*)\n```\n" "\n<pre>\\1</pre>\n" text "${text}")
	string(REGEX REPLACE "\n# ([^\n]+)" "\n<h1>\\1</h1>" text "${text}")
	string(REGEX REPLACE "\n## `([a-z-]+)`" "\n<h2 id=\"\\1\">`\\1`</h2>" text "${text}")
	string(REGEX REPLACE "\n## ([^\n]+)" "\n<h2>\\1</h2>" text "${text}")
	string(REGEX REPLACE "\n- ([^\n]+(\n  [^\n]+)*)" "\n<li>\\1</li>" text "${text}")
	string(REGEX REPLACE "\n\n(<li>[^\n]*(\n(<li>|  )[^\n]*)*)" "\n\n<ul>\n\\1\n</ul>" text "${text}")
	string(REGEX REPLACE "\n\n([^<\n][^\n]*(\n[^<\n][^\n]*)*)" "\n\n<p>\\1</p>" text "${text}")
	string(REGEX REPLACE "`([^`]+)`" "<code>\\1</code>" text "${text}")
	string(REGEX REPLACE "[*]([^*\n]+)[*]" "<em>\\1</em>" text "${text}")
	# Other documents are not served: their name stands for them.
	string(REGEX REPLACE "\\[([^]\n]+)\\]\\(((https://|#)[^)]+)\\)" "<a href=\"\\2\">\\1</a>" text "${text}")
	string(REGEX REPLACE "\\[([^]\n]+)\\]\\([./]*([^)#]+)(#[^)]*)?\\)" "\\1 (<code>docs/\\2</code>)" text "${text}")
	file(READ "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/../api/page/document.html" page)
	string(REPLACE "@TITLE@" "${title}" page "${page}")
	string(REPLACE "@TEXT@\n" "${text}" page "${page}")
	set(${ret_html} "${page}" PARENT_SCOPE)
endfunction()

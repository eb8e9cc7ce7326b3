/* Which descriptors the command inherits: those that redlockctl itself inherited, and no other. */
#ifndef DESCRIPTORS_H
#define DESCRIPTORS_H

/* Call at the start: notes what is open. */
void descriptors_note(void);

/* Call before the command is started: what was opened since is closed when it starts. libcurl does not see to that
 * everywhere. */
void descriptors_seal(void);

/* Puts /dev/null in the place of stdin and stdout: who reads what the command wrote must see the end when the command
 * closes it, and not when redlockctl ends. */
void descriptors_release_stdio(void);

#endif

/* The descriptors that the command inherits: those that redlockctl inherited, and no other. */
#ifndef DESCRIPTORS_H
#define DESCRIPTORS_H

/* Call at the start: records the open descriptors. */
void descriptors_note(void);

/* Call before the command is started: marks later descriptors close-on-exec, which libcurl does not always do. */
void descriptors_seal(void);

/* Replaces stdin and stdout by /dev/null: a reader of the command's output must see its end when the command closes it,
 * and not when redlockctl ends. */
void descriptors_release_stdio(void);

#endif

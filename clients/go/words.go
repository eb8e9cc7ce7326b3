// SPDX-License-Identifier: MIT

package redlockd

// Texts for people: the names of locks, and what a server says in the words and units of this library.

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

var (
	timeFields   = regexp.MustCompile(`\b(ttl|wait)_ms\b`)
	integers     = regexp.MustCompile(`[0-9]+`)
	namesOfTimes = map[string]string{"ttl_ms": "TTL", "wait_ms": "Wait"}
)

// printable quotes what has other characters: an owner or a name may have any.
func printable(text string) string {
	if quoted := strconv.Quote(text); len(quoted) != len(text)+2 {
		return quoted
	}
	return text
}

func namesOf(resources []string) string {
	names := []string{}
	for _, resource := range resources {
		names = append(names, printable(resource))
	}
	return strings.Join(names, ", ")
}

// asDuration writes a number of milliseconds as Go does.
func asDuration(number string) string {
	count, err := strconv.ParseInt(number, 10, 64)
	if err != nil || count > longest.Milliseconds() {
		return number + "ms"
	}
	return (time.Duration(count) * time.Millisecond).String()
}

// detailOf is the detail of a problem with the names of the options, and with durations.
func detailOf(body map[string]json.RawMessage) string {
	detail, _ := textOf(body["detail"])
	var wrong []struct{ Field, Reason string }
	if json.Unmarshal(body["errors"], &wrong) == nil && len(wrong) > 0 {
		parts := []string{}
		for _, one := range wrong {
			if timeFields.MatchString(one.Field) { // its numbers are milliseconds
				one.Reason = integers.ReplaceAllStringFunc(one.Reason, asDuration)
			}
			parts = append(parts, one.Field+": "+one.Reason)
		}
		detail = strings.Join(parts, "; ")
	}
	return timeFields.ReplaceAllStringFunc(detail, func(found string) string { return namesOfTimes[found] })
}

// heldBy names the lock and its holder, for [ErrLocked].
func heldBy(body map[string]json.RawMessage, names string) string {
	if resource, isText := textOf(body["resource"]); isText { // of several
		names = printable(resource)
	}
	var holder struct {
		Owner string
		Fence int64
	}
	_ = json.Unmarshal(body["holder"], &holder) // which leaves what does not fit
	who := "somebody else"
	if holder.Owner != "" {
		who = printable(holder.Owner)
	}
	if holder.Fence > 0 {
		who += fmt.Sprintf(" (fence %d)", holder.Fence)
	}
	var left int64
	if json.Unmarshal(body["retry_after_ms"], &left) == nil && left > 0 {
		who += fmt.Sprintf(", lease ends in %v unless it is extended", milliseconds(left))
	}
	return names + ": held by " + who
}

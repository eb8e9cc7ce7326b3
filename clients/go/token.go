// SPDX-License-Identifier: MIT

package redlockd

import (
	"errors"
	"os"
	"strings"
	"sync/atomic"
)

// tokenFile is a file in which others replace a token. If it cannot be read, the last token counts. It is safe for
// concurrent use.
type tokenFile struct {
	path string
	last atomic.Pointer[string]
}

func (f *tokenFile) read() error {
	text, err := os.ReadFile(f.path)
	if err != nil {
		return err
	}
	token := strings.TrimSpace(string(text))
	if token == "" || len(token) > headMax || !keys.MatchString(token) {
		return errors.New("no token in " + f.path)
	}
	f.last.Store(&token)
	return nil
}

// token is that of now. There was one before.
func (f *tokenFile) token() string {
	_ = f.read()
	return *f.last.Load()
}

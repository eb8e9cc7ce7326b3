// SPDX-License-Identifier: MIT

// Reads compose files as `docker compose` does, with the same parser (compose-go): the published JSON schema of the Compose Specification, interpolation,
// merges, what services refer to. Prints the whole project as JSON, or says what is wrong and ends with 1.
//
//	compose FILE…
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/compose-spec/compose-go/v2/cli"
)

func run() error {
	options, err := cli.NewProjectOptions(os.Args[1:], cli.WithConsistency(true), cli.WithInterpolation(true), cli.WithNormalization(true))
	if err != nil {
		return err
	}
	project, err := options.LoadProject(context.Background())
	if err != nil {
		return err
	}
	out, err := project.MarshalJSON()
	if err != nil {
		return err
	}
	fmt.Println(string(out))
	return nil
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Command requirements prints which requirements the last full test run has
// proved and which are open, and writes the same as markdown. It reads the
// catalogue that is built into it and the records that package trace left.
// It is run by `make requirements`; no logic lives here.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"

	"github.com/kemudi/kemudi/internal/trace"
)

func main() {
	dir := flag.String("dir", ".trace", "directory with the records of a test run")
	out := flag.String("out", "", "markdown file to write (default: none)")
	flag.Parse()
	if err := run(*dir, *out); err != nil {
		fmt.Fprintln(os.Stderr, "requirements:", err)
		os.Exit(1)
	}
}

func run(dir, out string) error {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("no records in %s: run `make test` first", dir)
	}
	catalogue, err := trace.Embedded()
	if err != nil {
		return fmt.Errorf("read catalogue: %w", err)
	}
	proofs, err := trace.ReadProofs(dir)
	if err != nil {
		return err
	}
	coverage := trace.Cover(catalogue, proofs)
	if out != "" {
		var markdown bytes.Buffer
		if err := coverage.WriteMarkdown(&markdown); err != nil {
			return err
		}
		if err := os.WriteFile(out, markdown.Bytes(), 0o644); err != nil {
			return fmt.Errorf("write report: %w", err)
		}
	}
	return coverage.WriteText(os.Stdout)
}

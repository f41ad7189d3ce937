// Command requirements prints which requirements the last full test run has
// proved, where, and which are open, and writes the same as markdown, or compares it with what
// is kept. It reads the catalogue that is built into it and the records that
// package trace left. It is run by `make requirements` and `make test`; no logic lives here.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/kemudi/kemudi/internal/trace"
)

func main() {
	dir := flag.String("dir", ".trace", "directory with the records of a test run")
	out := flag.String("out", "", "markdown file to write (default: none)")
	check := flag.String("check", "", "markdown file to compare with the records, instead of a report")
	flag.Parse()
	coverage, err := read(*dir)
	switch {
	case err != nil:
	case *check != "":
		err = compare(coverage, *check)
	default:
		err = report(coverage, *out)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "requirements:", err)
		os.Exit(1)
	}
}

func read(dir string) (cov trace.Coverage, err error) {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return cov, fmt.Errorf("no records in %s: run `make test` first", dir)
	}
	catalogue, err := trace.Embedded()
	if err != nil {
		return cov, fmt.Errorf("read catalogue: %w", err)
	}
	run, err := trace.ReadRun(dir)
	if err != nil {
		return cov, err
	}
	return trace.Cover(catalogue, run), nil
}

func report(coverage trace.Coverage, out string) error {
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

func compare(coverage trace.Coverage, name string) error {
	kept, err := os.ReadFile(name)
	if err != nil {
		return fmt.Errorf("read report: %w", err)
	}
	d := coverage.Compare(kept)
	if len(d.Excused) > 0 {
		fmt.Printf("tests were skipped on this machine, so it says nothing about %d citations of %s:\n  %s\n", len(d.Excused), name, strings.Join(d.Excused, "\n  "))
	}
	if len(d.Behind) > 0 {
		fmt.Printf("%s is behind this run: `make requirements` where no test is skipped writes it anew:\n  %s\n", name, strings.Join(d.Behind, "\n  "))
	}
	if len(d.Lost) > 0 {
		return fmt.Errorf("%s has proofs that this run did not make:\n  %s\nIf that is meant, run `make requirements` where no test is skipped, read the difference and commit the file", name, strings.Join(d.Lost, "\n  "))
	}
	return nil
}

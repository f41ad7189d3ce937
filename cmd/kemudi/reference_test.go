package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kemudi/kemudi/internal/texttest"
)

// TestFlagReferenceIsThatOfTheFlags writes, with -update, docs/reference/flags.md: what the
// flags say of themselves, and nothing else, so that help and default of a flag are written once.
func TestFlagReferenceIsThatOfTheFlags(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString(`# Flags

Generated from the flags themselves: ` + "`go test ./cmd/kemudi -run TestFlagReferenceIsThatOfTheFlags -update`" + `. What a flag says here is what ` + "`--help`" + `
says. Each is also an environment variable (` + "`--data-dir`: `KEMUDI_DATA_DIR`" + `) and a key of the configuration file (` + "`data-dir`" + `), but for those of the parts alone: ` + "`kube-apiserver` and so on" + `.
`)
	everyCommand(newRoot(), func(c *cobra.Command) {
		if c.DisableFlagParsing || strings.HasPrefix(c.CommandPath(), "kemudi completion ") { // kubectl's and the library's
			return
		}
		rows := flagRows(t, c)
		if len(rows) > 0 {
			fmt.Fprintf(&b, "\n## %s\n\n| flag | value | default | what it is |\n|---|---|---|---|\n%s", c.CommandPath(), strings.Join(rows, ""))
		}
	})
	texttest.File(t, "../../docs/reference/flags.md", b.String())
}

// flagRows has a line for each flag of a command itself, in the order of the alphabet.
func flagRows(t *testing.T, c *cobra.Command) (rows []string) {
	t.Helper()
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		value, help := pflag.UnquoteUsage(f)
		def := f.DefValue
		if slices.Contains([]string{"[]", "0", "0s", "false"}, def) {
			def = "" // none, or what the help says
		}
		if def != "" {
			if strings.Contains(help, "default ") {
				t.Errorf("%s --%s: the help says the default, %s, once more: %s", c.CommandPath(), f.Name, def, help)
			}
			def = "`" + def + "`"
		}
		rows = append(rows, fmt.Sprintf("| `--%s` | %s | %s | %s |\n", f.Name, value, def, strings.ReplaceAll(strings.ReplaceAll(help, "|", "\\|"), "<", "&lt;")))
	})
	return rows
}

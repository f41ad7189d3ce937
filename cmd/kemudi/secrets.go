package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/kemudi/kemudi/internal/up"
)

func newSecrets() *cobra.Command {
	c := &cobra.Command{
		Use:     "secrets",
		Short:   "Show how objects are encrypted in the store, and rewrite them after a change of keys",
		Example: "  kemudi secrets status\n  kemudi secrets rotate",
	}
	c.AddCommand(newSecretsStatus(), newSecretsRotate())
	return group(c)
}

func newSecretsStatus() *cobra.Command {
	var a up.Access
	var output outputFlag
	c := &cobra.Command{
		Use:   "status",
		Short: "Show how the objects of encrypted resources lie in the store",
		Long: `Shows, of each resource that the server's --encryption-provider-config names, what new objects
are encrypted with, how many objects lie in the store otherwise (stale), how many cannot be
read, and what they are encrypted with.`,
		Example: "  kemudi secrets status\n  kemudi secrets status -o json",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			states, err := up.EncryptionStates(c.Context(), a)
			if err != nil {
				return err
			}
			if output == "json" {
				return printJSON(states)
			}
			w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "RESOURCE\tNEW ONES\tOBJECTS\tSTALE\tUNREADABLE\tSTORED")
			for _, s := range states {
				var stored []string
				for _, prefix := range slices.Sorted(maps.Keys(s.Stored)) {
					stored = append(stored, fmt.Sprintf("%s (%d)", prefix, s.Stored[prefix]))
				}
				fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%s\n", s.Resource, s.Writes, s.Objects, s.Stale, s.Unreadable, strings.Join(stored, ", "))
			}
			return w.Flush()
		},
	}
	addAccess(c, &a)
	addOutput(c, &output)
	return c
}

func newSecretsRotate() *cobra.Command {
	var a up.Access
	var output outputFlag
	c := &cobra.Command{
		Use:   "rotate",
		Short: "Rewrite all objects that are not encrypted with today's key",
		Long: `Rewrites all objects of encrypted resources that lie in the store otherwise than new ones
would: unencrypted, with another key, or by another provider than the first one of the
server's --encryption-provider-config. All servers must have that configuration before.

It may be interrupted at any moment, as may the server be killed: what is rewritten stays so, and
the next run goes on with the rest. Objects that somebody changes at the same time keep
that change. When it has ended without an error, no object needs the old key any more.`,
		Example: "  kemudi secrets rotate\n  kemudi secrets rotate -o json",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			told := time.Now()
			done, err := up.Rotate(c.Context(), a, func(r *up.Rotation, left int64) {
				if left > 0 && time.Since(told) > tellEvery {
					told = time.Now()
					fmt.Fprintf(c.ErrOrStderr(), "%s: %d of %d\n", r.Resource, r.Looked, int64(r.Looked)+left)
				}
			})
			if output == "json" {
				if err := printJSON(done); err != nil {
					return err
				}
			} else {
				printRotations(c.OutOrStdout(), done)
			}
			failed := 0
			for _, r := range done {
				failed += len(r.Failed)
			}
			if err == nil && failed > 0 {
				err = fmt.Errorf("%d objects cannot be rewritten, and stay as they are", failed)
			}
			return err
		},
	}
	addAccess(c, &a)
	addOutput(c, &output)
	return c
}

// tellEvery is how often somebody hears how far it is.
const tellEvery = 2 * time.Second

// failedShown is how many objects of a resource are named that cannot be rewritten.
const failedShown = 10

func printRotations(w io.Writer, done []*up.Rotation) {
	for _, r := range done {
		fmt.Fprintf(w, "%s: rewrote %d of %d\n", r.Resource, r.Rewritten, r.Looked)
		for _, f := range r.Failed[:min(failedShown, len(r.Failed))] {
			fmt.Fprintf(w, "  not %s: %s\n", f.Key, f.Error)
		}
		if more := len(r.Failed) - failedShown; more > 0 {
			fmt.Fprintf(w, "  nor %d more\n", more)
		}
	}
}
